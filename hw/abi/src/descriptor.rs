// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Submission entry: what a worker asks the card to do.

use crate::DESCRIPTOR_BYTES;

/// What a descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Contribute the payload at `src`.
    Push = 1,
    /// Take the result into `dst`; a worker that has not pushed abstains from contributing.
    Pull = 2,
    /// Contribute the payload at `src` and take the result into `dst`.
    PushPull = 3,
}

impl Opcode {
    /// The opcode with this code, if there is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Push),
            2 => Some(Self::Pull),
            3 => Some(Self::PushPull),
            _ => None,
        }
    }
}

/// Options of a descriptor, a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// No option.
    pub const NONE: Self = Self(0);
    /// Divide the result by the number of contributors, correctly rounded.
    pub const MEAN: Self = Self(1 << 0);
    /// `crc` holds the CRC-32 of the payload: check it before the last segment is added.
    pub const CRC: Self = Self(1 << 1);
    /// Raise the queue's interrupt with the completion.
    pub const IRQ: Self = Self(1 << 2);
    /// With [`Opcode::Push`]: this worker will not pull the result.
    pub const WAIVE: Self = Self(1 << 3);
    /// Every bit with a meaning.
    pub const KNOWN: Self = Self(0x0f);

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Submission entry, 64 bytes, little endian (`desc_t` in the RTL).
///
/// The payload is cut into segments; segment *i* has sequence number `seq + i` (wrapping).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Offset 0x00: an [`Opcode`] code.
    pub opcode: u8,
    /// Offset 0x01.
    pub flags: Flags,
    /// Offset 0x02: returned in the completion; the card gives it no meaning.
    pub cid: u16,
    /// Offset 0x04: epoch of the tenant this belongs to.
    pub epoch: u32,
    /// Offset 0x08: sequence number of the first segment.
    pub seq: u32,
    /// Offset 0x0c: what the bytes are; every worker states the same.
    pub key: u32,
    /// Offset 0x10: IOVA of the payload (PUSH, PUSH_PULL), a multiple of 64; else 0.
    pub src: u64,
    /// Offset 0x18: IOVA of the result (PULL, PUSH_PULL), a multiple of 64; else 0. May equal `src`.
    pub dst: u64,
    /// Offset 0x20: bytes, a multiple of 4, 4 to 1 GiB.
    pub length: u32,
    /// Offset 0x24: CRC-32 (IEEE) of the payload, with [`Flags::CRC`]; else 0.
    pub crc: u32,
    /// Offset 0x28: must be zero.
    pub reserved: [u8; 24],
}

impl Descriptor {
    /// The 64 bytes the card reads.
    pub fn to_bytes(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut b = [0; DESCRIPTOR_BYTES];
        b[0x00] = self.opcode;
        b[0x01] = self.flags.0;
        b[0x02..0x04].copy_from_slice(&self.cid.to_le_bytes());
        b[0x04..0x08].copy_from_slice(&self.epoch.to_le_bytes());
        b[0x08..0x0c].copy_from_slice(&self.seq.to_le_bytes());
        b[0x0c..0x10].copy_from_slice(&self.key.to_le_bytes());
        b[0x10..0x18].copy_from_slice(&self.src.to_le_bytes());
        b[0x18..0x20].copy_from_slice(&self.dst.to_le_bytes());
        b[0x20..0x24].copy_from_slice(&self.length.to_le_bytes());
        b[0x24..0x28].copy_from_slice(&self.crc.to_le_bytes());
        b[0x28..0x40].copy_from_slice(&self.reserved);
        b
    }

    /// Reads an entry as the card does; no field is checked.
    pub fn from_bytes(b: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let u32_at = |o: usize| u32::from_le_bytes([b[o], b[o + 1], b[o + 2], b[o + 3]]);
        let u64_at = |o: usize| u64::from(u32_at(o)) | u64::from(u32_at(o + 4)) << 32;
        let mut reserved = [0; 24];
        reserved.copy_from_slice(&b[0x28..]);
        Self {
            opcode: b[0],
            flags: Flags(b[1]),
            cid: u16::from_le_bytes([b[2], b[3]]),
            epoch: u32_at(0x04),
            seq: u32_at(0x08),
            key: u32_at(0x0c),
            src: u64_at(0x10),
            dst: u64_at(0x18),
            length: u32_at(0x20),
            crc: u32_at(0x24),
            reserved,
        }
    }
}
