//! Command line of the parameter hub.
fn main() {}
