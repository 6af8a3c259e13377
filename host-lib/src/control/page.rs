// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The arena's first page, through which worker and hub speak without system calls, and what follows it.
//!
//! | offset | bytes | written by | what |
//! | --- | --- | --- | --- |
//! | 0x000 | 4 | worker | index of the next free submission entry (shadow doorbell) |
//! | 0x004 | 4 | worker | index of the next completion entry it will read (shadow doorbell) |
//! | 0x080 | 4 | hub | 1: nobody polls the shadow doorbells, write a byte to the kick socket after ringing one that is due |
//! | 0x084 | 4 | hub | 1: the epoch has ended and the card does not touch the arena any more |
//! | 0x088 | 8 | hub | ranks that have left the epoch, one bit each |
//!
//! A submission tail is due whenever it has moved, a completion head now and then ([`Layout::head_is_due`]).
//!
//! The hub trusts nothing in it: a wrong shadow doorbell stops the worker's queue.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use phub_abi::{COMPLETION_BYTES, DESCRIPTOR_BYTES, PAGE, RING_LOG2};
use phub_sys::{Memory, MemoryError};
use serde::{Deserialize, Serialize};

const SQ_TAIL: u64 = 0x000;
const CQ_HEAD: u64 = 0x004;
const ASLEEP: u64 = 0x080;
const ENDED: u64 = 0x084;
const DEPARTED: u64 = 0x088;

/// What lies where in an arena, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Length of the whole.
    pub arena_bytes: u64,
    /// Submission ring.
    pub sq_offset: u64,
    /// log2 of its entries.
    pub sq_log2: u8,
    /// Completion ring.
    pub cq_offset: u64,
    /// log2 of its entries.
    pub cq_log2: u8,
    /// Room for tensors, from here to the end.
    pub buffers_offset: u64,
}

impl Layout {
    /// Control page, rings of `1 << ring_log2` entries, and at least `buffer_bytes` for tensors, in whole pages.
    ///
    /// `None` if that is more than addresses can tell.
    pub fn new(buffer_bytes: u64, ring_log2: u8) -> Option<Self> {
        let sq_offset = PAGE;
        let cq_offset = sq_offset + ((DESCRIPTOR_BYTES as u64) << ring_log2).next_multiple_of(PAGE);
        let buffers_offset =
            cq_offset + ((COMPLETION_BYTES as u64) << ring_log2).next_multiple_of(PAGE);
        let arena_bytes = buffers_offset
            .checked_add(buffer_bytes)?
            .checked_next_multiple_of(PAGE)?;
        Some(Self {
            arena_bytes,
            sq_offset,
            sq_log2: ring_log2,
            cq_offset,
            cq_log2: ring_log2,
            buffers_offset,
        })
    }

    /// Whether the card must hear of completion head `head`, if `known` is what it heard last.
    ///
    /// Telling it of every entry is dear and of no use: it needs to know before the ring is full. But it fetches no descriptor
    /// whose completion would have no room, so a head that is due and not told can stop a queue for good. Worker and hub both
    /// go by this: the head has entered another quarter of the ring, or gone round it.
    pub fn head_is_due(&self, known: u32, head: u32) -> bool {
        let size = 1u32 << self.cq_log2;
        let quarter = size.div_ceil(4);
        known / quarter != head / quarter || head.wrapping_sub(known) % size >= quarter
    }

    /// Whether its parts follow each other inside `arena_bytes`, as [`Layout::new`] makes them.
    pub fn is_sound(&self) -> bool {
        let ends = |offset: u64, log2: u8| {
            RING_LOG2
                .contains(&log2)
                .then(|| offset.checked_add(64 << log2))
                .flatten()
        };
        self.sq_offset >= PAGE
            && ends(self.sq_offset, self.sq_log2).is_some_and(|end| end <= self.cq_offset)
            && ends(self.cq_offset, self.cq_log2).is_some_and(|end| end <= self.buffers_offset)
            && self.buffers_offset <= self.arena_bytes
            && [
                self.sq_offset,
                self.cq_offset,
                self.buffers_offset,
                self.arena_bytes,
            ]
            .iter()
            .all(|o| o % PAGE == 0)
    }
}

/// The control page of an arena.
#[derive(Clone, Debug)]
pub struct ControlPage(Memory);

impl ControlPage {
    /// Of the arena `memory`.
    pub fn new(memory: &Memory) -> Result<Self, MemoryError> {
        Ok(Self(memory.slice(0, PAGE)?))
    }

    /// Worker: states that submission entries before `tail` are valid, and says whether the hub must be kicked.
    pub fn ring_sq(&self, tail: u16) -> bool {
        // Release: pairs with the hub's Acquire in `sq_tail`; the entries are visible before the tail is.
        self.word(SQ_TAIL).store(tail.into(), Ordering::Release);
        self.is_asleep()
    }

    /// Worker: states that completion entries before `head` have been read, and says whether the hub must be kicked
    /// if that is due ([`Layout::head_is_due`]).
    pub fn ring_cq(&self, head: u16) -> bool {
        // Release: our reads of the entries come before; the card may overwrite them once it knows the head.
        self.word(CQ_HEAD).store(head.into(), Ordering::Release);
        self.is_asleep()
    }

    fn is_asleep(&self) -> bool {
        // The fence orders the doorbell's store before the load: either the hub sees the doorbell in its last look before
        // it sleeps, or we see that it sleeps. Pairs with the fence in `set_asleep`.
        fence(Ordering::SeqCst);
        self.word(ASLEEP).load(Ordering::Relaxed) != 0
    }

    /// Hub: the worker's submission tail; any value.
    pub fn sq_tail(&self) -> u32 {
        self.word(SQ_TAIL).load(Ordering::Acquire)
    }

    /// Hub: the worker's completion head; any value.
    pub fn cq_head(&self) -> u32 {
        self.word(CQ_HEAD).load(Ordering::Acquire)
    }

    /// Hub: says whether it polls. After `set_asleep(true)` it must look at the doorbells once more.
    pub fn set_asleep(&self, asleep: bool) {
        self.word(ASLEEP).store(asleep.into(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Hub: the epoch is over, and the card has let go of the arena.
    pub fn set_ended(&self) {
        // Release: pairs with `has_ended`; the card's last completions are visible before.
        self.word(ENDED).store(1, Ordering::Release);
    }

    /// Worker: whether the epoch is over.
    pub fn has_ended(&self) -> bool {
        self.word(ENDED).load(Ordering::Acquire) != 0
    }

    /// Hub: who has left.
    pub fn set_departed(&self, ranks: u64) {
        self.wide(DEPARTED).store(ranks, Ordering::Release);
    }

    /// Worker: who has left.
    pub fn departed(&self) -> u64 {
        self.wide(DEPARTED).load(Ordering::Acquire)
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        self.0.atomic_u32(offset).expect("aligned, inside the page")
    }

    fn wide(&self, offset: u64) -> &AtomicU64 {
        self.0.atomic_u64(offset).expect("aligned, inside the page")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_due_before_the_card_runs_out_of_room() {
        for log2 in RING_LOG2 {
            let (layout, size) = (Layout::new(0, log2).unwrap(), 1 << log2);
            for known in (0..size).step_by(size as usize / 16 + 1) {
                assert!(!layout.head_is_due(known, known));
                for moved in size.div_ceil(4)..size {
                    let head = (known + moved) % size;
                    assert!(layout.head_is_due(known, head), "{log2}: {known} to {head}");
                }
            }
            assert!(layout.head_is_due(size - 1, size), "nonsense is noticed");
        }
    }

    #[test]
    fn layouts_are_sound_or_none() {
        for log2 in RING_LOG2 {
            for bytes in [0, 1, 4096, 1 << 30] {
                let layout = Layout::new(bytes, log2).unwrap();
                assert!(
                    layout.is_sound() && layout.arena_bytes - layout.buffers_offset >= bytes,
                    "{layout:?}"
                );
            }
        }
        assert_eq!(Layout::new(u64::MAX - 4096, 3), None);
        let good = Layout::new(4096, 4).unwrap();
        assert!(
            !Layout {
                sq_offset: 0,
                ..good
            }
            .is_sound()
        );
        assert!(
            !Layout {
                cq_offset: u64::MAX - 4095,
                ..good
            }
            .is_sound()
        );
        assert!(
            !Layout {
                sq_log2: 40,
                ..good
            }
            .is_sound()
        );
        assert!(
            !Layout {
                buffers_offset: good.arena_bytes + 4096,
                ..good
            }
            .is_sound()
        );
    }
}
