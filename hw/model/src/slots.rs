// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Slots: who has joined a round, who has left it, and the sum so far.

use phub_abi::Status;

use crate::arith;

/// One segment of one descriptor, as it asks to join a round.
#[derive(Clone, Copy, Debug)]
pub struct Join {
    /// Who asks.
    pub tenant: u8,
    /// Rank of the worker in its tenant.
    pub worker: u8,
    /// World size of the tenant.
    pub workers: u8,
    /// Sequence number of the segment.
    pub seq: u32,
    /// What the chunk is.
    pub key: u32,
    /// Bytes of the segment.
    pub bytes: u32,
    /// Leaves at once: it will not pull.
    pub waive: bool,
}

/// What a join did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The worker had not joined before: it has now.
    pub taken: bool,
    /// The round became complete by it.
    pub completed: bool,
}

/// The answer to "may I have the result of this sequence number?"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Not yet.
    Wait,
    /// Never: the slot has moved past it.
    Stale,
    /// Now.
    Ready,
}

/// Room for one segment's sum and its bookkeeping.
#[derive(Clone, Debug)]
pub struct Slot {
    /// A round is in progress, or its result is not yet pulled by all.
    pub open: bool,
    /// Never used in this epoch: any sequence number may open it.
    pub fresh: bool,
    /// Of the round, or of the last one.
    pub tenant: u8,
    /// World size of the tenant.
    pub workers: u8,
    /// Sequence number of the round, or of the last one.
    pub seq: u32,
    /// What the first to join said the chunk is.
    pub key: u32,
    /// Bytes of the segment.
    pub bytes: u32,
    /// One bit a worker: contributed or abstained.
    pub joined: u64,
    /// One bit a worker: contributed.
    pub contributed: u64,
    /// One bit a worker: pulled or waived.
    pub left: u64,
    /// Logical time at which the round was opened.
    pub since: u64,
    /// FP32 bits of the sum; empty while nobody has contributed.
    pub sum: Vec<u32>,
}

impl Slot {
    const FRESH: Self = Self {
        open: false,
        fresh: true,
        tenant: 0,
        workers: 0,
        seq: 0,
        key: 0,
        bytes: 0,
        joined: 0,
        contributed: 0,
        left: 0,
        since: 0,
        sum: Vec::new(),
    };

    /// Whether all workers have joined.
    pub fn complete(&self) -> bool {
        self.open && self.joined == all(self.workers)
    }

    /// Whether it is open for this round of this tenant.
    pub fn is_at(&self, tenant: u8, seq: u32) -> bool {
        self.open && self.tenant == tenant && self.seq == seq
    }

    fn free_if_done(&mut self) {
        if self.complete() && self.left == all(self.workers) {
            self.open = false;
        }
    }
}

/// All slots of the card, of all tenants.
#[derive(Clone, Debug)]
pub struct Slots(Vec<Slot>);

impl Slots {
    /// `count` slots, all fresh.
    pub fn new(count: u32) -> Self {
        Self(vec![Slot::FRESH; count as usize])
    }

    /// The slot with this number.
    pub fn get(&self, slot: usize) -> Option<&Slot> {
        self.0.get(slot)
    }

    /// Forgets a slot: any sequence number may open it.
    pub fn clear(&mut self, slot: usize) {
        self.0[slot] = Slot::FRESH;
    }

    /// Whether a segment has to wait for an older round to end before it may join.
    pub fn waits(&self, slot: usize, seq: u32) -> bool {
        self.0[slot].open && newer(seq, self.0[slot].seq)
    }

    /// A contribution: stored if it is the first, else added.
    pub fn contribute(
        &mut self,
        slot: usize,
        join: Join,
        payload: &[u32],
        now: u64,
    ) -> Result<Joined, Status> {
        let s = &mut self.0[slot];
        s.admit(join, now)?;
        if s.joined & bit(join.worker) != 0 {
            return Err(Status::Duplicate);
        }
        if s.contributed == 0 {
            s.sum = payload.iter().map(|value| arith::store(*value)).collect();
        } else {
            s.sum
                .iter_mut()
                .zip(payload)
                .for_each(|(sum, value)| *sum = arith::add(*sum, *value));
        }
        s.contributed |= bit(join.worker);
        Ok(s.join(join))
    }

    /// An abstention, unless the worker has joined already or the slot is past this round.
    pub fn abstain(&mut self, slot: usize, join: Join, now: u64) -> Result<Joined, Status> {
        let s = &mut self.0[slot];
        let nothing = Ok(Joined {
            taken: false,
            completed: false,
        });
        let past = !s.fresh && !newer(join.seq, s.seq);
        let same = s.is_at(join.tenant, join.seq);
        match s.admit(join, now) {
            Ok(()) if s.joined & bit(join.worker) != 0 => nothing,
            Ok(()) => Ok(s.join(join)),
            Err(_) if past && !same => nothing,
            Err(status) => Err(status),
        }
    }

    /// Whether the result of `seq` is there for a worker.
    pub fn look(&self, slot: usize, tenant: u8, worker: u8, seq: u32) -> Look {
        let s = &self.0[slot];
        if s.is_at(tenant, seq) {
            if s.left & bit(worker) != 0 {
                Look::Stale
            } else if s.complete() {
                Look::Ready
            } else {
                Look::Wait
            }
        } else if !s.fresh && (!newer(seq, s.seq) || (s.open && s.tenant != tenant)) {
            Look::Stale
        } else {
            Look::Wait
        }
    }

    /// A worker has its result.
    pub fn leave(&mut self, slot: usize, worker: u8) {
        let s = &mut self.0[slot];
        s.left |= bit(worker);
        s.free_if_done();
    }
}

impl Slot {
    /// Finds the round open as the segment says, or opens it.
    fn admit(&mut self, join: Join, now: u64) -> Result<(), Status> {
        if !self.open {
            if !self.fresh && !newer(join.seq, self.seq) {
                return Err(Status::StaleSeq);
            }
            *self = Self {
                open: true,
                fresh: false,
                tenant: join.tenant,
                workers: join.workers,
                seq: join.seq,
                key: join.key,
                bytes: join.bytes,
                since: now,
                ..Self::FRESH
            };
            return Ok(());
        }
        if self.tenant != join.tenant {
            Err(Status::Mismatch)
        } else if self.seq != join.seq {
            Err(Status::StaleSeq)
        } else if self.key != join.key || self.bytes != join.bytes {
            Err(Status::Mismatch)
        } else {
            Ok(())
        }
    }

    fn join(&mut self, join: Join) -> Joined {
        self.joined |= bit(join.worker);
        if join.waive {
            self.left |= bit(join.worker);
        }
        let completed = self.complete();
        self.free_if_done();
        Joined {
            taken: true,
            completed,
        }
    }
}

/// Whether sequence number `a` comes after `b`; they wrap.
pub fn newer(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

fn bit(worker: u8) -> u64 {
    1 << worker
}

fn all(workers: u8) -> u64 {
    u64::MAX >> (64 - workers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORKERS: u8 = 3;

    fn join(worker: u8, seq: u32) -> Join {
        Join {
            tenant: 1,
            worker,
            workers: WORKERS,
            seq,
            key: 7,
            bytes: 4,
            waive: false,
        }
    }

    fn one(slots: &mut Slots, worker: u8, seq: u32) -> Result<Joined, Status> {
        slots.contribute(0, join(worker, seq), &[1.0f32.to_bits()], 0)
    }

    const TAKEN: Joined = Joined {
        taken: true,
        completed: false,
    };
    const NOTHING: Joined = Joined {
        taken: false,
        completed: false,
    };
    const LAST: Joined = Joined {
        taken: true,
        completed: true,
    };

    #[test]
    fn a_round_from_first_to_last() {
        let mut slots = Slots::new(2);
        assert_eq!(one(&mut slots, 0, 8), Ok(TAKEN));
        assert_eq!(one(&mut slots, 0, 8), Err(Status::Duplicate));
        assert_eq!(slots.abstain(0, join(0, 8), 0), Ok(NOTHING));
        assert_eq!(slots.abstain(0, join(2, 8), 0), Ok(TAKEN));
        assert_eq!(slots.look(0, 1, 0, 8), Look::Wait);
        assert_eq!(one(&mut slots, 1, 8), Ok(LAST));
        assert_eq!(slots.get(0).map(|s| s.sum[0]), Some(2.0f32.to_bits()));
        for worker in 0..WORKERS {
            assert!(
                slots.waits(0, 10),
                "a newer round waits until all have left"
            );
            assert_eq!(slots.look(0, 1, worker, 8), Look::Ready);
            slots.leave(0, worker);
            assert_eq!(slots.look(0, 1, worker, 8), Look::Stale);
        }
        assert!(!slots.waits(0, 10));
        assert_eq!(one(&mut slots, 1, 8), Err(Status::StaleSeq));
        assert_eq!(slots.abstain(0, join(1, 6), 0), Ok(NOTHING));
        assert_eq!(one(&mut slots, 1, 10), Ok(TAKEN));
    }

    #[test]
    fn what_differs_is_refused() {
        let mut slots = Slots::new(2);
        one(&mut slots, 0, 8).unwrap();
        for (wrong, status) in [
            (
                Join {
                    key: 8,
                    ..join(1, 8)
                },
                Status::Mismatch,
            ),
            (
                Join {
                    bytes: 8,
                    ..join(1, 8)
                },
                Status::Mismatch,
            ),
            (
                Join {
                    tenant: 2,
                    ..join(1, 8)
                },
                Status::Mismatch,
            ),
            (join(1, 6), Status::StaleSeq),
            (join(1, 10), Status::StaleSeq),
        ] {
            assert_eq!(
                slots.contribute(0, wrong, &[0], 0),
                Err(status),
                "{wrong:?}"
            );
        }
        assert_eq!(slots.get(0).map(|s| s.joined), Some(1));
    }

    #[test]
    fn waiving_by_all_frees_at_once() {
        let mut slots = Slots::new(1);
        for worker in 0..WORKERS {
            let waiving = Join {
                waive: true,
                ..join(worker, 3)
            };
            let joined = slots.contribute(0, waiving, &[0], 0);
            assert_eq!(joined.map(|j| j.completed), Ok(worker == WORKERS - 1));
        }
        assert_eq!(slots.get(0).map(|s| s.open), Some(false));
    }

    #[test]
    fn sixty_four_workers() {
        let mut slots = Slots::new(1);
        for worker in 0..64 {
            let joined = slots.abstain(
                0,
                Join {
                    workers: 64,
                    ..join(worker, 3)
                },
                0,
            );
            assert_eq!(joined.map(|j| j.completed), Ok(worker == 63));
        }
    }

    #[test]
    fn newer_wraps() {
        assert!(newer(0, u32::MAX));
        assert!(newer(0x7fff_ffff, 0));
        assert!(!newer(0x8000_0000, 0));
        assert!(!newer(5, 5));
    }

    proptest! {
        /// Whatever is asked in whatever order: who contributed has joined, a round counts each worker once, and a slot
        /// never goes back.
        #[test]
        fn invariants(steps in prop::collection::vec((0u8..4, 0u8..WORKERS, 0u32..6), 1..200)) {
            let mut slots = Slots::new(1);
            let mut last = None;
            for (op, worker, seq) in steps {
                let before = slots.get(0).cloned().unwrap();
                let refused = match op {
                    0 => one(&mut slots, worker, seq).is_err(),
                    1 => slots.abstain(0, join(worker, seq), 0).is_err(),
                    2 => slots.contribute(0, Join { waive: true, ..join(worker, seq) }, &[0], 0).is_err(),
                    _ => {
                        if slots.look(0, 1, worker, seq) == Look::Ready {
                            slots.leave(0, worker);
                        }
                        false
                    }
                };
                let s = slots.get(0).unwrap();
                prop_assert_eq!(s.contributed & !s.joined, 0);
                prop_assert_eq!(s.joined & !all(WORKERS), 0);
                prop_assert!(!s.open || s.left != all(WORKERS) || !s.complete());
                prop_assert!(last.is_none_or(|l| !newer(l, s.seq)));
                if refused {
                    prop_assert_eq!((before.open, before.seq, before.joined), (s.open, s.seq, s.joined));
                }
                if !s.fresh {
                    last = Some(s.seq);
                }
            }
        }
    }
}
