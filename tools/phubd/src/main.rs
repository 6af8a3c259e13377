//! Daemon that owns a card and serves local workers.
fn main() {}
