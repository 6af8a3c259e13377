// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The worker's card-visible memory, and who may use which piece of it.
//!
//! A [`Block`] is owned by exactly one of a [`crate::Tensor`] (the worker may touch it) and an operation in
//! flight (the card may). It goes back to the free list when its owner drops it, and an operation's is dropped only
//! once the card is done with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use phub_sys::Memory;

use crate::{Error, Result};

/// Every block starts at a multiple of this: what the card asks of a buffer.
const ALIGN: usize = phub_abi::BUFFER_ALIGN as usize;

/// Memory shared with the card, from which blocks are cut.
pub(crate) struct Arena {
    memory: Memory,
    /// IOVA of byte 0 of `memory`.
    iova: u64,
    free: Mutex<FreeList>,
}

impl Arena {
    /// `memory[start..]` is for blocks.
    pub(crate) fn new(memory: Memory, iova: u64, start: usize) -> Arc<Self> {
        let total = usize::try_from(memory.len())
            .unwrap_or(usize::MAX)
            .saturating_sub(start);
        Arc::new(Self {
            memory,
            iova,
            free: Mutex::new(FreeList::new(start, total)),
        })
    }

    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Block> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = free.take(bytes).ok_or_else(|| Error::ArenaFull {
            wanted: bytes,
            free: free.pieces.values().sum(),
            longest: free.pieces.values().copied().max().unwrap_or(0),
            total: free.total,
        })?;
        Ok(Block {
            arena: self.clone(),
            offset,
            bytes,
        })
    }
}

/// A piece of an arena; dropping it frees it.
pub(crate) struct Block {
    arena: Arc<Arena>,
    offset: usize,
    bytes: usize,
}

impl Block {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_of(&self, arena: &Arc<Arena>) -> bool {
        Arc::ptr_eq(&self.arena, arena)
    }

    /// Address of its byte `offset` for the card.
    pub(crate) fn iova(&self, offset: u64) -> u64 {
        self.arena.iova + self.offset as u64 + offset
    }

    /// Copies bytes from `offset` on out of the block.
    pub(crate) fn read(&self, offset: usize, data: &mut [u8]) -> Result<()> {
        let at = self.range(offset, data.len())?;
        self.arena.memory.read_at(at, data).map_err(|e| outside(&e))
    }

    /// Copies values out, from value `first` on.
    pub(crate) fn read_f32(&self, first: usize, values: &mut [f32]) -> Result<()> {
        let at = self.range(first.saturating_mul(4), size_of_val(values))?;
        self.arena
            .memory
            .read_f32(at, values)
            .map_err(|e| outside(&e))
    }

    /// Copies values in, from value `first` on.
    pub(crate) fn write_f32(&self, first: usize, values: &[f32]) -> Result<()> {
        let at = self.range(first.saturating_mul(4), size_of_val(values))?;
        self.arena
            .memory
            .write_f32(at, values)
            .map_err(|e| outside(&e))
    }

    fn range(&self, offset: usize, len: usize) -> Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes => Ok((self.offset + offset) as u64),
            _ => Err(outside(&format_args!(
                "bytes {offset}..+{len} of {}",
                self.bytes
            ))),
        }
    }
}

fn outside(what: &dyn std::fmt::Display) -> Error {
    Error::InvalidUsage {
        what: format!("access outside a tensor: {what}"),
        remedy: "stay below its length",
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.arena
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .give(self.offset, self.bytes);
    }
}

/// First fit over free pieces in order of address; neighbours are joined.
struct FreeList {
    /// Offset and bytes, both multiples of [`ALIGN`].
    pieces: BTreeMap<usize, usize>,
    total: usize,
}

impl FreeList {
    fn new(start: usize, total: usize) -> Self {
        let first = start.next_multiple_of(ALIGN);
        let total = (total.saturating_sub(first - start)) / ALIGN * ALIGN;
        Self {
            pieces: BTreeMap::from_iter((total > 0).then_some((first, total))),
            total,
        }
    }

    /// An empty block has an address of its own too: it takes one unit.
    fn rounded(bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(ALIGN)
    }

    fn take(&mut self, bytes: usize) -> Option<usize> {
        let bytes = Self::rounded(bytes)?;
        let (&offset, &piece) = self.pieces.iter().find(|&(_, &piece)| piece >= bytes)?;
        self.pieces.remove(&offset);
        if piece > bytes {
            self.pieces.insert(offset + bytes, piece - bytes);
        }
        Some(offset)
    }

    fn give(&mut self, mut offset: usize, bytes: usize) {
        let mut bytes = Self::rounded(bytes).expect("it was taken");
        if let Some(after) = self.pieces.remove(&(offset + bytes)) {
            bytes += after;
        }
        if let Some((&before, &piece)) = self.pieces.range(..offset).next_back() {
            debug_assert!(before + piece <= offset, "a block is freed once");
            if before + piece == offset {
                offset = before;
                bytes += piece;
            }
        }
        self.pieces.insert(offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn full_is_full() {
        let mut list = FreeList::new(100, 1000);
        assert_eq!(list.total, 960);
        assert_eq!(list.take(961), None);
        assert_eq!(list.take(usize::MAX), None);
        assert_eq!(list.take(0), Some(128));
        assert_eq!(list.take(896), Some(192));
        assert_eq!(list.take(1), None);
    }

    proptest! {
        /// Blocks never overlap, and all memory comes back in one piece.
        #[test]
        fn blocks_are_disjoint_and_come_back(ops in prop::collection::vec((any::<bool>(), 0..3000usize), 1..200)) {
            let mut list = FreeList::new(4096, 16384);
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (take, n) in ops {
                if take {
                    if let Some(offset) = list.take(n) {
                        let end = offset + n.max(1);
                        prop_assert!(offset % 64 == 0 && offset >= 4096 && end <= 4096 + 16384);
                        prop_assert!(held.iter().all(|&(o, b)| end <= o || o + b.max(1) <= offset));
                        held.push((offset, n));
                    }
                } else if !held.is_empty() {
                    let (offset, n) = held.swap_remove(n % held.len());
                    list.give(offset, n);
                }
            }
            for (offset, n) in held {
                list.give(offset, n);
            }
            prop_assert_eq!(list.pieces, BTreeMap::from([(4096, 16384)]));
        }
    }
}
