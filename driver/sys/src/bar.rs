// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A register BAR mapped into this process.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use volatile_register::RW;

/// A mapped register BAR: dwords that are read and written one by one, never cached or combined.
#[derive(Debug)]
pub struct MappedBar(MmapRaw);

impl MappedBar {
    /// Maps `bytes` bytes of `fd` from `offset`, a multiple of 4096. `fd` must not be able to shrink: a VFIO
    /// device's cannot.
    ///
    /// # Errors
    /// What `mmap` says; [`io::ErrorKind::Unsupported`] on processors where the order between memory and
    /// device registers needs more than [`MappedBar::write`] does.
    pub fn map(fd: impl AsFd, offset: u64, bytes: u32) -> io::Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // `map_raw` wants a raw descriptor; the mapping itself keeps the device open.
        let fd = fd.as_fd().try_clone_to_owned()?;
        let file = std::fs::File::from(fd);
        Ok(Self(
            MmapOptions::new()
                .offset(offset)
                .len(bytes as usize)
                .map_raw(&file)?,
        ))
    }

    /// Bytes.
    pub fn bytes(&self) -> u32 {
        self.0.len() as u32
    }

    /// Reads the dword at `offset`; `None` outside the BAR or if `offset` is not a multiple of 4.
    pub fn read(&self, offset: u32) -> Option<u32> {
        Some(self.cell(offset)?.read())
    }

    /// Writes the dword at `offset`; `None` outside the BAR or if `offset` is not a multiple of 4.
    ///
    /// Ordinary and atomic stores made before the call are visible to the card before the write is: the fence keeps
    /// them before it for the compiler, and x86-64 keeps stores to ordinary memory before a later uncached store.
    pub fn write(&self, offset: u32, value: u32) -> Option<()> {
        let cell = self.cell(offset)?;
        fence(Ordering::SeqCst);
        // SAFETY: `cell` is a register of a mapped BAR. What the card does because of the write touches only memory that
        // was given to it by a DMA mapping, none of which Rust holds references to.
        unsafe { cell.write(value) };
        Some(())
    }

    fn cell(&self, offset: u32) -> Option<&RW<u32>> {
        let end = (offset as usize).checked_add(4)?;
        if end > self.0.len() || !offset.is_multiple_of(4) {
            return None;
        }
        let at = self
            .0
            .as_mut_ptr()
            .wrapping_add(offset as usize)
            .cast::<RW<u32>>();
        // SAFETY: inside the mapping and aligned, both checked; `RW<u32>` is a transparent cell of a `u32`, of which
        // every value is valid; the mapping lives as long as `self`.
        Some(unsafe { &*at })
    }
}

// SAFETY: the cells are accessed by single volatile instructions, which the hardware orders as a bus does.
unsafe impl Sync for MappedBar {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HugePages, Memory};

    #[test]
    fn dwords_are_accessed_at_their_place() {
        let memory = Memory::new(8192, HugePages::No).unwrap();
        let bar = MappedBar::map(memory.fd(), 4096, 4096).unwrap();
        bar.write(8, 0x0102_0304).unwrap();
        assert_eq!(
            memory.load_u32(4104, Ordering::Acquire).unwrap(),
            0x0102_0304
        );
        assert_eq!((bar.read(8), bar.bytes()), (Some(0x0102_0304), 4096));
    }

    #[test]
    fn accesses_outside_are_refused() {
        let memory = Memory::new(4096, HugePages::No).unwrap();
        let bar = MappedBar::map(memory.fd(), 0, 4096).unwrap();
        for offset in [2, 4093, 4096, u32::MAX, u32::MAX - 3] {
            assert_eq!(bar.read(offset), None, "{offset}");
            assert_eq!(bar.write(offset, 0), None, "{offset}");
        }
        assert!(bar.read(4092).is_some());
    }
}
