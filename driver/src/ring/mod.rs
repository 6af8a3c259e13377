// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Submission and completion rings in shared memory.
//!
//! Each half belongs to one side: the host writes submissions and reads completions. Neither rings a doorbell: the
//! tail or head a method returns is for [`crate::Queue::ring_sq`] or [`crate::Queue::ring_cq`], or for whatever stands
//! between this process and the card. A ring of `n` entries holds `n - 1`, so that head == tail means empty.

mod completion;
mod submission;

pub use completion::CompletionQueue;
pub use submission::SubmissionQueue;

use std::sync::atomic::Ordering;

use phub_abi::RING_LOG2;
use phub_sys::{Memory, MemoryError};

/// Bytes of an entry, of either ring.
const ENTRY: u64 = 64;
const _: () = assert!(
    phub_abi::DESCRIPTOR_BYTES as u64 == ENTRY && phub_abi::COMPLETION_BYTES as u64 == ENTRY
);

/// Why a ring could not be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// No room for another submission.
    #[error("the submission ring is full; take completions first")]
    Full,
    /// log2 of the number of entries is not from 1 to 12.
    #[error("a ring of 2^{0} entries; 2^1 to 2^12 are possible")]
    Size(u8),
    /// The card states a submission head that lies outside what was submitted.
    #[error("the card says it has taken submissions up to {head}, but {first} to {tail} are out")]
    Head {
        /// What the card says.
        head: u16,
        /// The oldest submission it holds.
        first: u16,
        /// The next free entry.
        tail: u16,
    },
    /// The ring leaves its memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// The entries of a ring. Indices are taken modulo its size.
#[derive(Debug)]
struct Entries {
    memory: Memory,
    mask: u16,
}

impl Entries {
    fn new(memory: &Memory, offset: u64, log2: u8) -> Result<Self, RingError> {
        if !RING_LOG2.contains(&log2) {
            return Err(RingError::Size(log2));
        }
        let memory = memory.slice(offset, ENTRY << log2)?;
        // Entries are accessed in quadwords: a misaligned ring fails here and not at every access.
        memory.atomic_u64(0)?;
        Ok(Self {
            memory,
            mask: (1 << log2) - 1,
        })
    }

    fn load(&self, index: u16) -> Result<[u8; ENTRY as usize], MemoryError> {
        let mut entry = [0; ENTRY as usize];
        for (at, bytes) in (self.at(index)..).step_by(8).zip(entry.chunks_exact_mut(8)) {
            let word = self.memory.atomic_u64(at)?.load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(entry)
    }

    fn store(&self, index: u16, entry: &[u8; ENTRY as usize]) -> Result<(), MemoryError> {
        let (words, _) = entry.as_chunks();
        for (at, word) in (self.at(index)..).step_by(8).zip(words) {
            self.memory
                .atomic_u64(at)?
                .store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        Ok(())
    }

    fn at(&self, index: u16) -> u64 {
        u64::from(index & self.mask) * ENTRY
    }
}

#[cfg(test)]
mod tests;
