// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! In which order contributions reach the adders: the one thing about a card that its specification leaves open.

use std::collections::{HashMap, VecDeque};

/// A segment that joined its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contribution {
    /// Tenant.
    pub tenant: u8,
    /// Worker.
    pub worker: u8,
    /// Sequence number of the segment.
    pub seq: u32,
    /// A PULL's abstention; nothing is added.
    pub abstain: bool,
}

/// How the next queue is chosen among those that could send a segment.
#[derive(Clone, Debug)]
pub enum Order {
    /// Each queue in turn.
    RoundRobin,
    /// By a random number generator with this state.
    Random(u64),
    /// As another card did it.
    Recorded(Recording),
}

impl Order {
    /// Chooses one of `candidates` (queue, and what it would contribute; nothing if it will be refused; in order of the
    /// queues), or none: a recording may wait for a queue that has nothing to send yet. `last` is the queue of the last
    /// choice.
    pub(crate) fn choose(
        &mut self,
        candidates: &[(usize, Option<Contribution>)],
        last: usize,
    ) -> Option<usize> {
        let first = candidates.first()?;
        let (queue, _) = match self {
            Self::RoundRobin => candidates.iter().find(|(q, _)| *q > last).unwrap_or(first),
            Self::Random(state) => {
                &candidates[(next_random(state) % candidates.len() as u64) as usize]
            }
            Self::Recorded(recording) => {
                let next = recording.next.front();
                let later = |c: &Contribution| recording.left.contains_key(c);
                candidates
                    .iter()
                    .find(|(_, c)| c.is_none() || c.as_ref() == next)
                    .or_else(|| {
                        candidates
                            .iter()
                            .find(|(_, c)| !c.as_ref().is_some_and(later))
                    })?
            }
        };
        Some(*queue)
    }

    /// A contribution has joined.
    pub(crate) fn joined(&mut self, contribution: &Contribution) {
        if let Self::Recorded(recording) = self {
            recording.play(contribution);
        }
    }
}

/// The contributions of another card's run, yet to be repeated.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    next: VecDeque<Contribution>,
    left: HashMap<Contribution, usize>,
}

impl Recording {
    /// Contributions still to come.
    pub fn remaining(&self) -> usize {
        self.next.len()
    }

    fn play(&mut self, done: &Contribution) {
        if self.next.front() == Some(done) {
            self.next.pop_front();
            if let Some(n) = self.left.get_mut(done) {
                *n -= 1;
                if *n == 0 {
                    self.left.remove(done);
                }
            }
        }
    }
}

impl FromIterator<Contribution> for Recording {
    fn from_iter<T: IntoIterator<Item = Contribution>>(contributions: T) -> Self {
        let mut recording = Self::default();
        for c in contributions {
            recording.next.push_back(c);
            *recording.left.entry(c).or_default() += 1;
        }
        recording
    }
}

/// xorshift64*, enough to shuffle with; a state of zero is taken as one.
fn next_random(state: &mut u64) -> u64 {
    let mut x = (*state).max(1);
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
}
