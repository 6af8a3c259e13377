// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! How a hub is set up, and its limits.

use std::path::PathBuf;
use std::sync::Arc;

use phub_pci::PciFunction;

/// Most connections at a time, workers and operators together.
pub(crate) const CONNECTIONS_MAX: usize = 192;
/// Longest name of a tenant.
pub(crate) const NAME_MAX: usize = 64;
/// log2 of the entries of a worker's rings: 1024 chunks of 32 KiB in flight.
pub(crate) const RING_LOG2: u8 = 10;

/// Which card a hub serves.
pub enum Card {
    /// `vfio-user:PATH`, a PCI address, or `model` for the golden model in this process.
    Address(String),
    /// A card in this process.
    Function(Arc<dyn PciFunction>),
}

/// How a hub is set up.
pub struct Config {
    /// Which card it owns.
    pub card: Card,
    /// Where it listens.
    pub socket: PathBuf,
    /// Whether the first worker of an unknown tenant creates it, with its own token and world size; it goes with its last worker.
    pub auto_create: bool,
    /// log2 of the slots of a tenant whose creator does not say; fewer if the card has not that many left.
    pub slots_log2: u8,
    /// Longest arena a worker may ask for, in bytes.
    pub arena_max: u64,
    /// All arenas together, in bytes.
    pub arena_total: u64,
    /// Take huge pages for arenas where the system has them.
    ///
    /// Faster for large tensors, but only for workers that are trusted: one that punches holes into its arena, with no huge page
    /// left in the system, would kill the hub.
    pub huge_pages: bool,
}

impl Config {
    /// Defaults: tenants are created on the fly, with 256 slots; arenas of up to 4 GiB, 64 GiB in all; small pages.
    pub fn new(card: Card, socket: impl Into<PathBuf>) -> Self {
        Self {
            card,
            socket: socket.into(),
            auto_create: true,
            slots_log2: 8,
            arena_max: 4 << 30,
            arena_total: 64 << 30,
            huge_pages: false,
        }
    }
}
