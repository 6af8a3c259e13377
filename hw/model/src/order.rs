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

#[cfg(test)]
mod tests {
    use super::*;

    fn contribution(worker: u8, seq: u32) -> Contribution {
        Contribution {
            tenant: 0,
            worker,
            seq,
            abstain: false,
        }
    }

    #[test]
    fn round_robin_takes_turns() {
        let all = [(0, None), (3, None), (7, None)];
        let mut last = 0;
        let mut taken = Vec::new();
        for _ in 0..6 {
            last = Order::RoundRobin.choose(&all, last).unwrap();
            taken.push(last);
        }
        assert_eq!(taken, [3, 7, 0, 3, 7, 0]);
        assert_eq!(Order::RoundRobin.choose(&[], 0), None);
    }

    #[test]
    fn random_takes_all_and_repeats() {
        let all = [(0, None), (1, None), (2, None)];
        let draw = |seed| {
            let mut order = Order::Random(seed);
            (0..50)
                .map(|_| order.choose(&all, 0).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
        assert!((0..3).all(|q| draw(0).contains(&q)));
    }

    #[test]
    fn a_recording_waits_for_its_turn() {
        let tape = [contribution(1, 0), contribution(0, 0), contribution(1, 1)];
        let mut order = Order::Recorded(tape.into_iter().collect());
        let zero = (0, Some(contribution(0, 0)));
        assert_eq!(order.choose(&[zero], 0), None, "worker 1 is first");
        let one = (1, Some(contribution(1, 0)));
        assert_eq!(order.choose(&[zero, one], 0), Some(1));
        order.joined(&contribution(1, 0));
        let next = (1, Some(contribution(1, 1)));
        assert_eq!(order.choose(&[zero, next], 0), Some(0));
        // What is not on the tape, or will be refused, holds nobody up and goes at once if nothing else can.
        let stranger = (2, Some(contribution(9, 9)));
        assert_eq!(order.choose(&[next, stranger], 0), Some(2));
        assert_eq!(order.choose(&[next, (4, None)], 0), Some(4));
    }
}
