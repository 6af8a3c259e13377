// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Aborts and queue stops at any moment of full traffic: every descriptor is answered once, nothing is added twice or left
//! out, no memory is touched that was taken back, and the tenants beside it notice nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use phub_abi::regs::{CountersAbortsLo, Scratch};
use phub_abi::{Completion, Status};
use phub_model::{Order, Params};
use phub_sim::{AxiConfig, Build};
use phub_tests::card::{Card, TINY};
use phub_tests::rack::{Buffer, Rack, Shape, Tenant, Worker};
use phub_tests::seed;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// No wait takes longer, on any card.
const DEADLINE: Duration = Duration::from_secs(60);
/// Descriptors a worker has in flight at most; its ring holds them all.
const FLYING: usize = 6;
/// Segments of the longest chunk.
const CHUNK_SEGMENTS: u32 = 5;

/// A descriptor the card has been given.
struct Flight {
    cid: u16,
    step: u32,
    buffer: Buffer,
    words: usize,
}

/// One worker of a job.
struct Member {
    worker: Worker,
    buffers: Vec<Buffer>,
    flying: VecDeque<Flight>,
    /// The next chunk, and its sequence number.
    step: u32,
    seq: u32,
}

/// One tenant's endless exchange of chunks, in epochs.
struct Job {
    tenant: Tenant,
    members: Vec<Member>,
    seg_bytes: u32,
    /// Answers: sums, aborted, too late for the epoch.
    tally: [u64; 3],
}

/// Words of chunk `step`, the same on every worker: whole segments, tails, and a single word.
fn words(tenant: &Tenant, step: u32, seg_bytes: u32) -> usize {
    let most = CHUNK_SEGMENTS * seg_bytes / 4;
    let mixed = (step ^ tenant.epoch << 7 ^ tenant.index << 11).wrapping_mul(0x9e37_79b1) >> 8;
    match mixed % 4 {
        0 => 1,
        1 => most as usize,
        _ => (1 + (mixed >> 2) % most) as usize,
    }
}

/// What rank `rank` contributes at `word` of chunk `step`: whole numbers, so that sums are exact in any order, and different
/// for every epoch and chunk, so that no old value passes for a new one.
fn value(tenant: &Tenant, step: u32, rank: u32, word: usize) -> f32 {
    let salt = (step * 31 + tenant.epoch * 7 + tenant.index * 3) % 1000;
    ((rank + 1) * (salt + 1 + word as u32 % 5)) as f32
}

fn sum(tenant: &Tenant, step: u32, word: usize) -> f32 {
    (0..tenant.workers.into())
        .map(|rank| value(tenant, step, rank, word))
        .sum()
}

impl Job {
    fn new(rack: &mut Rack, workers: u8, slot_log2: u32, rng: &mut ChaCha8Rng) -> Self {
        let seg_bytes = rack.card.params.seg_bytes;
        let tenant = rack.tenant(workers, slot_log2);
        let shape = Shape {
            sq_log2: 3,
            cq_log2: rng.random_range(1..=4),
            buffers: u64::from(FLYING as u32 * (CHUNK_SEGMENTS * seg_bytes + 128)) + 4096,
        };
        let members = rack
            .workers_with(tenant, shape)
            .into_iter()
            .map(|mut worker| Member {
                buffers: (0..FLYING)
                    .map(|_| worker.buffer(CHUNK_SEGMENTS * seg_bytes))
                    .collect(),
                worker,
                flying: VecDeque::new(),
                step: 0,
                seq: 0,
            })
            .collect();
        Self {
            tenant,
            members,
            seg_bytes,
            tally: [0; 3],
        }
    }

    /// Some workers submit some chunks, before chunk `last`.
    fn submit(&mut self, last: u32, rng: &mut ChaCha8Rng) {
        for (rank, member) in self.members.iter_mut().enumerate() {
            while member.flying.len() < FLYING && member.step < last && rng.random_bool(0.6) {
                let words = words(&self.tenant, member.step, self.seg_bytes);
                let buffer = Buffer {
                    len: 4 * words as u32,
                    ..member.buffers[member.step as usize % FLYING]
                };
                let payload: Vec<u32> = (0..words)
                    .map(|w| value(&self.tenant, member.step, rank as u32, w).to_bits())
                    .collect();
                member.worker.write(buffer, &payload);
                let descriptor = member.worker.push_pull(member.seq, buffer, buffer);
                member.worker.submit(descriptor);
                member.flying.push_back(Flight {
                    cid: descriptor.cid,
                    step: member.step,
                    buffer,
                    words,
                });
                member.step += 1;
                member.seq = member.seq.wrapping_add(buffer.len.div_ceil(self.seg_bytes));
            }
        }
    }

    /// Reads completions, which must all be of sums that are right.
    fn reap(&mut self) {
        for rank in 0..self.members.len() {
            while let Some(completion) = self.members[rank].worker.poll() {
                let status = self.answer(rank, &completion);
                assert_eq!(status, Status::Ok, "{completion:?}");
            }
        }
    }

    /// Takes the answer to a worker's oldest descriptor.
    fn answer(&mut self, rank: usize, completion: &Completion) -> Status {
        let all = u64::MAX >> (64 - self.tenant.workers);
        let member = &mut self.members[rank];
        let flight = member.flying.pop_front().expect("an answer to nothing");
        assert_eq!(completion.cid, flight.cid, "answers come in order");
        let status = Status::from_code(completion.status).unwrap();
        if status == Status::Ok {
            assert_eq!(
                (completion.contributors, completion.count),
                (all, self.tenant.workers.into())
            );
            for (word, got) in member
                .worker
                .read_floats(flight.buffer)
                .into_iter()
                .enumerate()
            {
                assert_eq!(
                    got,
                    sum(&self.tenant, flight.step, word),
                    "tenant {} epoch {} worker {rank} chunk {} word {word} of {}",
                    self.tenant.index,
                    self.tenant.epoch,
                    flight.step,
                    flight.words
                );
            }
            self.tally[0] += 1;
        } else if status == Status::Aborted {
            // Nobody is named as there who has not even submitted the chunk.
            let submitted = self
                .members
                .iter()
                .enumerate()
                .filter(|(_, m)| m.step > flight.step)
                .fold(0, |ranks, (r, _)| ranks | 1 << r);
            assert_eq!(
                completion.contributors & !submitted,
                0,
                "{completion:?}, {submitted:#b}"
            );
        }
        status
    }

    /// Ends the epoch and begins the next.
    fn abort(&mut self, rack: &Rack, rng: &mut ChaCha8Rng) {
        let old = self.tenant;
        let aborts = rack.counter::<CountersAbortsLo>(old);
        let next = rack.abort(old);
        assert_eq!(next.epoch, old.epoch.wrapping_add(1));
        assert_eq!(rack.counter::<CountersAbortsLo>(old), aborts + 1);
        // Slots are free at once, whatever is still in the rings.
        for slot in 0..1 << old.slot_log2 {
            let state = rack.slot(old.slot_base + slot).state;
            assert!(state.fresh() && !state.open(), "slot {slot}: {state:?}");
        }
        for rank in 0..self.members.len() {
            // What was done, then what the card held, then what still lay in the ring.
            let mut last = 0;
            while !self.members[rank].flying.is_empty() {
                let completion = self.members[rank].worker.wait();
                let order = match self.answer(rank, &completion) {
                    Status::Ok => 0,
                    Status::Aborted => 1,
                    Status::StaleEpoch => 2,
                    other => panic!("{other:?} for an aborted epoch"),
                };
                assert!(order >= last, "worker {rank}: {completion:?}");
                last = order;
                self.tally[order] += u64::from(order > 0);
            }
            assert_eq!(self.members[rank].worker.poll(), None);
        }
        self.begin(next, rng);
    }

    fn begin(&mut self, next: Tenant, rng: &mut ChaCha8Rng) {
        self.tenant = next;
        let seq = rng.random();
        for member in &mut self.members {
            member.worker.tenant = next;
            (member.step, member.seq) = (0, seq);
        }
    }

    /// Takes a worker's queue from the card, then ends the epoch.
    fn stop(&mut self, rack: &Rack, rng: &mut ChaCha8Rng) {
        let rank = rng.random_range(0..self.members.len());
        self.members[rank].worker.disable();
        // What was answered before stays answered.
        while let Some(completion) = self.members[rank].worker.peek() {
            assert_eq!(self.answer(rank, &completion), Status::Ok);
        }
        let worker = &self.members[rank].worker;
        let before = worker.bytes(0, worker.memory.len() as usize);
        // The others go on as far as they can.
        for _ in 0..rng.random_range(1..20) {
            rack.card.relax();
        }
        let worker = &self.members[rank].worker;
        assert!(
            worker.bytes(0, worker.memory.len() as usize) == before,
            "the card touched memory of a stopped queue"
        );
        self.members[rank].flying.clear();
        self.abort(rack, rng);
        self.members[rank].worker.enable();
    }
}

/// A moment: from a few cycles to some hundred.
fn pass(card: &Card, rng: &mut ChaCha8Rng) {
    for _ in 0..rng.random_range(0..12) {
        let _ = card.get::<Scratch>();
    }
    if rng.random_bool(0.5) {
        card.relax();
    }
}

fn storm(card: Card, seed: u64) -> [u64; 3] {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let Params {
        tenants,
        queues,
        slots,
        ..
    } = card.params;
    let mut rack = Rack::new(card);
    let count = tenants.min(3);
    let workers = (queues / count).min(4) as u8;
    let slot_log2 = (slots / count).ilog2().min(4);
    let mut jobs: Vec<_> = (0..count)
        .map(|_| {
            let workers = rng.random_range(1..=workers);
            let slot_log2 = rng.random_range(0..=slot_log2);
            Job::new(&mut rack, workers, slot_log2, &mut rng)
        })
        .collect();
    let mut tally = [0; 3];
    for _ in 0..25 {
        for _ in 0..rng.random_range(1..15) {
            for job in &mut jobs {
                job.submit(u32::MAX, &mut rng);
                pass(&rack.card, &mut rng);
                job.reap();
            }
        }
        let victim = rng.random_range(0..jobs.len());
        match rng.random_bool(0.5) {
            true => jobs[victim].abort(&rack, &mut rng),
            false => jobs[victim].stop(&rack, &mut rng),
        }
    }
    // What has begun can still be finished, and nothing is left.
    for job in &mut jobs {
        let last = job.members.iter().map(|m| m.step).max().unwrap();
        let start = Instant::now();
        while job
            .members
            .iter()
            .any(|m| m.step < last || !m.flying.is_empty())
        {
            job.submit(last, &mut rng);
            rack.card.relax();
            job.reap();
            assert!(
                start.elapsed() < DEADLINE,
                "tenant {} hangs",
                job.tenant.index
            );
        }
        tally
            .iter_mut()
            .zip(job.tally)
            .for_each(|(all, n)| *all += n);
    }
    assert_eq!(rack.error(), None, "no queue has failed");
    tally
}

fn several(test: &str, programs: u64, card: impl Fn(u64) -> Card) {
    let mut all = [0; 3];
    for seed in seed::seeds(1, programs) {
        let tally = storm(card(seed::announce(test, seed)), seed);
        all.iter_mut().zip(tally).for_each(|(all, n)| *all += n);
    }
    let [sums, aborted, stale] = all;
    println!("{sums} sums, {aborted} aborted, {stale} too late");
    assert!(sums > 0 && aborted > 0 && stale > 0, "no storm");
}

#[test]
fn golden() {
    several("--test storm golden", 40, |seed| {
        Card::model(Params::default(), Order::Random(seed))
    });
}

#[test]
fn golden_tiny() {
    several("--test storm golden_tiny", 40, |seed| {
        Card::model(TINY, Order::Random(seed))
    });
}

#[test]
fn verilated() {
    several("--test storm verilated", 6, |seed| {
        Card::rtl(Build::Standard, seed, AxiConfig::hostile())
    });
}

#[test]
fn verilated_tiny() {
    several("--test storm verilated_tiny", 12, |seed| {
        Card::rtl(Build::Tiny, seed, AxiConfig::hostile())
    });
}
