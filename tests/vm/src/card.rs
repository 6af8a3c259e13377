// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The driver alone on a card: what the IOMMU keeps from it, resets, many mappings.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use phub_abi::regs::{
    self, QueueTableWinBaseHi, QueueTableWinBaseLo, QueueTableWinSizeHi, QueueTableWinSizeLo,
};
use phub_abi::{Completion, Descriptor, Flags, Opcode, Status};
use phub_driver::ring::{CompletionQueue, SubmissionQueue};
use phub_driver::{Device, Queue, QueueConfig, Tenant, TenantConfig, connect};
use phub_pci::{PciFunction, RegisterIoExt};
use phub_sys::{EventFd, HugePages, Memory};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::guest::{PATIENCE, card};

/// Where a worker's numbers lie in its memory.
const BUFFER: u64 = 0x2000;
/// Address of memory that is mapped for some time.
const EXTRA: u64 = 0x70_0000_0000;

/// A tenant's only worker.
struct Worker {
    queue: Queue,
    tenant: Tenant,
    memory: Memory,
    submissions: SubmissionQueue,
    completions: CompletionQueue,
    done: EventFd,
    seq: u32,
}

impl Worker {
    fn new(device: &Device) -> Result<Self> {
        let config = TenantConfig {
            workers: 1,
            slots_log2: 4,
            token: 0,
        };
        let tenant = device.create_tenant(config)?;
        let memory = Memory::new(0x4000, HugePages::No)?;
        let done = EventFd::new()?;
        let queue = device.create_queue(QueueConfig {
            tenant: tenant.id,
            worker: 0,
            memory: memory.clone(),
            sq_offset: 0,
            sq_log2: 4,
            cq_offset: 0x1000,
            cq_log2: 4,
            event: Some(done.try_clone()?),
        })?;
        Ok(Self {
            submissions: SubmissionQueue::new(&memory, 0, 4)?,
            completions: CompletionQueue::new(&memory, 0x1000, 4)?,
            queue,
            tenant,
            memory,
            done,
            seq: 0,
        })
    }

    fn submit(&mut self, at: u64) -> Result<()> {
        let mut descriptor = Descriptor::from_bytes(&[0; 64]);
        descriptor.opcode = Opcode::PushPull as u8;
        descriptor.flags = Flags::IRQ;
        descriptor.epoch = self.tenant.epoch;
        descriptor.seq = self.seq;
        descriptor.src = at;
        descriptor.dst = at;
        descriptor.length = 1024;
        self.seq = self.seq.wrapping_add(1);
        Ok(self.queue.ring_sq(self.submissions.push(&descriptor)?)?)
    }

    /// The next completion, by its interrupt.
    fn completion(&mut self) -> Result<Completion> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(completion) = self.completions.pop() {
                self.submissions.set_head(completion.sq_head)?;
                self.queue.ring_cq(self.completions.head())?;
                return Ok(completion);
            }
            ensure!(Instant::now() < deadline, "no completion");
            self.done
                .wait(deadline.saturating_duration_since(Instant::now()))?;
        }
    }

    /// Sends numbers at `at` through the card; how that ended.
    fn exchange(&mut self, at: u64) -> Result<Status> {
        self.submit(at)?;
        let status = self.completion()?.status;
        Status::from_code(status).with_context(|| format!("status {status}"))
    }

    /// Numbers of its own memory go through and come back.
    fn works(&mut self) -> Result<()> {
        let value = self.seq as f32 + 0.5;
        self.memory.write_f32(BUFFER, &[value; 256])?;
        let status = self.exchange(self.queue.iova() + BUFFER)?;
        let mut back = [0.0; 256];
        self.memory.read_f32(BUFFER, &mut back)?;
        ensure!(
            status == Status::Ok && back == [value; 256],
            "{status:?} {}",
            back[0]
        );
        Ok(())
    }
}

/// The card's own window would not let a worker name foreign memory. Here it is opened on purpose: then the IOMMU stops the card, the
/// descriptor fails, and nobody else notices.
pub(crate) fn containment() -> Result<()> {
    let pci: Arc<dyn PciFunction> = connect(&card()?.to_string().parse()?)?;
    let device = Device::new(pci.clone())?;
    let (mut bad, mut good) = (Worker::new(&device)?, Worker::new(&device)?);
    bad.works()?;
    ensure!(bad.exchange(EXTRA)? == Status::OutOfWindow);
    let queue = bad.queue.index();
    pci.set_at(queue, QueueTableWinBaseLo::default().with_value(0))?;
    pci.set_at(queue, QueueTableWinBaseHi::default().with_value(0))?;
    pci.set_at(queue, QueueTableWinSizeLo::default().with_value(0))?;
    pci.set_at(queue, QueueTableWinSizeHi::default().with_value(1 << 15))?;
    for round in 0..3 {
        ensure!(bad.exchange(EXTRA)? == Status::ReadError, "never mapped");
        bad = restart(bad, &device)?;
        good.works()?;
        let memory = Memory::new(4096, HugePages::No)?;
        pci.dma_map(EXTRA, &memory, 0, 4096)?;
        ensure!(bad.exchange(EXTRA)? == Status::Ok, "mapped, round {round}");
        pci.dma_unmap(EXTRA, 4096)?;
        ensure!(
            bad.exchange(EXTRA)? == Status::ReadError,
            "not mapped any more"
        );
        bad = restart(bad, &device)?;
        good.works()?;
    }
    // A ring that is not there stops its own queue.
    let lost = Worker::new(&device)?;
    pci.dma_unmap(lost.queue.iova(), lost.memory.len())?;
    let mut lost = lost;
    lost.submit(lost.queue.iova() + BUFFER)?;
    let start = Instant::now();
    while lost.queue.state()?.error.is_none() {
        ensure!(
            start.elapsed() < PATIENCE,
            "the queue goes on without its ring"
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let errors = device.take_errors()?;
    ensure!(
        errors.iter().any(|error| error.queue == lost.queue.index()),
        "{errors:?}"
    );
    good.works()
}

/// After a failed segment the chunk cannot complete: the tenant is aborted, and goes on in its next epoch.
fn restart(mut worker: Worker, device: &Device) -> Result<Worker> {
    worker.tenant.epoch = device.abort_tenant(worker.tenant.id)?;
    Ok(worker)
}

/// A reset takes everything from the card at once, also in the middle of its work; opened anew, it works.
pub(crate) fn reset_in_traffic() -> Result<()> {
    let address = card()?.to_string().parse()?;
    for _ in 0..5 {
        let pci: Arc<dyn PciFunction> = connect(&address)?;
        let device = Device::new(pci.clone())?;
        let mut worker = Worker::new(&device)?;
        worker.works()?;
        for _ in 0..12 {
            worker.submit(worker.queue.iova() + BUFFER)?;
        }
        pci.reset()?;
        ensure!(
            !pci.get::<regs::Status>()?.ready(),
            "a card that was reset is not enabled"
        );
    }
    let device = Device::open(&address)?;
    Worker::new(&device)?.works()
}

/// Mappings come and go in any order, next to each other and apart.
pub(crate) fn a_gigabyte_of_mappings() -> Result<()> {
    const EACH: u64 = 8 << 20;
    const COUNT: u64 = 128;
    let seed = 4;
    println!("PHUB_SEED={seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let pci: Arc<dyn PciFunction> = connect(&card()?.to_string().parse()?)?;
    let device = Device::new(pci.clone())?;
    let mut worker = Worker::new(&device)?;
    let memory = Memory::new(EACH * COUNT, HugePages::No)?;
    let mut pieces: Vec<u64> = (0..COUNT).collect();
    pieces.shuffle(&mut rng);
    for piece in &pieces {
        let iova = EXTRA + piece * EACH;
        pci.dma_map(iova, &memory, piece * EACH, EACH)?;
        ensure!(pci.dma_map(iova, &memory, 0, EACH).is_err(), "mapped twice");
    }
    worker.works()?;
    pieces.shuffle(&mut rng);
    for (n, piece) in pieces.iter().enumerate() {
        pci.dma_unmap(EXTRA + piece * EACH, EACH)?;
        if n % 16 == rng.random_range(0..16) {
            worker.works()?;
        }
    }
    worker.works()
}
