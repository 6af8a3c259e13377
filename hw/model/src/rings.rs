// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Queue pairs: ring pointers, the checks of a descriptor, and the completions.

use std::collections::VecDeque;

use phub_abi::{
    BUFFER_ALIGN, COMPLETION_BYTES, Completion, CompletionFlags, DESCRIPTOR_BYTES, Descriptor,
    Flags, LENGTH_MAX, Opcode, RING_LOG2, Status,
};

use crate::Params;

/// Why a queue stopped (`err_e` in the RTL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QueueError {
    /// Doorbell value outside the ring, or head past tail.
    Doorbell = 1,
    /// The submission ring cannot be read.
    SqRead = 2,
    /// The completion ring cannot be written.
    CqWrite = 3,
    /// Enabled with a size, tenant or worker out of range.
    QueueConfig = 4,
}

/// What the driver wrote into the queue table.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueConfig {
    /// The queue may work.
    pub enable: bool,
    /// log2 of the submission entries.
    pub sq_log2: u8,
    /// log2 of the completion entries.
    pub cq_log2: u8,
    /// Tenant the queue speaks for.
    pub tenant: u8,
    /// Worker the queue speaks for.
    pub worker: u8,
    /// Interrupt vector.
    pub vector: u8,
    /// IOVA of the submission ring.
    pub sq_base: u64,
    /// IOVA of the completion ring.
    pub cq_base: u64,
    /// First IOVA a descriptor may name.
    pub win_base: u64,
    /// Bytes from there.
    pub win_size: u64,
}

impl QueueConfig {
    /// Whether a card of this size can run it.
    pub fn fits(&self, params: &Params) -> bool {
        RING_LOG2.contains(&self.sq_log2)
            && RING_LOG2.contains(&self.cq_log2)
            && u32::from(self.tenant) < params.tenants
            && u32::from(self.worker) < params.workers
            && u32::from(self.vector) < params.vectors()
    }

    /// The checks that need the descriptor and the queue alone, in order.
    pub fn check(&self, desc: &Descriptor) -> Status {
        let Some(opcode) = Opcode::from_code(desc.opcode) else {
            return Status::BadOpcode;
        };
        let (pays, takes) = (opcode != Opcode::Pull, opcode != Opcode::Push);
        if !Flags::KNOWN.contains(desc.flags)
            || (desc.flags.contains(Flags::WAIVE) && opcode != Opcode::Push)
            || (desc.flags.contains(Flags::CRC) && !pays)
            || desc.reserved != [0; 24]
            || (!pays && desc.src != 0)
            || (!takes && desc.dst != 0)
        {
            return Status::BadOpcode;
        }
        if desc.length == 0 || !desc.length.is_multiple_of(4) || desc.length > LENGTH_MAX {
            return Status::BadLength;
        }
        let buffers = [pays.then_some(desc.src), takes.then_some(desc.dst)];
        if buffers
            .iter()
            .flatten()
            .any(|b| !b.is_multiple_of(BUFFER_ALIGN))
        {
            return Status::BadAlign;
        }
        if buffers
            .iter()
            .flatten()
            .any(|b| !self.in_window(*b, desc.length))
        {
            return Status::OutOfWindow;
        }
        Status::Ok
    }

    fn in_window(&self, address: u64, length: u32) -> bool {
        // 128 bits, so that nothing can wrap.
        let (from, to) = (
            u128::from(self.win_base),
            u128::from(self.win_base) + u128::from(self.win_size),
        );
        (from..to).contains(&address.into()) && u128::from(address) + u128::from(length) <= to
    }
}

/// A descriptor the card has taken from its ring and not yet answered.
#[derive(Clone, Debug)]
pub struct Held {
    /// As it was read.
    pub desc: Descriptor,
    /// Submission entries before this one may be reused once it is answered.
    pub sq_head: u16,
    /// First error of it, or `Ok`.
    pub status: Status,
    /// Sequence number the status is about.
    pub failed_seq: u32,
    /// Segments there are.
    pub segments: u32,
    /// Segments that have joined, or were refused.
    pub joined: u32,
    /// Segments whose result is in host memory.
    pub written: u32,
    /// The next segment has been counted as waiting for its slot.
    pub waited: bool,
    /// CRC-32 of the payload read so far.
    pub payload_crc: crc32fast::Hasher,
    /// CRC-32 of the result written so far.
    pub result_crc: crc32fast::Hasher,
    /// The result has a NaN or an infinity.
    pub non_finite: bool,
    /// Some of the result could not be written.
    pub unwritable: bool,
    /// Contributors of the last segment written, or of the segment an abort found it waiting for.
    pub contributors: u64,
}

impl Held {
    /// A descriptor fresh from the ring, judged by `status`.
    pub fn new(desc: Descriptor, sq_head: u16, status: Status, seg_bytes: u32) -> Self {
        let segments = if status == Status::Ok {
            desc.length.div_ceil(seg_bytes)
        } else {
            0
        };
        Self {
            desc,
            sq_head,
            status,
            failed_seq: desc.seq,
            segments,
            joined: 0,
            written: 0,
            waited: false,
            payload_crc: crc32fast::Hasher::new(),
            result_crc: crc32fast::Hasher::new(),
            non_finite: false,
            unwritable: false,
            contributors: 0,
        }
    }

    /// Whether it brings a payload.
    pub fn pays(&self) -> bool {
        self.desc.opcode != Opcode::Pull as u8
    }

    /// Whether it takes a result.
    pub fn takes(&self) -> bool {
        self.desc.opcode != Opcode::Push as u8
    }

    /// Sequence number of segment `index`.
    pub fn seq(&self, index: u32) -> u32 {
        self.desc.seq.wrapping_add(index)
    }

    /// Offset and bytes of segment `index` in the buffers.
    pub fn piece(&self, index: u32, seg_bytes: u32) -> (u64, u32) {
        let offset = index * seg_bytes;
        (offset.into(), seg_bytes.min(self.desc.length - offset))
    }

    /// Notes an error of the segment with this sequence number; the first stands.
    pub fn fail(&mut self, status: Status, seq: u32) {
        if self.status == Status::Ok {
            (self.status, self.failed_seq) = (status, seq);
        }
    }

    /// What is reported of it, with no place in a ring yet.
    pub fn completion(&self, queue: u16, epoch: u32, now: u64, seg_bytes: u32) -> Completion {
        let ok = self.status == Status::Ok;
        let flags = self.desc.flags;
        let result = ok && self.takes();
        let mut remarks = CompletionFlags::default();
        for (set, flag) in [
            (result && self.non_finite, CompletionFlags::NON_FINITE),
            (result && flags.contains(Flags::MEAN), CompletionFlags::MEAN),
            (
                ok && flags.contains(Flags::CRC),
                CompletionFlags::CRC_CHECKED,
            ),
        ] {
            remarks.0 |= if set { flag.0 } else { 0 };
        }
        let contributors = if result || self.status == Status::Aborted {
            self.contributors
        } else {
            0
        };
        Completion {
            cid: self.desc.cid,
            status: self.status.code(),
            flags: remarks,
            bytes: if ok {
                self.desc.length
            } else {
                self.desc.length.min(self.written * seg_bytes)
            },
            epoch,
            crc: if result {
                self.result_crc.clone().finalize()
            } else {
                0
            },
            contributors,
            timestamp: now,
            seq: if ok {
                self.seq(self.segments - 1)
            } else {
                self.failed_seq
            },
            count: contributors.count_ones() as u16,
            sq_head: self.sq_head,
            queue,
            phase: false,
        }
    }
}

/// One queue pair.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Its entry of the queue table.
    pub config: QueueConfig,
    /// Why it stopped, if it did.
    pub error: Option<QueueError>,
    /// Next submission entry to fetch.
    pub sq_head: u16,
    /// Next submission entry the host will write.
    pub sq_tail: u16,
    /// Next completion entry the host will read.
    pub cq_head: u16,
    /// Next completion entry to write.
    pub cq_tail: u16,
    /// Phase bit of that entry.
    pub phase: bool,
    /// Taken and not yet answered, oldest first.
    pub held: VecDeque<Held>,
}

impl Queue {
    /// Begins anew, as when the driver sets `enable`.
    pub fn start(&mut self) {
        *self = Self {
            config: self.config,
            phase: true,
            ..Self::default()
        };
    }

    /// Whether a descriptor may be taken from the ring: there is one, room for it, and room for its completion.
    pub fn may_fetch(&self, params: &Params) -> bool {
        let mask = (1 << self.config.cq_log2) - 1;
        let unread = usize::from(self.cq_tail.wrapping_sub(self.cq_head) & mask);
        self.config.enable
            && self.error.is_none()
            && self.sq_head != self.sq_tail
            && self.held.len() < params.desc_depth as usize
            && unread + self.held.len() < usize::from(mask)
    }

    /// IOVA of the submission entry to fetch.
    pub fn fetch_iova(&self) -> u64 {
        self.config
            .sq_base
            .wrapping_add(u64::from(self.sq_head) * DESCRIPTOR_BYTES as u64)
    }

    /// Takes that entry off the ring; returns the index of the next.
    pub fn advance_sq(&mut self) -> u16 {
        self.sq_head = (self.sq_head + 1) & ((1 << self.config.sq_log2) - 1);
        self.sq_head
    }

    /// Gives a completion the next place in the ring.
    pub fn place(&mut self, completion: &mut Completion) -> u64 {
        completion.phase = self.phase;
        let iova = self
            .config
            .cq_base
            .wrapping_add(u64::from(self.cq_tail) * COMPLETION_BYTES as u64);
        self.cq_tail = (self.cq_tail + 1) & ((1 << self.config.cq_log2) - 1);
        self.phase ^= self.cq_tail == 0;
        iova
    }

    /// The host's submission doorbell.
    pub fn ring_sq(&mut self, tail: u16) -> Result<(), QueueError> {
        if tail >> self.config.sq_log2 != 0 {
            return Err(QueueError::Doorbell);
        }
        self.sq_tail = tail;
        Ok(())
    }

    /// The host's completion doorbell.
    pub fn ring_cq(&mut self, head: u16) -> Result<(), QueueError> {
        let mask = (1 << self.config.cq_log2) - 1;
        let distance = |to: u16| to.wrapping_sub(self.cq_head) & mask;
        if head >> self.config.cq_log2 != 0 || distance(head) > distance(self.cq_tail) {
            return Err(QueueError::Doorbell);
        }
        self.cq_head = head;
        Ok(())
    }
}
