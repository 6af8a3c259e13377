// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The host's half of a submission ring.

use phub_abi::Descriptor;
use phub_sys::Memory;

use super::{Entries, RingError};

/// Writes descriptors for the card.
#[derive(Debug)]
pub struct SubmissionQueue {
    entries: Entries,
    /// Next entry to write.
    tail: u16,
    /// Oldest entry the card may still have to read.
    head: u16,
}

impl SubmissionQueue {
    /// An empty ring of `1 << log2` entries at `offset` (in bytes) of `memory`.
    ///
    /// # Errors
    /// [`RingError::Size`], or [`RingError::Memory`] if the ring leaves the memory or is misaligned.
    pub fn new(memory: &Memory, offset: u64, log2: u8) -> Result<Self, RingError> {
        Ok(Self {
            entries: Entries::new(memory, offset, log2)?,
            tail: 0,
            head: 0,
        })
    }

    /// Writes a descriptor and returns the tail to ring; several pushes may share one ring of the bell.
    ///
    /// # Errors
    /// [`RingError::Full`].
    pub fn push(&mut self, descriptor: &Descriptor) -> Result<u16, RingError> {
        if self.free() == 0 {
            return Err(RingError::Full);
        }
        // The stores are relaxed: the doorbell publishes them (`Queue::ring_sq` for the card itself; a Release store in
        // shared memory otherwise). Its peer, hw/rtl/host/sq_fetch.sv, takes the tail before it reads entries.
        self.entries.store(self.tail, &descriptor.to_bytes())?;
        self.tail = self.next(self.tail);
        Ok(self.tail)
    }

    /// Takes note that the card has read everything before `head`: [`phub_abi::Completion::sq_head`].
    ///
    /// # Errors
    /// [`RingError::Head`] if that is not between the last head and the tail; the head stays.
    pub fn set_head(&mut self, head: u16) -> Result<(), RingError> {
        let ahead = head.wrapping_sub(self.head) & self.entries.mask;
        if head > self.entries.mask || ahead > self.used() {
            return Err(RingError::Head {
                head,
                first: self.head,
                tail: self.tail,
            });
        }
        self.head = head;
        Ok(())
    }

    /// Entries that can be pushed now.
    pub fn free(&self) -> usize {
        usize::from(self.entries.mask - self.used())
    }

    /// Entries that can be pushed when the ring is empty.
    pub fn capacity(&self) -> usize {
        usize::from(self.entries.mask)
    }

    /// Next entry to write: what the doorbell was told last, or should be.
    pub fn tail(&self) -> u16 {
        self.tail
    }

    fn used(&self) -> u16 {
        self.tail.wrapping_sub(self.head) & self.entries.mask
    }

    fn next(&self, index: u16) -> u16 {
        (index + 1) & self.entries.mask
    }
}
