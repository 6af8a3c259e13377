//! Tests of the whole parameter hub.
