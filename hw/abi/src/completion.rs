// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Completion entry: what the card reports of a descriptor, with the certificate of its result.

use crate::COMPLETION_BYTES;

/// Remarks of a completion, a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompletionFlags(pub u8);

impl CompletionFlags {
    /// The result holds a NaN or an infinity.
    pub const NON_FINITE: Self = Self(1 << 0);
    /// The result was divided by the number of contributors.
    pub const MEAN: Self = Self(1 << 1);
    /// The payload's CRC-32 was checked.
    pub const CRC_CHECKED: Self = Self(1 << 2);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Completion entry, 64 bytes, little endian (`cpl_t` in the RTL).
///
/// Completions of a queue come in the order of its submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Offset 0x00: `cid` of the descriptor.
    pub cid: u16,
    /// Offset 0x02: a [`crate::Status`] code.
    pub status: u8,
    /// Offset 0x03.
    pub flags: CompletionFlags,
    /// Offset 0x04: the descriptor's length if it succeeded; else the bytes of result written before it failed.
    pub bytes: u32,
    /// Offset 0x08: the tenant's epoch.
    pub epoch: u32,
    /// Offset 0x0c: CRC-32 of the result; 0 for PUSH and for errors.
    pub crc: u32,
    /// Offset 0x10: one bit a worker that contributed to segment `seq`.
    pub contributors: u64,
    /// Offset 0x18: card cycles.
    pub timestamp: u64,
    /// Offset 0x20: the last segment, or the one that failed or was waited for.
    pub seq: u32,
    /// Offset 0x24: number of contributors.
    pub count: u16,
    /// Offset 0x26: submission entries before this index may be reused.
    pub sq_head: u16,
    /// Offset 0x28: queue pair.
    pub queue: u16,
    /// Offset 0x3c, bit 0: flips each time the card goes round the ring; the first round writes 1.
    pub phase: bool,
}

impl Completion {
    /// Offset of the dword with the phase bit; the card writes it last.
    pub const PHASE_OFFSET: usize = 0x3c;

    /// The 64 bytes the card writes.
    pub fn to_bytes(&self) -> [u8; COMPLETION_BYTES] {
        let mut b = [0; COMPLETION_BYTES];
        b[0x00..0x02].copy_from_slice(&self.cid.to_le_bytes());
        b[0x02] = self.status;
        b[0x03] = self.flags.0;
        b[0x04..0x08].copy_from_slice(&self.bytes.to_le_bytes());
        b[0x08..0x0c].copy_from_slice(&self.epoch.to_le_bytes());
        b[0x0c..0x10].copy_from_slice(&self.crc.to_le_bytes());
        b[0x10..0x18].copy_from_slice(&self.contributors.to_le_bytes());
        b[0x18..0x20].copy_from_slice(&self.timestamp.to_le_bytes());
        b[0x20..0x24].copy_from_slice(&self.seq.to_le_bytes());
        b[0x24..0x26].copy_from_slice(&self.count.to_le_bytes());
        b[0x26..0x28].copy_from_slice(&self.sq_head.to_le_bytes());
        b[0x28..0x2a].copy_from_slice(&self.queue.to_le_bytes());
        b[Self::PHASE_OFFSET] = self.phase.into();
        b
    }

    /// Reads an entry as the driver does.
    pub fn from_bytes(b: &[u8; COMPLETION_BYTES]) -> Self {
        let u16_at = |o: usize| u16::from_le_bytes([b[o], b[o + 1]]);
        let u32_at = |o: usize| u32::from(u16_at(o)) | u32::from(u16_at(o + 2)) << 16;
        let u64_at = |o: usize| u64::from(u32_at(o)) | u64::from(u32_at(o + 4)) << 32;
        Self {
            cid: u16_at(0x00),
            status: b[0x02],
            flags: CompletionFlags(b[0x03]),
            bytes: u32_at(0x04),
            epoch: u32_at(0x08),
            crc: u32_at(0x0c),
            contributors: u64_at(0x10),
            timestamp: u64_at(0x18),
            seq: u32_at(0x20),
            count: u16_at(0x24),
            sq_head: u16_at(0x26),
            queue: u16_at(0x28),
            phase: b[Self::PHASE_OFFSET] & 1 != 0,
        }
    }
}
