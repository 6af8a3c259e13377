// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! vfio-user: a PCI function at the other end of a UNIX socket.
//!
//! [`Client`] is such a function for a driver; [`Server`] offers any [`phub_pci::PciFunction`] to one client at a time
//! (this crate's client, QEMU's `vfio-user-pci`, or any other that follows the protocol of libvfio-user).
//!
//! Both check every byte they get: a message that is cut short, too long or wrong ends in an error reply or a typed
//! error, never in a panic, an unbounded allocation or an endless wait.
#![forbid(unsafe_code)]

mod channel;
mod client;
mod server;
mod session;
mod stop;
mod wire;

pub use client::Client;
pub use server::{Server, ServerError};
pub use stop::Stop;
