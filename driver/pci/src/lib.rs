// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What a PCI function offers to a driver: the seam at which the driver meets a card.
//!
//! Implemented by the driver's back ends (`vfio`, `vfio-user`) and, in process, by the Verilated card
//! and by the golden model. Nothing above this trait knows which one it has.
#![forbid(unsafe_code)]

pub mod config;
pub mod dma;
mod registers;

use std::os::fd::BorrowedFd;

pub use phub_abi::regs::RegisterIo;
pub use phub_sys::Memory;
pub use registers::RegisterIoExt;

/// Why a PCI function refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PciError {
    /// Offset or length outside the region.
    #[error("{region} access of {len} bytes at {offset:#x} is outside the region or misaligned")]
    OutOfRange {
        /// Which region: `config` or `BAR0`.
        region: &'static str,
        /// Byte offset.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A DMA mapping overlaps another, is misaligned, or does not exist.
    #[error("DMA mapping of {len:#x} bytes at IOVA {iova:#x}: {reason}")]
    Mapping {
        /// First IOVA.
        iova: u64,
        /// Bytes.
        len: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The function does not have that many interrupt vectors.
    #[error("{wanted} interrupt vectors wanted, the function has {available}")]
    Vectors {
        /// Asked for.
        wanted: usize,
        /// Built.
        available: usize,
    },
    /// The function is gone: unplugged, its simulator ended, or its socket closed.
    #[error("the card at {address} is gone ({reason}); restart it and open it again")]
    Gone {
        /// Where it was.
        address: String,
        /// How that was noticed.
        reason: String,
    },
    /// No answer within the deadline.
    #[error("the card at {address} did not answer {what} within {millis} ms")]
    Timeout {
        /// Where it is.
        address: String,
        /// What was asked.
        what: &'static str,
        /// The deadline.
        millis: u64,
    },
    /// The operating system or the other side refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// A PCI function with one register BAR, bus mastering and MSI-X.
///
/// All methods may be called from several threads; every one returns within a bounded time.
pub trait PciFunction: Send + Sync {
    /// Where it is, for messages: a PCI address, a socket path, `in-process`.
    fn address(&self) -> String;

    /// Reads configuration space (4096 bytes); `data` is 1, 2 or 4 bytes, naturally aligned.
    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<(), PciError>;

    /// Writes configuration space.
    fn config_write(&self, offset: u16, data: &[u8]) -> Result<(), PciError>;

    /// Bytes of BAR0.
    fn bar_bytes(&self) -> u32;

    /// Reads the dword at `offset` of BAR0, a multiple of 4.
    fn bar_read(&self, offset: u32) -> Result<u32, PciError>;

    /// Writes the dword at `offset` of BAR0.
    ///
    /// Ordinary and atomic stores made before the call are visible to the card before the write is.
    fn bar_write(&self, offset: u32, value: u32) -> Result<(), PciError>;

    /// Lets the card read and write `memory[offset..offset + len]` at `iova`. All are multiples of 4096.
    ///
    /// The function keeps a reference to `memory` until [`PciFunction::dma_unmap`] or its end.
    fn dma_map(&self, iova: u64, memory: &Memory, offset: u64, len: u64) -> Result<(), PciError>;

    /// Takes a mapping back, exactly as it was made. On return the card cannot touch it any more.
    fn dma_unmap(&self, iova: u64, len: u64) -> Result<(), PciError>;

    /// MSI-X vectors the function has.
    fn vectors(&self) -> usize;

    /// Connects eventfds to vectors 0.. in order; fewer leave the rest unconnected, none disconnects all.
    /// The function duplicates the descriptors.
    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> Result<(), PciError>;

    /// Function-level reset: registers and rings are as after power-on, DMA mappings stay.
    fn reset(&self) -> Result<(), PciError>;

    /// NUMA node the function is attached to, if that is known: memory for it is best taken from there.
    fn numa_node(&self) -> Option<u32> {
        None
    }

    /// Called by whoever polls memory the card will write. A card in this process runs its clock for a
    /// while; others do nothing.
    fn relax(&self) {
        std::hint::spin_loop();
    }
}

impl RegisterIo for dyn PciFunction + '_ {
    type Error = PciError;

    fn read32(&self, offset: u32) -> Result<u32, PciError> {
        self.bar_read(offset)
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), PciError> {
        self.bar_write(offset, value)
    }
}
