//! Host library: push, pull and push_pull of gradients through a parameter hub.
