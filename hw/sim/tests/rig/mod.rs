// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The least that drives a card: one tenant, one queue a worker, one piece of memory. No driver crate: it and the
//! simulator do not know each other.
#![allow(dead_code, unreachable_pub)]

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::atomic::Ordering,
};

use phub_abi::{
    Completion, Descriptor, Flags, Opcode,
    regs::{
        Ctrl, DoorbellsCqHead, DoorbellsSqTail, QueueTableCqBaseHi, QueueTableCqBaseLo,
        QueueTableCtrl, QueueTableSqBaseHi, QueueTableSqBaseLo, QueueTableVector,
        QueueTableWinBaseHi, QueueTableWinBaseLo, QueueTableWinSizeHi, QueueTableWinSizeLo, Status,
        TenantTableCtrl, TenantTableEpoch, TenantTableSlots,
    },
};
use phub_pci::{Memory, PciFunction, RegisterIoExt, config};
use phub_sys::HugePages;

/// log2 of the entries of each ring.
pub const RING_LOG2: u32 = 4;
const RING: u32 = 1 << RING_LOG2;
const IOVA: u64 = 0x1000_0000;
const RINGS: u64 = 0x2000;

/// A card with one tenant, set up and running.
pub struct Rig<'a> {
    pub card: &'a dyn PciFunction,
    pub memory: Memory,
    pub eventfds: Vec<OwnedFd>,
    workers: u32,
    buffer: u64,
    tails: Vec<u32>,
    heads: Vec<u32>,
}

impl<'a> Rig<'a> {
    /// Sets up `workers` workers with `slots_log2` slots, each with a buffer of `buffer` bytes.
    pub fn new(card: &'a dyn PciFunction, workers: u32, slots_log2: u32, buffer: u64) -> Self {
        let buffer = buffer.next_multiple_of(4096);
        let stride = RINGS + 2 * buffer;
        let memory = Memory::new(u64::from(workers) * stride, HugePages::No).unwrap();
        let master = config::COMMAND_MASTER | config::COMMAND_MEMORY;
        card.config_write(config::COMMAND, &master.to_le_bytes())
            .unwrap();
        card.dma_map(IOVA, &memory, 0, memory.len()).unwrap();
        let eventfds: Vec<_> = (0..=workers).map(|_| eventfd()).collect();
        let fds: Vec<_> = eventfds.iter().map(AsFd::as_fd).collect();
        card.set_interrupts(&fds).unwrap();

        card.set(Ctrl::default().with_enable(true)).unwrap();
        wait(card, "ready", || card.get::<Status>().unwrap().ready());
        card.set_at(0, TenantTableSlots::default().with_log2(slots_log2))
            .unwrap();
        card.set_at(0, TenantTableEpoch::default().with_value(1))
            .unwrap();
        card.set_at(
            0,
            TenantTableCtrl::default()
                .with_workers(workers)
                .with_enable(true),
        )
        .unwrap();
        for q in 0..workers {
            let base = (IOVA + u64::from(q) * stride) as u32;
            card.set_at(q, QueueTableSqBaseLo::default().with_value(base))
                .unwrap();
            card.set_at(q, QueueTableCqBaseLo::default().with_value(base + 0x1000))
                .unwrap();
            card.set_at(q, QueueTableWinBaseLo::default().with_value(base))
                .unwrap();
            card.set_at(q, QueueTableWinSizeLo::default().with_value(stride as u32))
                .unwrap();
            // The tables are RAM: what is not written is not zero.
            card.set_at(q, QueueTableSqBaseHi::default()).unwrap();
            card.set_at(q, QueueTableCqBaseHi::default()).unwrap();
            card.set_at(q, QueueTableWinBaseHi::default()).unwrap();
            card.set_at(q, QueueTableWinSizeHi::default()).unwrap();
            card.set_at(q, QueueTableVector::default().with_value(q + 1))
                .unwrap();
            let ctrl = QueueTableCtrl::default()
                .with_sq_log2(RING_LOG2)
                .with_cq_log2(RING_LOG2);
            card.set_at(q, ctrl.with_worker(q).with_enable(true))
                .unwrap();
        }
        let zero = vec![0; workers as usize];
        Self {
            card,
            memory,
            eventfds,
            workers,
            buffer,
            tails: zero.clone(),
            heads: zero,
        }
    }

    fn at(&self, worker: u32) -> u64 {
        u64::from(worker) * (RINGS + 2 * self.buffer)
    }

    /// Offset in the memory of a worker's source buffer.
    pub fn src(&self, worker: u32) -> u64 {
        self.at(worker) + RINGS
    }

    /// Offset in the memory of a worker's destination buffer.
    pub fn dst(&self, worker: u32) -> u64 {
        self.src(worker) + self.buffer
    }

    /// Puts a PUSH_PULL of the first `bytes` of a worker's buffer into its ring.
    pub fn push_pull(&mut self, worker: u32, seq: u32, bytes: u32) {
        let descriptor = Descriptor {
            opcode: Opcode::PushPull as u8,
            flags: Flags::IRQ,
            cid: self.tails[worker as usize] as u16,
            epoch: 1,
            seq,
            key: 7,
            src: IOVA + self.src(worker),
            dst: IOVA + self.dst(worker),
            length: bytes,
            crc: 0,
            reserved: [0; 24],
        };
        let tail = &mut self.tails[worker as usize];
        let entry = u64::from(worker) * (RINGS + 2 * self.buffer) + 64 * u64::from(*tail % RING);
        self.memory.write_at(entry, &descriptor.to_bytes()).unwrap();
        *tail = (*tail + 1) % RING;
    }

    /// Tells the card of the entries put since the last call.
    pub fn ring(&self, worker: u32) {
        let tail = self.tails[worker as usize];
        self.card
            .set_at(worker, DoorbellsSqTail::default().with_value(tail))
            .unwrap();
    }

    /// The next completion, if it is there.
    pub fn completion(&mut self, worker: u32) -> Option<Completion> {
        let head = self.heads[worker as usize];
        let entry = self.at(worker) + 0x1000 + 64 * u64::from(head % RING);
        let phase = entry + Completion::PHASE_OFFSET as u64;
        let seen = self.memory.load_u32(phase, Ordering::Acquire).unwrap() & 1 != 0;
        if seen == (head / RING % 2 == 1) {
            return None;
        }
        let mut bytes = [0; 64];
        self.memory.read_at(entry, &mut bytes).unwrap();
        let head = (head + 1) % (2 * RING);
        self.heads[worker as usize] = head;
        self.card
            .set_at(worker, DoorbellsCqHead::default().with_value(head % RING))
            .unwrap();
        Some(Completion::from_bytes(&bytes))
    }

    /// Waits for the next completion of a worker.
    pub fn wait(&mut self, worker: u32) -> Completion {
        let card = self.card;
        let mut completion = None;
        wait(card, "a completion", || {
            completion = self.completion(worker);
            completion.is_some()
        });
        completion.unwrap()
    }

    /// Fills a worker's source buffer: element `i` is `f(i)`.
    pub fn fill(&self, worker: u32, bytes: u32, f: impl Fn(u32) -> f32) {
        let data: Vec<u8> = (0..bytes / 4).flat_map(|i| f(i).to_le_bytes()).collect();
        self.memory.write_at(self.src(worker), &data).unwrap();
    }

    /// A worker's destination buffer.
    pub fn result(&self, worker: u32, bytes: u32) -> Vec<f32> {
        let mut data = vec![0; bytes as usize];
        self.memory.read_at(self.dst(worker), &mut data).unwrap();
        data.chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect()
    }

    /// One PUSH_PULL by all workers, of `bytes` starting at segment `seq`; returns what each got.
    pub fn round(&mut self, seq: u32, bytes: u32) -> Vec<Completion> {
        for worker in 0..self.workers {
            self.push_pull(worker, seq, bytes);
            self.ring(worker);
        }
        (0..self.workers).map(|worker| self.wait(worker)).collect()
    }
}

/// Runs the card until `done`, for a bounded number of slices.
pub fn wait(card: &dyn PciFunction, what: &str, mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed().as_secs() < 30, "{what}: not within 30 s");
        card.relax();
    }
}

fn eventfd() -> OwnedFd {
    use rustix::event::EventfdFlags;
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Takes the count of an eventfd.
pub fn count(fd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(fd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}
