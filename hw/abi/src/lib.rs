// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Layouts, limits, status codes and registers shared by the card and its driver.
//!
//! The twin of `hw/rtl/pkg/phub_pkg.sv`; a co-simulation test compares both field by field.
#![no_std]
#![forbid(unsafe_code)]

mod completion;
mod descriptor;
pub mod regs;
mod status;

pub use completion::{Completion, CompletionFlags};
pub use descriptor::{Descriptor, Flags, Opcode};
pub use status::Status;

/// Bytes of a submission entry.
pub const DESCRIPTOR_BYTES: usize = 64;
/// Bytes of a completion entry.
pub const COMPLETION_BYTES: usize = 64;
/// Longest payload of one descriptor, in bytes.
pub const LENGTH_MAX: u32 = 1 << 30;
/// Alignment of buffers the card reads or writes, in bytes.
pub const BUFFER_ALIGN: u64 = 64;
/// Alignment of rings and IOVA windows, in bytes.
pub const PAGE: u64 = 4096;
/// log2 of the smallest and of the largest ring, in entries.
pub const RING_LOG2: core::ops::RangeInclusive<u8> = 1..=12;
/// Architectural maximum of tenants, of workers a tenant, and of queue pairs.
pub const TABLE_MAX: usize = 64;
/// Contents of the magic register: the bytes `PHUB`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"PHUB");
/// ABI major version this crate describes.
pub const ABI_MAJOR: u16 = 1;
/// ABI minor version this crate describes.
pub const ABI_MINOR: u16 = 0;
/// Bytes of BAR0.
pub const BAR0_BYTES: u32 = 0x20_0000;
/// PCI vendor of the card (the one QEMU's documentation sets aside for experiments).
pub const PCI_VENDOR: u16 = 0x1234;
/// PCI device of the card.
pub const PCI_DEVICE: u16 = 0x5048;

/// The bits of an FP32 value the card's adders and dividers give for every NaN.
pub const CANONICAL_NAN: u32 = 0x7fc0_0000;
