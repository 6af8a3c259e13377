// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Operations in flight: which chunk goes to the card next, and what a completion means.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use phub_abi::{Completion, CompletionFlags, Status};

use super::{Action, Kind, chunk_key};
use crate::chunk::Chunk;

/// Every so many chunks one asks for an interrupt, so that a long tensor's ring is refilled in time.
const INTERRUPT_EVERY: u32 = 16;

/// Names an operation of a [`Flow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OpId(pub(crate) u64);

/// What an operation is.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    /// The tensor's name.
    pub(crate) name: Arc<str>,
    /// What this worker does.
    pub(crate) action: Action,
    /// What all workers do together.
    pub(crate) kind: Kind,
    /// First sequence number.
    pub(crate) seq: u32,
    /// Bytes of the tensor; at least 1.
    pub(crate) bytes: u64,
}

/// A chunk on its way into the submission ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// Its operation.
    pub(crate) op: OpId,
    /// Name under which the card reports it.
    pub(crate) cid: u16,
    /// What this worker does.
    pub(crate) action: Action,
    /// What all workers do together.
    pub(crate) kind: Kind,
    /// Which piece of the tensor.
    pub(crate) chunk: Chunk,
    /// Sequence number of its first segment.
    pub(crate) seq: u32,
    /// Its key.
    pub(crate) key: u32,
    /// Whether its completion shall wake this worker.
    pub(crate) interrupt: bool,
}

/// What the card said about a result, over all chunks of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// One bit a worker that contributed to every chunk.
    pub contributors: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Epoch of the tenant.
    pub epoch: u32,
    /// The result holds a NaN or an infinity.
    pub non_finite: bool,
    /// The card has checked the CRC-32 of every pushed chunk, and the library that of every result.
    pub crc_checked: bool,
    /// Card cycles at the last chunk's completion.
    pub timestamp: u64,
}

/// What a completion meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A chunk is done; with `finished`, so is its operation.
    Done {
        /// The operation.
        op: OpId,
        /// The chunk.
        chunk: Chunk,
        /// CRC-32 of the chunk's result, if it has one.
        crc: Option<u32>,
        /// The certificate, with the operation's last chunk.
        finished: Option<Certificate>,
    },
    /// The card failed a chunk: its operation cannot succeed any more.
    Failed {
        /// The operation.
        op: OpId,
        /// Why.
        status: Status,
        /// The segment that failed or was waited for.
        seq: u32,
        /// Who had contributed to it.
        contributors: u64,
    },
}

/// A completion that cannot be: card or memory is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) String);

struct State {
    op: Op,
    next: u32,
    done: u32,
    total: u32,
    certificate: Certificate,
}

struct Sent {
    cid: u16,
    op: OpId,
    chunk: Chunk,
}

/// The operations of one worker in one epoch that are not finished.
pub(crate) struct Flow {
    segment_bytes: u32,
    epoch: u32,
    crc: bool,
    next_op: u64,
    next_cid: u16,
    ops: HashMap<OpId, State>,
    /// Operations with chunks still to send, oldest first.
    backlog: VecDeque<OpId>,
    /// Chunks in the card, oldest first: it completes them in order.
    sent: VecDeque<Sent>,
}

impl Flow {
    /// Nothing in flight. `crc`: payloads carry their CRC-32.
    pub(crate) fn new(segment_bytes: u32, epoch: u32, crc: bool) -> Self {
        Self {
            segment_bytes,
            epoch,
            crc,
            next_op: 0,
            next_cid: 0,
            ops: HashMap::new(),
            backlog: VecDeque::new(),
            sent: VecDeque::new(),
        }
    }

    /// Takes an operation on; its chunks follow those of all earlier ones.
    pub(crate) fn begin(&mut self, op: Op) -> OpId {
        assert!(op.bytes > 0, "an empty tensor needs no card");
        let id = OpId(self.next_op);
        self.next_op += 1;
        let total = Chunk::count(op.bytes);
        let certificate = self.blank();
        self.ops.insert(
            id,
            State {
                op,
                next: 0,
                done: 0,
                total,
                certificate,
            },
        );
        self.backlog.push_back(id);
        id
    }

    /// Takes an operation on nothing on: it is finished, and the card never hears of it.
    pub(crate) fn begin_empty(&mut self) -> (OpId, Certificate) {
        let id = OpId(self.next_op);
        self.next_op += 1;
        (
            id,
            Certificate {
                contributors: 0,
                ..self.blank()
            },
        )
    }

    /// Chunks the card has and has not completed.
    #[cfg(test)]
    pub(crate) fn in_card(&self) -> usize {
        self.sent.len()
    }

    fn blank(&self) -> Certificate {
        Certificate {
            contributors: u64::MAX,
            bytes: 0,
            epoch: self.epoch,
            non_finite: false,
            crc_checked: self.crc,
            timestamp: 0,
        }
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.ops.is_empty()
    }

    /// What an operation is, until it is finished.
    pub(crate) fn op(&self, id: OpId) -> Option<&Op> {
        self.ops.get(&id).map(|state| &state.op)
    }

    /// The next chunk for the card. Call it only with room in the ring: the chunk counts as sent.
    pub(crate) fn next(&mut self) -> Option<Outgoing> {
        let id = *self.backlog.front()?;
        let state = self.ops.get_mut(&id)?;
        let chunk = Chunk::of(state.op.bytes, state.next);
        state.next += 1;
        let last = state.next == state.total;
        if last {
            self.backlog.pop_front();
        }
        let cid = self.next_cid;
        self.next_cid = cid.wrapping_add(1);
        self.sent.push_back(Sent { cid, op: id, chunk });
        let op = &state.op;
        Some(Outgoing {
            op: id,
            cid,
            action: op.action,
            kind: op.kind,
            chunk,
            seq: chunk.seq(op.seq, self.segment_bytes),
            key: chunk_key(&op.name, op.bytes, chunk.index, op.kind),
            interrupt: last || state.next.is_multiple_of(INTERRUPT_EVERY),
        })
    }

    /// Takes a completion in. The card completes in order of submission.
    pub(crate) fn complete(&mut self, completion: &Completion) -> Result<Event, Violation> {
        let violation = |what: String| Err(Violation(what));
        let Some(sent) = self.sent.front() else {
            return violation(format!(
                "completion {} with nothing in the card",
                completion.cid
            ));
        };
        if sent.cid != completion.cid {
            return violation(format!(
                "completion {} where {} is next",
                completion.cid, sent.cid
            ));
        }
        let Some(status) = Status::from_code(completion.status) else {
            return violation(format!(
                "completion {} with status {}",
                completion.cid, completion.status
            ));
        };
        let Some(Sent { op: id, chunk, .. }) = self.sent.pop_front() else {
            return violation("no chunk in the card".to_owned());
        };
        let Some(state) = self.ops.get_mut(&id) else {
            return violation(format!(
                "completion {} of a finished operation",
                completion.cid
            ));
        };
        if status != Status::Ok {
            return Ok(Event::Failed {
                op: id,
                status,
                seq: completion.seq,
                contributors: completion.contributors,
            });
        }
        if (completion.bytes, completion.epoch) != (chunk.bytes, self.epoch) {
            return violation(format!(
                "completion {} of {} bytes in epoch {}, not of {} in {}",
                completion.cid, completion.bytes, completion.epoch, chunk.bytes, self.epoch
            ));
        }
        let has_result = matches!(state.op.action, Action::Pull | Action::PushPull);
        let certificate = &mut state.certificate;
        if has_result {
            certificate.contributors &= completion.contributors;
        }
        certificate.bytes += u64::from(chunk.bytes);
        certificate.non_finite |= completion.flags.contains(CompletionFlags::NON_FINITE);
        certificate.timestamp = completion.timestamp;
        state.done += 1;
        let finished = (state.done == state.total).then_some(Certificate {
            contributors: if has_result {
                certificate.contributors
            } else {
                0
            },
            ..*certificate
        });
        if finished.is_some() {
            self.ops.remove(&id);
        }
        Ok(Event::Done {
            op: id,
            chunk,
            crc: has_result.then_some(completion.crc),
            finished,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn op(seq: u32, bytes: u64) -> Op {
        Op {
            name: "w".into(),
            action: Action::PushPull,
            kind: Kind::Sum,
            seq,
            bytes,
        }
    }

    fn ok(out: &Outgoing) -> Completion {
        Completion {
            cid: out.cid,
            status: 0,
            flags: CompletionFlags(0),
            bytes: out.chunk.bytes,
            epoch: 5,
            crc: 0,
            contributors: 3,
            timestamp: 9,
            seq: out.seq,
            count: 2,
            sq_head: 0,
            queue: 0,
            phase: true,
        }
    }

    #[test]
    fn completions_out_of_place_are_violations() {
        let mut flow = Flow::new(1024, 5, true);
        flow.begin(op(0, 100_000));
        let first = flow.next().unwrap();
        let second = flow.next().unwrap();
        assert!(flow.complete(&ok(&second)).is_err());
        assert!(
            flow.complete(&Completion {
                epoch: 6,
                ..ok(&first)
            })
            .is_err()
        );
        let mut flow = Flow::new(1024, 5, true);
        assert!(flow.complete(&ok(&first)).is_err());
        flow.begin(op(0, 4));
        let first = flow.next().unwrap();
        assert!(
            flow.complete(&Completion {
                status: 200,
                ..ok(&first)
            })
            .is_err()
        );
        assert!(matches!(
            flow.complete(&Completion {
                status: Status::Mismatch.code(),
                ..ok(&first)
            }),
            Ok(Event::Failed {
                status: Status::Mismatch,
                ..
            })
        ));
    }

    proptest! {
        /// Whatever the lengths and the room in the ring: chunks leave in order, operations finish in order, once each.
        #[test]
        fn everything_finishes_once_and_in_order(lengths in prop::collection::vec(1..200_000u64, 1..20), ring in 1..9usize, seed: u64) {
            let mut flow = Flow::new(1024, 5, false);
            let mut seq = 0u32;
            let mut ids = VecDeque::new();
            for &bytes in &lengths {
                ids.push_back((flow.begin(op(seq, bytes)), bytes));
                seq += bytes.div_ceil(1024) as u32;
            }
            let (mut card, mut random, mut next_seq) = (VecDeque::new(), seed | 1, 0u32);
            while !flow.is_idle() {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                if random >> 63 == 0 && card.len() < ring && let Some(out) = flow.next() {
                    prop_assert_eq!(out.seq, next_seq);
                    next_seq += out.chunk.bytes.div_ceil(1024);
                    card.push_back(out);
                } else if let Some(out) = card.pop_front() {
                    let Ok(Event::Done { op, finished, .. }) = flow.complete(&ok(&out)) else {
                        return Err(TestCaseError::fail("completion refused"));
                    };
                    prop_assert_eq!(flow.in_card(), card.len());
                    if let Some(certificate) = finished {
                        let (id, bytes) = ids.pop_front().unwrap();
                        prop_assert_eq!(op, id);
                        prop_assert_eq!((certificate.bytes, certificate.contributors), (bytes, 3));
                    }
                }
            }
            prop_assert!(ids.is_empty() && next_seq == seq);
        }
    }
}
