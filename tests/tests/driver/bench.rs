// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A device on a golden card behind a fault layer, and workers with rings on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use phub_abi::{Completion, Descriptor, Flags, Opcode, Status};
use phub_driver::ring::{CompletionQueue, SubmissionQueue};
use phub_driver::{Device, Options, Queue, QueueConfig, Result, Tenant, TenantConfig, TenantId};
use phub_model::{GoldenCard, Params};
use phub_sys::{EventFd, HugePages, Memory};
use phub_tests::fault::FaultCard;

/// How long the driver waits for a card that hangs.
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);
/// Where a worker's buffers begin.
pub(crate) const BUFFERS: u64 = 0x4000;
/// Bytes of a worker's memory.
pub(crate) const ARENA: u64 = 0x1_0000;

pub(crate) fn golden(params: Params) -> Arc<FaultCard> {
    FaultCard::new(Arc::new(GoldenCard::new(params)))
}

pub(crate) fn open(card: &Arc<FaultCard>) -> Result<Device> {
    open_within(card, DEADLINE)
}

pub(crate) fn open_within(card: &Arc<FaultCard>, deadline: Duration) -> Result<Device> {
    Device::with_options(card.clone(), Options { deadline })
}

pub(crate) fn device() -> (Arc<FaultCard>, Device) {
    let card = golden(Params::default());
    let device = open(&card).unwrap();
    (card, device)
}

pub(crate) fn tenant(device: &Device, workers: u32) -> Tenant {
    device
        .create_tenant(TenantConfig {
            workers,
            slots_log2: 4,
            token: 7,
        })
        .unwrap()
}

pub(crate) fn config(tenant: TenantId, worker: u32, event: Option<EventFd>) -> QueueConfig {
    QueueConfig {
        tenant,
        worker,
        memory: Memory::new(ARENA, HugePages::No).unwrap(),
        sq_offset: 0x1000,
        sq_log2: 2,
        cq_offset: 0x2000,
        cq_log2: 2,
        event,
    }
}

/// A queue pair and both halves of its rings.
pub(crate) struct Worker {
    pub(crate) queue: Queue,
    pub(crate) sq: SubmissionQueue,
    pub(crate) cq: CompletionQueue,
    pub(crate) memory: Memory,
    pub(crate) event: EventFd,
    pub(crate) epoch: u32,
}

impl Worker {
    pub(crate) fn join(device: &Device, tenant: &Tenant, worker: u32) -> Result<Self> {
        let event = EventFd::new().unwrap();
        let config = config(tenant.id, worker, Some(event.try_clone().unwrap()));
        let memory = config.memory.clone();
        let sq = SubmissionQueue::new(&memory, config.sq_offset, config.sq_log2).unwrap();
        let cq = CompletionQueue::new(&memory, config.cq_offset, config.cq_log2).unwrap();
        let queue = device.create_queue(config)?;
        Ok(Self {
            queue,
            sq,
            cq,
            memory,
            event,
            epoch: tenant.epoch,
        })
    }

    /// A PUSH_PULL in place of 64 bytes.
    pub(crate) fn push_pull(&self, seq: u32) -> Descriptor {
        let at = self.queue.iova() + BUFFERS;
        Descriptor {
            opcode: Opcode::PushPull as u8,
            flags: Flags::IRQ,
            cid: seq as u16,
            epoch: self.epoch,
            seq,
            key: 1,
            src: at,
            dst: at,
            length: 64,
            crc: 0,
            reserved: [0; 24],
        }
    }

    pub(crate) fn submit(&mut self, values: f32, seq: u32) -> Result<()> {
        self.memory.write_f32(BUFFERS, &[values; 16]).unwrap();
        let tail = self.sq.push(&self.push_pull(seq)).unwrap();
        self.queue.ring_sq(tail)
    }

    /// The next completion, within a second.
    pub(crate) fn completion(&mut self) -> Completion {
        let end = Instant::now() + Duration::from_secs(1);
        loop {
            if let Some(completion) = self.cq.pop() {
                self.sq.set_head(completion.sq_head).unwrap();
                self.queue.ring_cq(self.cq.head()).unwrap();
                return completion;
            }
            assert!(
                Instant::now() < end,
                "no completion: {:?}",
                self.queue.state()
            );
            std::thread::yield_now();
        }
    }

    /// Values of the result, which the card says is good.
    pub(crate) fn result(&mut self) -> [f32; 16] {
        let completion = self.completion();
        assert_eq!(
            Status::from_code(completion.status),
            Some(Status::Ok),
            "{completion:?}"
        );
        let mut values = [0.0; 16];
        self.memory.read_f32(BUFFERS, &mut values).unwrap();
        values
    }
}

/// Runs `f`, which must not take long whatever the card does.
pub(crate) fn bounded<T>(f: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = f();
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "took {:?}",
        start.elapsed()
    );
    result
}

/// Whether this process still has a mapping of that memory, by inode.
pub(crate) fn is_mapped(inode: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .any(|line| line.split_whitespace().nth(4) == Some(&inode.to_string()))
}

pub(crate) fn inode(memory: &Memory) -> u64 {
    rustix::fs::fstat(memory.fd()).unwrap().st_ino
}
