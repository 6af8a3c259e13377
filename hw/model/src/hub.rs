// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The hub: what the card does with its queues, one step at a time, until nothing can move.

use std::collections::VecDeque;

use phub_abi::{DESCRIPTOR_BYTES, Descriptor, Flags, Status};

use crate::order::{Contribution, Order};
use crate::rings::{Held, Queue, QueueConfig, QueueError};
use crate::slots::{Join, Joined, Look, Slots};
use crate::{Params, arith};

/// Host memory as the card sees it.
pub trait Host {
    /// Fills `data` from `iova`; `false` if any of it is not the card's to read.
    fn read(&self, iova: u64, data: &mut [u8]) -> bool;
    /// Writes `data` to `iova`; `false` if any of it is not the card's to write.
    fn write(&self, iova: u64, data: &[u8]) -> bool;
}

/// What the driver wrote into the tenant table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tenant {
    /// The tenant exists.
    pub enable: bool,
    /// World size.
    pub workers: u8,
    /// First slot.
    pub slot_base: u16,
    /// log2 of the number of slots.
    pub slot_log2: u8,
    /// Incarnation.
    pub epoch: u32,
    /// Secret of the tenant; workers on rings need none.
    pub token: u64,
}

impl Tenant {
    /// Whether it may work on a card of this size.
    pub fn on(&self, params: &Params) -> bool {
        self.enable
            && (1..=params.workers).contains(&self.workers.into())
            && u64::from(self.slot_base) + (1u64 << self.slot_log2) <= u64::from(params.slots)
    }

    /// The slot of a sequence number.
    pub fn slot(&self, seq: u32) -> usize {
        let offset = u64::from(seq) & ((1u64 << self.slot_log2) - 1);
        usize::from(self.slot_base) + offset as usize
    }

    fn slots(&self) -> std::ops::Range<usize> {
        let base = usize::from(self.slot_base);
        base..base + (1 << self.slot_log2)
    }
}

/// Counters of a tenant, in the order of `counter_e` in the RTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Contributions added.
    SegmentsIn,
    /// Bytes of them.
    BytesIn,
    /// Result segments written.
    SegmentsOut,
    /// Bytes of them.
    BytesOut,
    /// Rounds that became complete.
    SlotsComplete,
    /// Segments refused: contributed already.
    Duplicates,
    /// Segments refused: key or length differ.
    Mismatches,
    /// Segments refused: old epoch or sequence number.
    Stale,
    /// Payloads refused for their CRC.
    CrcErrors,
    /// Segments that could not be read, descriptors whose result could not be written.
    DmaErrors,
    /// Descriptors refused before any data moved.
    Refused,
    /// Result segments with a NaN or an infinity.
    NonFinite,
    /// Abstentions.
    Abstains,
    /// Segments that had to wait for their slot.
    SlotWaits,
    /// Epochs aborted.
    Aborts,
    /// Completions written.
    Completions,
}

/// Counters a tenant has.
pub const COUNTERS: usize = 16;
/// Errors kept until the host reads them.
const ERROR_FIFO_DEPTH: usize = 16;

/// The card behind its registers.
#[derive(Clone, Debug)]
pub struct Hub {
    /// How large it is.
    pub params: Params,
    /// Enabled by the host.
    pub ready: bool,
    /// Queue pairs.
    pub queues: Vec<Queue>,
    /// Tenant table.
    pub tenants: Vec<Tenant>,
    /// Counters of each tenant.
    pub counters: Vec<[u64; COUNTERS]>,
    /// Slots of all tenants.
    pub slots: Slots,
    /// Errors of queues the host has not read; `true` marks a loss before the entry.
    pub errors: VecDeque<(u8, QueueError, bool)>,
    errors_lost: bool,
    /// Interrupt coalescing: fire after so many completions. There is no clock, so what is left fires once the card rests.
    pub coalesce: u8,
    /// Beats into the adders and out of the card.
    pub beats: [u64; 2],
    /// Who chooses among queues.
    pub order: Order,
    /// What has joined so far, in order, if somebody wants to know.
    pub trace: Option<Vec<Contribution>>,
    pending: Vec<u8>,
    interrupts: Vec<u8>,
    last: usize,
    now: u64,
}

impl Hub {
    /// A card of this size after power-on.
    pub fn new(params: Params, order: Order) -> Self {
        Self {
            params,
            ready: false,
            queues: vec![Queue::default(); params.queues as usize],
            tenants: vec![Tenant::default(); params.tenants as usize],
            counters: vec![[0; COUNTERS]; params.tenants as usize],
            slots: Slots::new(params.slots),
            errors: VecDeque::new(),
            errors_lost: false,
            coalesce: 1,
            beats: [0; 2],
            order,
            trace: None,
            pending: vec![0; params.vectors() as usize],
            interrupts: Vec::new(),
            last: 0,
            now: 0,
        }
    }

    /// Logical time: one step for each thing the card did.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The interrupt vectors raised since the last call, one entry for each time.
    pub fn take_interrupts(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.interrupts)
    }

    /// What the driver writes into `ctrl` of a queue. A rising `enable` starts it, a falling one forgets what it holds.
    pub fn configure_queue(&mut self, queue: usize, config: QueueConfig) {
        let q = &mut self.queues[queue];
        let fits = config.fits(&self.params);
        let starts = config.enable && !q.config.enable;
        q.config = QueueConfig {
            enable: config.enable && fits,
            ..config
        };
        if starts || !q.config.enable {
            q.start();
        }
        if config.enable && !fits {
            self.stop_for(queue, QueueError::QueueConfig);
        }
    }

    /// Enables or disables the card. Disabled, it forgets queues, slots and counters.
    pub fn enable(&mut self, on: bool) {
        if self.ready && !on {
            for queue in &mut self.queues {
                queue.config.enable = false;
                queue.start();
            }
            self.tenants.iter_mut().for_each(|t| t.enable = false);
            self.counters.fill([0; COUNTERS]);
            self.slots = Slots::new(self.params.slots);
            self.errors.clear();
            self.errors_lost = false;
            self.beats = [0; 2];
            self.pending.fill(0);
        }
        self.ready = on;
    }

    /// Stops a queue for an error of its own.
    pub fn stop_for(&mut self, queue: usize, error: QueueError) {
        self.queues[queue].error.get_or_insert(error);
        if self.errors.len() == ERROR_FIFO_DEPTH {
            self.errors_lost = true;
        } else {
            self.errors
                .push_back((queue as u8, error, std::mem::take(&mut self.errors_lost)));
        }
        self.interrupts.push(0);
    }

    /// Command 1: ends the epoch of a tenant.
    pub fn abort(&mut self, tenant: usize, host: &dyn Host) {
        for q in 0..self.queues.len() {
            while usize::from(self.queues[q].config.tenant) == tenant
                && let Some(held) = self.queues[q].held.front()
            {
                let seq = held.seq(if held.takes() { held.written } else { 0 });
                let slot = self.slots.get(self.tenants[tenant].slot(seq));
                let contributors = slot
                    .filter(|s| s.is_at(tenant as u8, seq))
                    .map_or(0, |s| s.contributed);
                if let Some(held) = self.queues[q].held.front_mut() {
                    held.contributors = contributors;
                    held.fail(Status::Aborted, seq);
                }
                self.complete(q, host);
            }
        }
        if self.tenants[tenant].on(&self.params) {
            for slot in self.tenants[tenant].slots() {
                self.slots.clear(slot);
            }
        }
        self.tenants[tenant].epoch = self.tenants[tenant].epoch.wrapping_add(1);
        self.count(tenant, Counter::Aborts, 1);
    }

    /// Command 2: disables a queue and forgets what it holds.
    pub fn stop(&mut self, queue: usize) {
        self.queues[queue].held.clear();
        self.queues[queue].config.enable = false;
    }

    /// Works until nothing can move.
    pub fn run(&mut self, host: &dyn Host) {
        while self.ready && (self.serve(host) | self.join_one(host)) {}
        for vector in 0..self.pending.len() {
            if std::mem::take(&mut self.pending[vector]) > 0 {
                self.interrupts.push(vector as u8);
            }
        }
    }

    /// Everything that does not change a sum: takes descriptors, writes results, answers.
    fn serve(&mut self, host: &dyn Host) -> bool {
        let mut moved = false;
        for q in 0..self.queues.len() {
            while self.fetch(q, host) | self.answer(q, host) {
                moved = true;
            }
        }
        moved
    }

    fn fetch(&mut self, q: usize, host: &dyn Host) -> bool {
        if !self.queues[q].may_fetch(&self.params) {
            return false;
        }
        self.now += 1;
        let mut entry = [0; DESCRIPTOR_BYTES];
        if !host.read(self.queues[q].fetch_iova(), &mut entry) {
            self.stop_for(q, QueueError::SqRead);
            return true;
        }
        let queue = &self.queues[q];
        let desc = Descriptor::from_bytes(&entry);
        let status = match queue.config.check(&desc) {
            Status::Ok => self.admit(q, &desc),
            refused => refused,
        };
        let queue = &mut self.queues[q];
        let sq_head = queue.advance_sq();
        queue
            .held
            .push_back(Held::new(desc, sq_head, status, self.params.seg_bytes));
        true
    }

    /// The next segment of one queue that need not wait joins its round.
    fn join_one(&mut self, host: &dyn Host) -> bool {
        let mut candidates = Vec::new();
        for q in 0..self.queues.len() {
            if let Some(contribution) = self.next_join(q) {
                candidates.push((q, contribution));
            }
        }
        let Some(q) = self.order.choose(&candidates, self.last) else {
            return false;
        };
        self.last = q;
        self.now += 1;
        self.join(q, host);
        true
    }

    /// The descriptor of a queue whose segment is next to join.
    fn joining(&self, q: usize) -> Option<usize> {
        self.queues[q]
            .held
            .iter()
            .position(|h| h.joined < h.segments)
    }

    /// What the queue would contribute next, unless it has to wait for its slot; nothing if it will not be admitted.
    fn next_join(&mut self, q: usize) -> Option<Option<Contribution>> {
        let index = self.joining(q)?;
        let config = self.queues[q].config;
        let held = &self.queues[q].held[index];
        let seq = held.seq(held.joined);
        let abstain = !held.pays();
        if self.admit(q, &held.desc) != Status::Ok {
            return Some(None);
        }
        let slot = self.tenants[usize::from(config.tenant)].slot(seq);
        if self.slots.waits(slot, seq) {
            if !std::mem::replace(&mut self.queues[q].held[index].waited, true) {
                self.count(config.tenant.into(), Counter::SlotWaits, 1);
            }
            return None;
        }
        Some(Some(Contribution {
            tenant: config.tenant,
            worker: config.worker,
            seq,
            abstain,
        }))
    }

    /// The checks that need the tenant table, in order.
    fn admit(&self, q: usize, desc: &Descriptor) -> Status {
        let config = &self.queues[q].config;
        let tenant = &self.tenants[usize::from(config.tenant)];
        if !tenant.on(&self.params) || config.worker >= tenant.workers {
            Status::TenantOff
        } else if desc.epoch != tenant.epoch {
            Status::StaleEpoch
        } else {
            Status::Ok
        }
    }

    fn join(&mut self, q: usize, host: &dyn Host) {
        let Some(index) = self.joining(q) else { return };
        let seq = {
            let held = &self.queues[q].held[index];
            held.seq(held.joined)
        };
        let outcome = self.try_join(q, index, seq, host);
        let tenant = self.queues[q].config.tenant;
        let held = &mut self.queues[q].held[index];
        held.joined += 1;
        held.waited = false;
        let (pays, bytes) = (
            held.pays(),
            held.piece(held.joined - 1, self.params.seg_bytes).1,
        );
        match outcome {
            Ok(joined) => {
                if joined.taken {
                    let worker = self.queues[q].config.worker;
                    let contribution = Contribution {
                        tenant,
                        worker,
                        seq,
                        abstain: !pays,
                    };
                    self.order.joined(&contribution);
                    if let Some(trace) = &mut self.trace {
                        trace.push(contribution);
                    }
                    if pays {
                        self.count(tenant.into(), Counter::SegmentsIn, 1);
                        self.count(tenant.into(), Counter::BytesIn, bytes.into());
                        self.beats[0] += u64::from(bytes.div_ceil(4 * self.params.lanes));
                    } else {
                        self.count(tenant.into(), Counter::Abstains, 1);
                    }
                }
                if joined.completed {
                    self.count(tenant.into(), Counter::SlotsComplete, 1);
                }
            }
            Err(status) => {
                held.fail(status, seq);
                let counter = match status {
                    Status::Duplicate => Some(Counter::Duplicates),
                    Status::Mismatch => Some(Counter::Mismatches),
                    Status::StaleSeq | Status::StaleEpoch => Some(Counter::Stale),
                    Status::CrcError => Some(Counter::CrcErrors),
                    Status::ReadError => Some(Counter::DmaErrors),
                    _ => None,
                };
                if let Some(counter) = counter {
                    self.count(tenant.into(), counter, 1);
                }
            }
        }
    }

    /// Reads and judges one segment, and gives it to its slot.
    fn try_join(
        &mut self,
        q: usize,
        index: usize,
        seq: u32,
        host: &dyn Host,
    ) -> Result<Joined, Status> {
        let config = self.queues[q].config;
        let held = &mut self.queues[q].held[index];
        let desc = held.desc;
        let (offset, bytes) = held.piece(held.joined, self.params.seg_bytes);
        let last = held.joined + 1 == held.segments;
        let mut payload = vec![0; bytes as usize];
        let mut fault = Status::Ok;
        if held.pays() {
            if !host.read(desc.src + offset, &mut payload) {
                fault = Status::ReadError;
            }
            held.payload_crc.update(&payload);
            let wrong = held.payload_crc.clone().finalize() != desc.crc;
            if last && desc.flags.contains(Flags::CRC) && wrong && fault == Status::Ok {
                fault = Status::CrcError;
            }
        }
        let pays = held.pays();
        for status in [self.admit(q, &desc), fault] {
            if status != Status::Ok {
                return Err(status);
            }
        }
        let tenant = self.tenants[usize::from(config.tenant)];
        let join = Join {
            tenant: config.tenant,
            worker: config.worker,
            workers: tenant.workers,
            seq,
            key: desc.key,
            bytes,
            waive: desc.flags.contains(Flags::WAIVE),
        };
        let slot = tenant.slot(seq);
        if !pays {
            return self.slots.abstain(slot, join, self.now);
        }
        let words: Vec<u32> = payload
            .chunks_exact(4)
            .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
            .collect();
        self.slots.contribute(slot, join, &words, self.now)
    }

    /// Writes the next result segment of a queue's oldest descriptor, or answers it.
    fn answer(&mut self, q: usize, host: &dyn Host) -> bool {
        let Some(held) = self.queues[q].held.front() else {
            return false;
        };
        if held.status == Status::Ok && held.takes() && held.written < held.joined {
            let config = self.queues[q].config;
            let seq = held.seq(held.written);
            let slot = self.tenants[usize::from(config.tenant)].slot(seq);
            match self.slots.look(slot, config.tenant, config.worker, seq) {
                Look::Wait => return false,
                Look::Stale => self.queues[q].held[0].fail(Status::StaleSeq, seq),
                Look::Ready => self.write_result(q, slot, host),
            }
        } else if held.joined == held.segments {
            self.complete(q, host);
        } else {
            return false;
        }
        self.now += 1;
        true
    }

    fn write_result(&mut self, q: usize, slot: usize, host: &dyn Host) {
        let config = self.queues[q].config;
        let tenant = usize::from(config.tenant);
        let held = &mut self.queues[q].held[0];
        let Some(round) = self.slots.get(slot) else {
            return;
        };
        let (offset, bytes) = held.piece(held.written, self.params.seg_bytes);
        let count = round.contributed.count_ones();
        let mean = held.desc.flags.contains(Flags::MEAN);
        let mut words = round.sum.clone();
        words.resize(bytes as usize / 4, 0);
        if mean && count > 0 {
            words.iter_mut().for_each(|w| *w = arith::mean(*w, count));
        }
        let data: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let non_finite = !words.iter().all(|w| arith::is_finite(*w));
        held.result_crc.update(&data);
        held.non_finite |= non_finite;
        held.contributors = round.contributed;
        held.written += 1;
        if !host.write(held.desc.dst + offset, &data) {
            held.unwritable = true;
        }
        self.slots.leave(slot, config.worker);
        self.count(tenant, Counter::SegmentsOut, 1);
        self.count(tenant, Counter::BytesOut, bytes.into());
        if non_finite {
            self.count(tenant, Counter::NonFinite, 1);
        }
        self.beats[1] += u64::from(bytes.div_ceil(4 * self.params.lanes));
    }

    /// Posts the completion of a queue's oldest descriptor.
    fn complete(&mut self, q: usize, host: &dyn Host) {
        let queue = &mut self.queues[q];
        let Some(mut held) = queue.held.pop_front() else {
            return;
        };
        if held.unwritable {
            held.fail(Status::WriteError, held.seq(held.segments - 1));
        }
        let tenant = usize::from(queue.config.tenant);
        let epoch = self.tenants[tenant].epoch;
        let mut completion = held.completion(q as u16, epoch, self.now, self.params.seg_bytes);
        let iova = queue.place(&mut completion);
        let vector = queue.config.vector;
        let written = host.write(iova, &completion.to_bytes());
        self.count(tenant, Counter::Completions, 1);
        match held.status {
            Status::BadOpcode
            | Status::BadLength
            | Status::BadAlign
            | Status::OutOfWindow
            | Status::StaleEpoch
            | Status::TenantOff => self.count(tenant, Counter::Refused, 1),
            Status::WriteError => self.count(tenant, Counter::DmaErrors, 1),
            _ => {}
        }
        if !written {
            self.stop_for(q, QueueError::CqWrite);
        } else if held.status != Status::Ok || held.desc.flags.contains(Flags::IRQ) {
            self.raise(vector);
        }
    }

    fn raise(&mut self, vector: u8) {
        let Some(pending) = self.pending.get_mut(usize::from(vector)) else {
            return;
        };
        *pending += 1;
        if *pending >= self.coalesce.max(1) {
            *pending = 0;
            self.interrupts.push(vector);
        }
    }

    fn count(&mut self, tenant: usize, counter: Counter, by: u64) {
        let value = &mut self.counters[tenant][counter as usize];
        *value = value.wrapping_add(by);
    }
}
