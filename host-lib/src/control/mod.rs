// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What a worker and `phubd` say to each other; the words are explained in `docs/control-protocol.md`.

mod connection;
mod message;
mod page;
mod wire;

pub use connection::Connection;
pub(crate) use connection::unexpected;
pub use message::*;
pub use page::{ControlPage, Layout};
pub use wire::{MESSAGE_MAX, Received, receive, send};

/// Version of the protocol. Both sides must have the same.
pub const VERSION: u32 = 1;
