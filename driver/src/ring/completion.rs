// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The host's half of a completion ring.

use std::sync::atomic::Ordering;

use phub_abi::{COMPLETION_BYTES, Completion};
use phub_sys::Memory;

use super::{Entries, RingError};

/// Reads the card's completions.
#[derive(Debug)]
pub struct CompletionQueue {
    entries: Entries,
    /// Next entry to read.
    head: u16,
    /// Phase bit the card writes in this round.
    phase: bool,
}

impl CompletionQueue {
    /// An empty ring of `1 << log2` entries at `offset` (in bytes) of `memory`, whose bytes there must be zero, as
    /// `Device::create_queue` leaves them.
    ///
    /// # Errors
    /// [`RingError::Size`], or [`RingError::Memory`] if the ring leaves the memory or is misaligned.
    pub fn new(memory: &Memory, offset: u64, log2: u8) -> Result<Self, RingError> {
        Ok(Self {
            entries: Entries::new(memory, offset, log2)?,
            head: 0,
            phase: true,
        })
    }

    /// Takes the next completion, if the card has written it.
    pub fn pop(&mut self) -> Option<Completion> {
        let phase_at = self.entries.at(self.head) + Completion::PHASE_OFFSET as u64;
        // Acquire: pairs with the card writing the phase after the rest of the entry (hw/rtl/host/cq_post.sv: one burst
        // whose last dword holds it) and after the results it reports; what follows is read after the phase.
        let phase = self
            .entries
            .memory
            .load_u32(phase_at, Ordering::Acquire)
            .ok()?;
        if (phase & 1 != 0) != self.phase {
            return None;
        }
        let entry: [u8; COMPLETION_BYTES] = self.entries.load(self.head).ok()?;
        self.head = (self.head + 1) & self.entries.mask;
        self.phase ^= self.head == 0;
        Some(Completion::from_bytes(&entry))
    }

    /// Next entry to read: what the doorbell should be told, at the latest when the ring is nearly full.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// Completions the card may write before it must be told a new head.
    pub fn capacity(&self) -> usize {
        usize::from(self.entries.mask)
    }
}
