// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A rack: tenants and workers on one card, driven by bare register writes so that a worker can also lie.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use phub_abi::regs::{self, *};
use phub_abi::{
    COMPLETION_BYTES, Completion, DESCRIPTOR_BYTES, Descriptor, Flags, Opcode, PAGE, Status,
};
use phub_pci::Memory;
use phub_pci::config::{COMMAND, COMMAND_MASTER, COMMAND_MEMORY};
use phub_sys::HugePages;

use crate::card::Card;

/// How long a test waits for anything before it calls it hung.
const DEADLINE: Duration = Duration::from_secs(60);
/// Bytes left between buffers, to catch a write that goes too far.
const GUARD: u64 = 64;

/// A card that is enabled, and what is taken of it.
pub struct Rack {
    /// The card.
    pub card: Card,
    next_queue: u32,
    next_tenant: u32,
    next_slot: u32,
}

/// A training job.
#[derive(Clone, Copy, Debug)]
pub struct Tenant {
    /// Its number.
    pub index: u32,
    /// World size.
    pub workers: u8,
    /// Incarnation.
    pub epoch: u32,
    /// First slot.
    pub slot_base: u32,
    /// log2 of its slots.
    pub slot_log2: u32,
}

/// What a worker's queue pair looks like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// log2 of the submission entries.
    pub sq_log2: u32,
    /// log2 of the completion entries.
    pub cq_log2: u32,
    /// Bytes for buffers.
    pub buffers: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            sq_log2: 6,
            cq_log2: 6,
            buffers: 1 << 20,
        }
    }
}

/// A piece of a worker's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Address for the card.
    pub iova: u64,
    /// Offset in the worker's memory.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// One worker: a queue pair and memory with rings and buffers.
pub struct Worker {
    card: Card,
    /// Its tenant, as it was when the worker joined or was told a new epoch.
    pub tenant: Tenant,
    /// Its rank.
    pub rank: u8,
    /// Its queue pair.
    pub queue: u32,
    /// Its memory: rings, then buffers.
    pub memory: Memory,
    /// Where the card sees that memory.
    pub iova: u64,
    shape: Shape,
    buffers_at: u64,
    next_buffer: u64,
    sq_tail: u32,
    cq_head: u32,
    phase: bool,
    next_cid: u16,
}

impl Rack {
    /// Enables the card.
    pub fn new(card: Card) -> Self {
        let rack = Self {
            card,
            next_queue: 0,
            next_tenant: 0,
            next_slot: 0,
        };
        rack.card
            .pci
            .config_write(COMMAND, &(COMMAND_MASTER | COMMAND_MEMORY).to_le_bytes())
            .unwrap();
        rack.card.set(Ctrl::default().with_enable(true));
        rack.card
            .until("ready", |card| card.get::<regs::Status>().ready());
        rack
    }

    /// Creates a tenant with `workers` ranks and `2^slot_log2` slots, in epoch 1.
    pub fn tenant(&mut self, workers: u8, slot_log2: u32) -> Tenant {
        let (index, slot_base) = (self.next_tenant, self.next_slot);
        self.next_tenant += 1;
        self.next_slot += 1 << slot_log2;
        let tenant = Tenant {
            index,
            workers,
            epoch: 1,
            slot_base,
            slot_log2,
        };
        let card = &self.card;
        card.set_at(
            index,
            TenantTableSlots::default()
                .with_base(slot_base)
                .with_log2(slot_log2),
        );
        card.set_at(index, TenantTableEpoch::default().with_value(tenant.epoch));
        card.set_at(
            index,
            TenantTableCtrl::default()
                .with_workers(workers.into())
                .with_enable(true),
        );
        tenant
    }

    /// Gives rank `rank` of a tenant a queue pair and memory.
    pub fn worker(&mut self, tenant: Tenant, rank: u8, shape: Shape) -> Worker {
        let queue = self.next_queue;
        self.next_queue += 1;
        Worker::new(self.card.clone(), tenant, rank, queue, shape)
    }

    /// All workers of a tenant.
    pub fn workers(&mut self, tenant: Tenant) -> Vec<Worker> {
        self.workers_with(tenant, Shape::default())
    }

    /// All workers of a tenant, with queue pairs of this shape.
    pub fn workers_with(&mut self, tenant: Tenant, shape: Shape) -> Vec<Worker> {
        (0..tenant.workers)
            .map(|rank| self.worker(tenant, rank, shape))
            .collect()
    }

    /// Command 1: aborts the tenant's epoch; returns the tenant in its new one.
    pub fn abort(&self, tenant: Tenant) -> Tenant {
        self.card.command(1, tenant.index);
        Tenant {
            epoch: self.card.get_at::<TenantTableEpoch>(tenant.index).value(),
            ..tenant
        }
    }

    /// The next entry of the error FIFO, as (code, queue).
    pub fn error(&self) -> Option<(u32, u32)> {
        let entry = self.card.get::<ErrorFifo>();
        entry.valid().then(|| (entry.code(), entry.queue()))
    }

    /// A 64-bit counter of a tenant; `L` is its low half.
    pub fn counter<L: Register>(&self, tenant: Tenant) -> u64 {
        self.card.counter(tenant.index, L::OFFSET)
    }

    /// Snapshot of a slot.
    pub fn slot(&self, slot: u32) -> SlotDump {
        let card = &self.card;
        card.set(DebugSlot::default().with_index(slot));
        card.until("slot snapshot", |card| card.get::<DebugState>().valid());
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        SlotDump {
            state: card.get(),
            seq: card.get::<DebugSeq>().value(),
            key: card.get::<DebugKey>().value(),
            bytes: card.get::<DebugBytes>().value(),
            joined: pair(
                card.get::<DebugJoinedLo>().value(),
                card.get::<DebugJoinedHi>().value(),
            ),
            contributed: pair(
                card.get::<DebugContributedLo>().value(),
                card.get::<DebugContributedHi>().value(),
            ),
            left: pair(
                card.get::<DebugLeftLo>().value(),
                card.get::<DebugLeftHi>().value(),
            ),
        }
    }
}

/// What the debug window shows of a slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotDump {
    /// Open, complete, fresh, tenant, world size.
    pub state: DebugState,
    /// Sequence number of the round.
    pub seq: u32,
    /// Key it was opened with.
    pub key: u32,
    /// Bytes of the segment.
    pub bytes: u32,
    /// Contributed or abstained.
    pub joined: u64,
    /// Contributed.
    pub contributed: u64,
    /// Pulled or waived.
    pub left: u64,
}

impl Card {
    /// Reads a register.
    pub fn get<R: Register>(&self) -> R {
        self.get_at(0)
    }

    /// Reads a register of a table.
    pub fn get_at<R: Register>(&self, index: u32) -> R {
        R::from_bits(self.pci.bar_read(R::OFFSET + index * R::STRIDE).unwrap())
    }

    /// Writes a register.
    pub fn set<R: Register>(&self, value: R) {
        self.set_at(0, value);
    }

    /// Writes a register of a table.
    pub fn set_at<R: Register>(&self, index: u32, value: R) {
        self.pci
            .bar_write(R::OFFSET + index * R::STRIDE, value.bits())
            .unwrap();
    }

    /// The 64-bit counter of a tenant whose low half is at `offset` for tenant 0.
    pub fn counter(&self, tenant: u32, offset: u32) -> u64 {
        let at = offset + tenant * CountersSegmentsInLo::STRIDE;
        let read = |at| u64::from(self.pci.bar_read(at).unwrap());
        read(at) | read(at + 4) << 32
    }

    /// Runs a command to its end; returns whether the card refused it.
    pub fn command(&self, op: u32, index: u32) -> bool {
        self.set(Cmd::default().with_op(op).with_index(index));
        self.until("command done", |card| !card.get::<CmdStatus>().busy());
        self.get::<CmdStatus>().refused()
    }

    /// Waits until something is so.
    ///
    /// # Panics
    /// After a minute.
    #[track_caller]
    pub fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(
                start.elapsed() < DEADLINE,
                "card hangs: not {what} after {DEADLINE:?}"
            );
            self.relax();
        }
    }

    /// Gives the card time to do what it would do by itself.
    pub fn settle(&self) {
        for _ in 0..200 {
            self.relax();
        }
    }
}

impl Worker {
    fn new(card: Card, tenant: Tenant, rank: u8, queue: u32, shape: Shape) -> Self {
        let sq_bytes = (DESCRIPTOR_BYTES as u64) << shape.sq_log2;
        let cq_at = sq_bytes.next_multiple_of(PAGE);
        let buffers_at =
            cq_at + ((COMPLETION_BYTES as u64) << shape.cq_log2).next_multiple_of(PAGE);
        let bytes = buffers_at + shape.buffers.next_multiple_of(PAGE);
        let memory = Memory::new(bytes, HugePages::No).unwrap();
        // Far apart, so that an address of one worker is never by chance one of another.
        let iova = u64::from(queue + 1) << 36;
        card.pci.dma_map(iova, &memory, 0, bytes).unwrap();
        let mut worker = Self {
            card,
            tenant,
            rank,
            queue,
            memory,
            iova,
            shape,
            buffers_at,
            next_buffer: buffers_at + GUARD,
            sq_tail: 0,
            cq_head: 0,
            phase: true,
            next_cid: 0x100 * (queue as u16 + 1),
        };
        let (low, high) = (|v: u64| v as u32, |v: u64| (v >> 32) as u32);
        let (cq, window, size) = (iova + cq_at, iova + buffers_at, bytes - buffers_at);
        let c = &worker.card;
        c.set_at(queue, QueueTableSqBaseLo::default().with_value(low(iova)));
        c.set_at(queue, QueueTableSqBaseHi::default().with_value(high(iova)));
        c.set_at(queue, QueueTableCqBaseLo::default().with_value(low(cq)));
        c.set_at(queue, QueueTableCqBaseHi::default().with_value(high(cq)));
        c.set_at(
            queue,
            QueueTableWinBaseLo::default().with_value(low(window)),
        );
        c.set_at(
            queue,
            QueueTableWinBaseHi::default().with_value(high(window)),
        );
        c.set_at(queue, QueueTableWinSizeLo::default().with_value(low(size)));
        c.set_at(queue, QueueTableWinSizeHi::default().with_value(high(size)));
        c.set_at(queue, QueueTableVector::default().with_value(queue + 1));
        worker.enable();
        worker
    }

    /// Sets `enable` of the queue pair; both rings begin anew.
    pub fn enable(&mut self) {
        (self.sq_tail, self.cq_head, self.phase) = (0, 0, true);
        let cq_at = self.cq_at();
        self.memory
            .write_at(cq_at, &vec![0; COMPLETION_BYTES << self.shape.cq_log2])
            .unwrap();
        self.card.set_at(self.queue, self.ctrl().with_enable(true));
    }

    /// Command 2 and clears `enable`.
    pub fn disable(&self) {
        assert!(
            !self.card.command(2, self.queue),
            "stopping queue {} was refused",
            self.queue
        );
        self.card.set_at(self.queue, self.ctrl());
    }

    fn ctrl(&self) -> QueueTableCtrl {
        QueueTableCtrl::default()
            .with_sq_log2(self.shape.sq_log2)
            .with_cq_log2(self.shape.cq_log2)
            .with_tenant(self.tenant.index)
            .with_worker(self.rank.into())
    }

    fn cq_at(&self) -> u64 {
        ((DESCRIPTOR_BYTES as u64) << self.shape.sq_log2).next_multiple_of(PAGE)
    }

    /// Takes `len` bytes of the memory for a buffer, behind a gap.
    pub fn buffer(&mut self, len: u32) -> Buffer {
        let offset = self.next_buffer;
        self.next_buffer += u64::from(len).next_multiple_of(GUARD) + GUARD;
        assert!(
            self.next_buffer <= self.memory.len(),
            "the worker's memory is too small for the test"
        );
        Buffer {
            iova: self.iova + offset,
            offset,
            len,
        }
    }

    /// A buffer with these FP32 bits.
    pub fn words(&mut self, words: &[u32]) -> Buffer {
        let buffer = self.buffer(4 * words.len() as u32);
        self.write(buffer, words);
        buffer
    }

    /// A buffer with these values.
    pub fn floats(&mut self, values: &[f32]) -> Buffer {
        self.words(&values.iter().map(|v| v.to_bits()).collect::<Vec<_>>())
    }

    /// Writes FP32 bits to the start of a buffer.
    pub fn write(&self, buffer: Buffer, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.memory.write_at(buffer.offset, &bytes).unwrap();
    }

    /// The FP32 bits in a buffer.
    pub fn read(&self, buffer: Buffer) -> Vec<u32> {
        let bytes = self.bytes(buffer.offset, buffer.len as usize);
        bytes
            .chunks_exact(4)
            .map(|w| u32::from_le_bytes(w.try_into().unwrap()))
            .collect()
    }

    /// The values in a buffer.
    pub fn read_floats(&self, buffer: Buffer) -> Vec<f32> {
        self.read(buffer).into_iter().map(f32::from_bits).collect()
    }

    /// Bytes of the memory.
    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_at(offset, &mut bytes).unwrap();
        bytes
    }

    /// Everything behind the rings.
    pub fn all_buffers(&self) -> Vec<u8> {
        self.bytes(
            self.buffers_at,
            (self.memory.len() - self.buffers_at) as usize,
        )
    }

    /// A descriptor of this worker in its epoch, with a `cid` of its own.
    pub fn descriptor(&mut self, opcode: Opcode, seq: u32, length: u32) -> Descriptor {
        self.next_cid = self.next_cid.wrapping_add(1);
        Descriptor {
            opcode: opcode as u8,
            flags: Flags::NONE,
            cid: self.next_cid,
            epoch: self.tenant.epoch,
            seq,
            key: 0x6b65_7900 ^ seq,
            src: 0,
            dst: 0,
            length,
            crc: 0,
            reserved: [0; 24],
        }
    }

    /// Contributes `src`.
    pub fn push(&mut self, seq: u32, src: Buffer) -> Descriptor {
        Descriptor {
            src: src.iova,
            ..self.descriptor(Opcode::Push, seq, src.len)
        }
    }

    /// Takes the result into `dst`.
    pub fn pull(&mut self, seq: u32, dst: Buffer) -> Descriptor {
        Descriptor {
            dst: dst.iova,
            ..self.descriptor(Opcode::Pull, seq, dst.len)
        }
    }

    /// Contributes `src` and takes the result into `dst`.
    pub fn push_pull(&mut self, seq: u32, src: Buffer, dst: Buffer) -> Descriptor {
        Descriptor {
            src: src.iova,
            dst: dst.iova,
            ..self.descriptor(Opcode::PushPull, seq, src.len)
        }
    }

    /// The card it is on.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// The bytes of an entry of the completion ring.
    pub fn raw_completion(&self, index: u64) -> [u8; COMPLETION_BYTES] {
        let mut entry = [0; COMPLETION_BYTES];
        self.memory
            .read_at(self.cq_at() + COMPLETION_BYTES as u64 * index, &mut entry)
            .unwrap();
        entry
    }

    /// Entries the submission ring can hold.
    pub fn sq_room(&self) -> usize {
        (1 << self.shape.sq_log2) - 1
    }

    /// Writes a descriptor into the ring; the card is not told.
    pub fn post(&mut self, descriptor: &Descriptor) {
        let at = DESCRIPTOR_BYTES as u64 * u64::from(self.sq_tail);
        self.memory.write_at(at, &descriptor.to_bytes()).unwrap();
        self.sq_tail = (self.sq_tail + 1) % (1 << self.shape.sq_log2);
    }

    /// Rings the submission doorbell.
    pub fn ring(&self) {
        self.card.set_at(
            self.queue,
            DoorbellsSqTail::default().with_value(self.sq_tail),
        );
    }

    /// Writes a descriptor and rings.
    pub fn submit(&mut self, descriptor: Descriptor) {
        self.post(&descriptor);
        self.ring();
    }

    /// The next completion if it is there; its entry is not given back yet.
    pub fn peek(&mut self) -> Option<Completion> {
        let at = self.cq_at() + COMPLETION_BYTES as u64 * u64::from(self.cq_head);
        // Acquire: the rest of the entry was written before the dword with the phase.
        let last = self
            .memory
            .load_u32(at + Completion::PHASE_OFFSET as u64, Ordering::Acquire)
            .unwrap();
        if (last & 1 == 1) != self.phase {
            return None;
        }
        let completion =
            Completion::from_bytes(&self.bytes(at, COMPLETION_BYTES).try_into().unwrap());
        self.cq_head = (self.cq_head + 1) % (1 << self.shape.cq_log2);
        self.phase ^= self.cq_head == 0;
        Some(completion)
    }

    /// Gives entries read so far back to the card.
    pub fn ring_cq(&self) {
        self.card.set_at(
            self.queue,
            DoorbellsCqHead::default().with_value(self.cq_head),
        );
    }

    /// The next completion if it is there.
    pub fn poll(&mut self) -> Option<Completion> {
        let completion = self.peek();
        if completion.is_some() {
            self.ring_cq();
        }
        completion
    }

    /// The next completion.
    ///
    /// # Panics
    /// If none comes within a minute.
    #[track_caller]
    pub fn wait(&mut self) -> Completion {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.poll() {
                return completion;
            }
            assert!(
                start.elapsed() < DEADLINE,
                "no completion for worker {} of tenant {} after {DEADLINE:?}; {:?}",
                self.rank,
                self.tenant.index,
                self.card.get_at::<QueueTableStatus>(self.queue)
            );
            self.card.relax();
        }
    }

    /// The next completion, which must have this status.
    #[track_caller]
    pub fn wait_for(&mut self, status: Status) -> Completion {
        let completion = self.wait();
        assert_eq!(
            Status::from_code(completion.status),
            Some(status),
            "{completion:#x?}"
        );
        completion
    }

    /// Submits one descriptor and waits for its completion, which must have this status.
    #[track_caller]
    pub fn expect(&mut self, descriptor: Descriptor, status: Status) -> Completion {
        self.submit(descriptor);
        let completion = self.wait_for(status);
        assert_eq!(completion.cid, descriptor.cid);
        completion
    }
}
