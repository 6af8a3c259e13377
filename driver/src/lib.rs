//! Driver of the parameter hub card.
