// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Random programs for co-simulation: what every worker submits, and a runner that gives it to a card.
//!
//! A program's outcome depends on the card only through the order of contributions: workers use sequence numbers in
//! order, pushes that are not pulled yet fit in the slots, and each deliberate error is certain to be one.

use std::time::{Duration, Instant};

use phub_abi::regs::{CountersSegmentsInLo, Register};
use phub_abi::{Completion, Descriptor, Flags, Opcode, Status};
use phub_model::{Contribution, Params};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::card::Card;
use crate::rack::{Buffer, Rack, Shape, Worker};

const DEADLINE: Duration = Duration::from_secs(20);
/// The counter that depends on time: how many segments had to wait for their slot.
const SLOT_WAITS: usize = 13;

/// What one worker asks in one descriptor.
#[derive(Clone, Debug)]
pub struct Step {
    /// Opcode.
    pub opcode: Opcode,
    /// Flags.
    pub flags: Flags,
    /// First sequence number.
    pub seq: u32,
    /// Key.
    pub key: u32,
    /// Bytes.
    pub length: u32,
    /// Which payload style fills `src`; steps with the same number share the buffer.
    pub payload: u32,
    /// The result goes into `src`.
    pub in_place: bool,
    /// What is wrong with it.
    pub lie: Lie,
    /// How it must end.
    pub status: Status,
}

/// A deliberate error in a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// None.
    Honest,
    /// Opcode that does not exist.
    Opcode,
    /// Unknown flag.
    Flag,
    /// Reserved byte set.
    Reserved,
    /// Length no multiple of 4.
    Length,
    /// Buffer not aligned.
    Align,
    /// Buffer before the window.
    Window,
    /// Epoch of another time.
    Epoch,
    /// Contributes again.
    Again,
    /// Another key than the one it opened the slot with.
    Key,
    /// Wrong CRC; the last segment is sent again by the next step.
    Crc,
}

/// All steps of all workers of all tenants.
#[derive(Clone, Debug)]
pub struct Program {
    tenants: Vec<Team>,
    shape: Shape,
    seed: u64,
}

#[derive(Clone, Debug)]
struct Team {
    slot_log2: u32,
    steps: Vec<Vec<Step>>,
}

/// What a card made of a program.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Completions of each worker, in order.
    pub completions: Vec<Vec<Completion>>,
    /// Buffers of each worker.
    pub memory: Vec<Vec<u8>>,
    /// Counters of each tenant but the waits.
    pub counters: Vec<Vec<u64>>,
    /// Contributions in order.
    pub trace: Vec<Contribution>,
}

impl Program {
    /// A program of about `chunks` chunks a tenant for a card of this size.
    pub fn random(rng: &mut ChaCha8Rng, params: &Params, chunks: u32) -> Self {
        let count = rng.random_range(1..=params.tenants.min(3));
        let mut queues = params.queues.min(24);
        let mut slots = params.slots;
        let mut tenants = Vec::new();
        for left in (0..count).rev() {
            let workers = rng.random_range(1..=(queues - left).min(params.workers).min(12));
            queues -= workers;
            // The tenants after this one need a slot pair each.
            let most = ((slots - 2 * left).ilog2()).min(7);
            let slot_log2 = rng.random_range(0..=most);
            slots -= 1 << slot_log2;
            tenants.push((workers, slot_log2));
        }
        let mut teams = Vec::new();
        for (workers, slot_log2) in tenants {
            let planner = Planner::new(rng, params, workers, 1 << slot_log2);
            teams.push(Team {
                slot_log2,
                steps: planner.plan(rng, chunks),
            });
        }
        let shape = Shape {
            sq_log2: rng.random_range(1..=6),
            cq_log2: rng.random_range(1..=6),
            buffers: 0,
        };
        Self {
            tenants: teams,
            shape,
            seed: rng.random(),
        }
    }

    /// Descriptors of all workers together.
    pub fn operations(&self) -> usize {
        self.tenants
            .iter()
            .flat_map(|t| &t.steps)
            .map(Vec::len)
            .sum()
    }

    /// Gives the program to a card. Submissions of the workers interleave at random, by `interleaving`.
    pub fn run(&self, card: Card, interleaving: &mut ChaCha8Rng) -> Outcome {
        let mut rack = Rack::new(card);
        let mut clients = Vec::new();
        let mut tenants = Vec::new();
        for team in &self.tenants {
            let tenant = rack.tenant(team.steps.len() as u8, team.slot_log2);
            for (rank, steps) in team.steps.iter().enumerate() {
                let bytes: u64 = steps.iter().map(|s| 2 * u64::from(s.length) + 512).sum();
                let shape = Shape {
                    buffers: bytes + 4096,
                    ..self.shape
                };
                clients.push(Client::new(
                    rack.worker(tenant, rank as u8, shape),
                    steps,
                    self.seed,
                ));
            }
            tenants.push(tenant);
        }
        let _ = rack.card.take_trace();
        let mut last_change = Instant::now();
        while clients.iter().any(|c| !c.done()) {
            let mut moved = false;
            if let Some(client) = clients
                .iter_mut()
                .filter(|c| c.can_post())
                .collect::<Vec<_>>()
                .pick(interleaving)
            {
                client.post(interleaving.random_range(1..=6));
                moved = true;
            }
            for _ in 0..interleaving.random_range(0..4) {
                rack.card.relax();
            }
            for client in &mut clients {
                moved |= client.collect(interleaving.random_ratio(1, 2));
            }
            if moved {
                last_change = Instant::now();
            } else {
                clients.iter_mut().for_each(|c| c.worker.ring_cq());
                rack.card.relax();
            }
            assert!(
                last_change.elapsed() < DEADLINE,
                "card hangs: {}",
                stuck(&clients)
            );
        }
        Outcome {
            memory: clients.iter().map(|c| c.worker.all_buffers()).collect(),
            completions: clients.into_iter().map(|c| c.completions).collect(),
            counters: tenants
                .iter()
                .map(|t| {
                    let at = |c: u32| {
                        rack.card
                            .counter(t.index, CountersSegmentsInLo::OFFSET + 8 * c)
                    };
                    (0..16)
                        .filter(|c| *c != SLOT_WAITS as u32)
                        .map(at)
                        .collect()
                })
                .collect(),
            trace: rack.card.take_trace(),
        }
    }
}

/// Makes the steps of one tenant's workers.
struct Planner {
    seg_bytes: u32,
    slots: u32,
    seq: u32,
    payloads: u32,
    workers: Vec<Plan>,
}

#[derive(Default)]
struct Plan {
    steps: Vec<Step>,
    /// Pushed and not pulled yet.
    owed: Vec<Step>,
}

impl Planner {
    fn new(rng: &mut ChaCha8Rng, params: &Params, workers: u32, slots: u32) -> Self {
        // Some programs cross the end of the sequence numbers.
        let seq = if rng.random() {
            u32::MAX - rng.random_range(0..40)
        } else {
            rng.random()
        };
        let workers = (0..workers).map(|_| Plan::default()).collect();
        Self {
            seg_bytes: params.seg_bytes,
            slots,
            seq,
            payloads: 0,
            workers,
        }
    }

    fn plan(mut self, rng: &mut ChaCha8Rng, chunks: u32) -> Vec<Vec<Step>> {
        for _ in 0..chunks {
            self.chunk(rng);
        }
        self.workers
            .into_iter()
            .map(|mut plan| {
                plan.steps.append(&mut plan.owed);
                plan.steps
            })
            .collect()
    }

    fn length(&self, rng: &mut ChaCha8Rng) -> u32 {
        let words = self.seg_bytes / 4;
        4 * match rng.random_range(0..8) {
            0 | 1 => rng.random_range(1..=17),
            2 => words,
            3 => words * rng.random_range(1..=8),
            4 => words * rng.random_range(0..=8) + rng.random_range(1..=17),
            5 => words * rng.random_range(1..=4) - rng.random_range(0..=15).min(words - 1),
            6 => rng.random_range(1..=words),
            _ => rng.random_range(1..=words * 20),
        }
    }

    fn chunk(&mut self, rng: &mut ChaCha8Rng) {
        let length = self.length(rng);
        let segments = length.div_ceil(self.seg_bytes);
        let (seq, key) = (self.seq, rng.random());
        self.seq = seq.wrapping_add(segments);
        let everybody = rng.random_ratio(1, 2);
        for plan in &mut self.workers {
            plan.settle(rng, seq.wrapping_add(segments - 1), self.slots);
            let mut flags = Flags::NONE;
            for flag in [Flags::MEAN, Flags::IRQ] {
                if rng.random_ratio(1, 3) {
                    flags = flags.with(flag);
                }
            }
            self.payloads += 1;
            let step = Step {
                opcode: Opcode::PushPull,
                flags,
                seq,
                key,
                length,
                payload: self.payloads,
                in_place: rng.random_ratio(1, 3),
                lie: Lie::Honest,
                status: Status::Ok,
            };
            if rng.random_ratio(1, 12) {
                plan.steps.push(lying(rng, &step));
            }
            let crc = |step: &Step, rng: &mut ChaCha8Rng| {
                if rng.random_ratio(1, 3) {
                    step.flags.with(Flags::CRC)
                } else {
                    step.flags
                }
            };
            match if everybody { 0 } else { rng.random_range(0..6) } {
                0 | 1 => plan.steps.push(Step {
                    flags: crc(&step, rng),
                    ..step
                }),
                2 => plan.steps.push(Step {
                    opcode: Opcode::Pull,
                    in_place: false,
                    ..step
                }),
                3 => plan.steps.push(Step {
                    opcode: Opcode::Push,
                    flags: crc(&step, rng).with(Flags::WAIVE),
                    in_place: false,
                    ..step
                }),
                _ if segments > self.slots => plan.steps.push(step),
                _ => plan.push_then_pull(
                    rng,
                    Step {
                        opcode: Opcode::Push,
                        in_place: false,
                        ..step
                    },
                    self.seg_bytes,
                ),
            }
        }
    }
}

impl Plan {
    /// Pulls what is owed: all whose slots the segments up to `last` need, and some others.
    fn settle(&mut self, rng: &mut ChaCha8Rng, last: u32, slots: u32) {
        let mut kept = Vec::new();
        for pull in std::mem::take(&mut self.owed) {
            if last.wrapping_sub(pull.seq) >= slots || rng.random_ratio(1, 3) {
                self.steps.push(pull);
            } else {
                kept.push(pull);
            }
        }
        self.owed = kept;
    }

    fn push_then_pull(&mut self, rng: &mut ChaCha8Rng, push: Step, seg_bytes: u32) {
        if rng.random_ratio(1, 4) {
            // A corrupted payload: everything but the last segment counts, and that is sent again.
            let tail = (push.length - 1) / seg_bytes;
            self.steps.push(Step {
                flags: push.flags.with(Flags::CRC),
                lie: Lie::Crc,
                status: Status::CrcError,
                ..push.clone()
            });
            self.steps.push(Step {
                seq: push.seq.wrapping_add(tail),
                length: push.length - tail * seg_bytes,
                payload: push.payload ^ 0x8000_0000,
                ..push.clone()
            });
        } else {
            self.steps.push(push.clone());
        }
        // This worker has not left, so that the round is certainly still open.
        if rng.random_ratio(1, 4) {
            self.steps.push(Step {
                lie: Lie::Again,
                status: Status::Duplicate,
                ..push.clone()
            });
        }
        if rng.random_ratio(1, 4) {
            self.steps.push(Step {
                lie: Lie::Key,
                status: Status::Mismatch,
                ..push.clone()
            });
        }
        self.owed.push(Step {
            opcode: Opcode::Pull,
            ..push
        });
    }
}

/// A descriptor like `step` that must be refused whole.
fn lying(rng: &mut ChaCha8Rng, step: &Step) -> Step {
    let lies = [
        (Lie::Opcode, Status::BadOpcode),
        (Lie::Flag, Status::BadOpcode),
        (Lie::Reserved, Status::BadOpcode),
        (Lie::Length, Status::BadLength),
        (Lie::Align, Status::BadAlign),
        (Lie::Window, Status::OutOfWindow),
        (Lie::Epoch, Status::StaleEpoch),
    ];
    let (lie, status) = *lies.choose(rng).unwrap_or(&lies[0]);
    let opcode = *[Opcode::Push, Opcode::Pull, Opcode::PushPull]
        .choose(rng)
        .unwrap_or(&Opcode::Push);
    Step {
        opcode,
        lie,
        status,
        in_place: false,
        ..step.clone()
    }
}

/// A worker with what it will submit.
struct Client {
    worker: Worker,
    descriptors: Vec<Descriptor>,
    expected: Vec<Status>,
    posted: usize,
    completions: Vec<Completion>,
}

impl Client {
    fn new(mut worker: Worker, steps: &[Step], seed: u64) -> Self {
        let mut sources: Vec<(u32, Buffer)> = Vec::new();
        let mut descriptors = Vec::new();
        for step in steps {
            let mut d = worker.descriptor(step.opcode, step.seq, step.length);
            (d.flags, d.key) = (step.flags, step.key);
            if step.opcode != Opcode::Pull {
                let known = sources
                    .iter()
                    .find(|(p, _)| *p == step.payload)
                    .map(|(_, src)| *src);
                let src = known.unwrap_or_else(|| {
                    let src = worker.buffer(step.length);
                    worker.write(
                        src,
                        &payload(seed ^ u64::from(step.payload), step.length / 4),
                    );
                    sources.push((step.payload, src));
                    src
                });
                d.src = src.iova;
                if step.in_place {
                    d.dst = src.iova;
                }
                if step.flags.contains(Flags::CRC) {
                    d.crc = crc32fast::hash(&worker.bytes(src.offset, src.len as usize));
                }
            }
            if step.opcode != Opcode::Push && d.dst == 0 {
                d.dst = worker.buffer(step.length).iova;
            }
            step.lie.apply(&mut d, &worker);
            descriptors.push(d);
        }
        let expected = steps.iter().map(|s| s.status).collect();
        Self {
            worker,
            descriptors,
            expected,
            posted: 0,
            completions: Vec::new(),
        }
    }

    fn done(&self) -> bool {
        self.completions.len() == self.descriptors.len()
    }

    fn can_post(&self) -> bool {
        self.posted < self.descriptors.len()
            && self.posted - self.completions.len() < self.worker.sq_room()
    }

    fn post(&mut self, most: usize) {
        for _ in 0..most {
            if self.can_post() {
                self.worker.post(&self.descriptors[self.posted]);
                self.posted += 1;
            }
        }
        self.worker.ring();
    }

    fn collect(&mut self, ring: bool) -> bool {
        let before = self.completions.len();
        while let Some(completion) = self.worker.peek() {
            let n = self.completions.len();
            let (rank, tenant) = (self.worker.rank, self.worker.tenant.index);
            assert!(
                n < self.posted,
                "worker {rank} of tenant {tenant}: a completion too many: {completion:#x?}"
            );
            assert_eq!(
                Status::from_code(completion.status),
                Some(self.expected[n]),
                "worker {rank} of tenant {tenant}, descriptor {n}: {:#x?}\n{completion:#x?}",
                self.descriptors[n]
            );
            assert_eq!(
                completion.cid, self.descriptors[n].cid,
                "completions of a queue come in order"
            );
            self.completions.push(completion);
        }
        let moved = self.completions.len() > before;
        if moved && ring {
            self.worker.ring_cq();
        }
        moved
    }
}

impl Lie {
    fn apply(self, d: &mut Descriptor, worker: &Worker) {
        match self {
            Self::Honest | Self::Again => {}
            Self::Opcode => d.opcode |= 0x40,
            Self::Flag => d.flags = d.flags.with(Flags(0x20)),
            Self::Reserved => d.reserved[23] = 1,
            Self::Length => d.length += 2,
            Self::Align => *address(d) += 4,
            Self::Window => *address(d) = worker.iova,
            Self::Epoch => d.epoch ^= 0x100,
            Self::Key => d.key = !d.key,
            Self::Crc => d.crc ^= 1,
        }
    }
}

fn address(d: &mut Descriptor) -> &mut u64 {
    if d.src != 0 { &mut d.src } else { &mut d.dst }
}

/// Payload of a style that depends on the seed: ordinary numbers, whole ones, tiny ones, huge ones, any bits at all.
fn payload(seed: u64, words: u32) -> Vec<u32> {
    let mut rng = <ChaCha8Rng as rand::SeedableRng>::seed_from_u64(seed);
    let style = rng.random_range(0..8);
    (0..words)
        .map(|_| match style {
            0 => rng.random(),
            1 => f32::to_bits(rng.random_range(-1000..1000) as f32),
            2 => rng.random_range(0u32..0x0100_0000) | rng.random_range(0..2u32) << 31,
            3 => rng.random_range(0x7e80_0000u32..0x7f80_0001) | rng.random_range(0..2u32) << 31,
            _ => {
                f32::to_bits(rng.random_range(-1.0f32..1.0) * rng.random_range(0.0f32..4.0).exp2())
            }
        })
        .collect()
}

trait Pick<T> {
    fn pick(self, rng: &mut ChaCha8Rng) -> Option<T>;
}

impl<T> Pick<T> for Vec<T> {
    fn pick(mut self, rng: &mut ChaCha8Rng) -> Option<T> {
        (!self.is_empty()).then(|| self.swap_remove(rng.random_range(0..self.len())))
    }
}

fn stuck(clients: &[Client]) -> String {
    let mut text = String::new();
    for c in clients.iter().filter(|c| !c.done()) {
        let next = &c.descriptors[c.completions.len()];
        text += &format!(
            "\n tenant {} worker {}: {} of {} done, {} posted, next {next:x?}",
            c.worker.tenant.index,
            c.worker.rank,
            c.completions.len(),
            c.descriptors.len(),
            c.posted
        );
    }
    text
}
