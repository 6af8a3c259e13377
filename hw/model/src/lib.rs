// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Golden model of the card: rings, slots and arithmetic, without a clock.
//!
//! The model is the specification in executable form. It does one thing at a time, in an order that a policy chooses
//! ([`Order`]); whatever order a real card takes, the model gives the same bytes when it is told that order.
//!
//! Read it in the order of a gradient: [`csr`] (the host writes a doorbell), [`rings`] (descriptors are checked),
//! [`hub`] (what the card does next), [`slots`] (who has joined), [`arith`] (the sum), [`card`] (PCI and interrupts).
#![forbid(unsafe_code)]

pub mod arith;
pub mod card;
pub mod csr;
pub mod hub;
pub mod order;
pub mod rings;
pub mod slots;

pub use card::GoldenCard;
pub use hub::{Host, Hub};
pub use order::{Contribution, Order, Recording};

/// How large a card is built; the parameters of `phub_core`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// FP32 adders side by side.
    pub lanes: u32,
    /// Bytes of a segment, a power of two, 64 to 8192.
    pub seg_bytes: u32,
    /// Slots of one segment each, a power of two, 2 to 65536.
    pub slots: u32,
    /// Tenants, 1 to 64.
    pub tenants: u32,
    /// Workers a tenant can have, 1 to 64.
    pub workers: u32,
    /// Queue pairs, 1 to 64.
    pub queues: u32,
    /// Descriptors of one queue the card holds at a time, a power of two, 2 to 64.
    pub desc_depth: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            lanes: 16,
            seg_bytes: 1024,
            slots: 1024,
            tenants: 64,
            workers: 64,
            queues: 64,
            desc_depth: 16,
        }
    }
}

impl Params {
    /// Interrupt vectors: one a queue, and vector 0 for errors.
    pub fn vectors(&self) -> u32 {
        self.queues + 1
    }
}
