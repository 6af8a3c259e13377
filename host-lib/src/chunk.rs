// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Cutting a tensor into chunks of 32 KiB (the key size of Parameter Hub), and a chunk into a descriptor.

use phub_abi::{Descriptor, Flags, Opcode};

use crate::proto::{Action, Kind};

/// Bytes of a chunk; the last of a tensor may be shorter. A multiple of every segment size.
pub const CHUNK_BYTES: u32 = 32 * 1024;

/// One piece of a tensor: what one descriptor covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Its place, from 0.
    pub(crate) index: u32,
    /// Byte offset in the tensor.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) bytes: u32,
}

impl Chunk {
    /// Number of chunks of a tensor of `bytes`.
    pub(crate) fn count(bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(u64::from(CHUNK_BYTES)))
            .expect("tensor lengths are checked by the sequencer")
    }

    /// Chunk `index` of a tensor of `bytes`.
    pub(crate) fn of(bytes: u64, index: u32) -> Self {
        let offset = u64::from(index) * u64::from(CHUNK_BYTES);
        let rest = bytes.checked_sub(offset).expect("chunk lies in its tensor");
        Self {
            index,
            offset,
            bytes: rest.min(u64::from(CHUNK_BYTES)) as u32,
        }
    }

    /// Sequence number of its first segment, when the tensor's is `seq`.
    pub(crate) fn seq(self, seq: u32, segment_bytes: u32) -> u32 {
        seq.wrapping_add(self.index.wrapping_mul(CHUNK_BYTES / segment_bytes))
    }
}

/// The submission entry for a chunk whose bytes lie at `iova`, both payload and result (in place).
///
/// `crc` is the CRC-32 of the payload, if the card shall check it.
pub(crate) fn descriptor(
    out: &crate::proto::Outgoing,
    epoch: u32,
    iova: u64,
    crc: Option<u32>,
) -> Descriptor {
    let (opcode, mut flags) = match out.action {
        Action::Push => (Opcode::Push, Flags::NONE),
        Action::PushWaive => (Opcode::Push, Flags::WAIVE),
        Action::Pull => (Opcode::Pull, Flags::NONE),
        Action::PushPull => (Opcode::PushPull, Flags::NONE),
    };
    let (reads, writes) = (opcode != Opcode::Pull, opcode != Opcode::Push);
    if writes && out.kind == Kind::Mean {
        flags = flags.with(Flags::MEAN);
    }
    let crc = crc.filter(|_| reads);
    if crc.is_some() {
        flags = flags.with(Flags::CRC);
    }
    if out.interrupt {
        flags = flags.with(Flags::IRQ);
    }
    Descriptor {
        opcode: opcode as u8,
        flags,
        cid: out.cid,
        epoch,
        seq: out.seq,
        key: out.key,
        src: if reads { iova } else { 0 },
        dst: if writes { iova } else { 0 },
        length: out.chunk.bytes,
        crc: crc.unwrap_or(0),
        reserved: [0; 24],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_tile_the_tensor(bytes in 1..5_000_000u64, seg_log2 in 6..14u32, seq: u32) {
            let segment = 1 << seg_log2;
            let (mut offset, mut next) = (0, seq);
            for index in 0..Chunk::count(bytes) {
                let chunk = Chunk::of(bytes, index);
                prop_assert_eq!(chunk.offset, offset);
                prop_assert_eq!(chunk.seq(seq, segment), next);
                prop_assert!(chunk.bytes > 0 && chunk.bytes <= CHUNK_BYTES);
                offset += u64::from(chunk.bytes);
                next = next.wrapping_add(chunk.bytes.div_ceil(segment));
            }
            prop_assert_eq!(offset, bytes);
            prop_assert_eq!(u64::from(next.wrapping_sub(seq)), bytes.div_ceil(u64::from(segment)));
        }
    }

    #[test]
    fn a_descriptor_states_only_what_its_opcode_uses() {
        let out = |action, kind| crate::proto::Outgoing {
            op: crate::proto::OpId(0),
            cid: 7,
            action,
            kind,
            chunk: Chunk::of(100, 0),
            seq: 3,
            key: 9,
            interrupt: false,
        };
        let push = descriptor(&out(Action::PushWaive, Kind::Mean), 1, 4096, Some(5));
        assert_eq!((push.src, push.dst, push.crc), (4096, 0, 5));
        assert_eq!(push.flags, Flags::WAIVE.with(Flags::CRC));
        let pull = descriptor(&out(Action::Pull, Kind::Mean), 1, 4096, Some(5));
        assert_eq!(
            (pull.src, pull.dst, pull.crc, pull.flags),
            (0, 4096, 0, Flags::MEAN)
        );
        let both = descriptor(&out(Action::PushPull, Kind::Sum), 1, 4096, None);
        assert_eq!(
            (both.src, both.dst, both.flags, both.length),
            (4096, 4096, Flags::NONE, 100)
        );
    }
}
