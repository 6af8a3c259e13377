// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A client's connection, and the worker it may stand for.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use phub::control::{ControlPage, Fate};
use phub_driver::Queue;
use phub_sys::EventFd;

use crate::socket::Peer;

/// Names a connection for the life of the hub.
pub(crate) type ConnectionId = u64;

/// A client.
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    pub(crate) state: State,
}

/// What a connection stands for.
pub(crate) enum State {
    /// It has not greeted.
    Greeting,
    /// An operator, or a worker that has not joined yet or has left.
    Open,
    /// A worker of a tenant.
    Member(Box<Member>),
    /// A worker whose epoch has ended; the card has let go of its arena.
    Ended(Fate),
}

/// A worker of a tenant.
pub(crate) struct Member {
    pub(crate) tenant: String,
    pub(crate) rank: u32,
    /// Its queue pair; holds the arena and the card's mapping of it.
    pub(crate) queue: Arc<Queue>,
    pub(crate) arena_bytes: u64,
    pub(crate) page: ControlPage,
    /// Wakes it; the card's interrupts come by it too.
    pub(crate) event: EventFd,
}
