// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Sequence numbers: every operation takes the next ones, and all workers count alike.

use std::collections::VecDeque;

use super::Kind;

/// What this worker does in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Contribute; the result is pulled later.
    Push,
    /// Contribute, and give up the result.
    PushWaive,
    /// Take the result of an earlier push, or of the others.
    Pull,
    /// Contribute and take the result.
    PushPull,
}

/// Why an operation cannot be given sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlanError {
    /// A push that is to be pulled later needs a slot for each of its segments.
    PushTooLong {
        /// Segments of the push.
        segments: u64,
        /// Slots of the tenant.
        slots: u32,
    },
    /// The operation would wait for slots that an earlier push holds until it is pulled.
    Unpulled {
        /// Name of that push.
        name: String,
        /// Slots of the tenant.
        slots: u32,
    },
    /// A pull differs in length or kind from the push it belongs to.
    PullDiffers {
        /// Bytes pushed.
        pushed: u64,
        /// How they were pushed.
        kind: Kind,
    },
    /// More segments than sequence numbers can tell apart.
    TooLong {
        /// Bytes of the operation.
        bytes: u64,
    },
}

struct Unpulled {
    name: String,
    first: u32,
    bytes: u64,
    kind: Kind,
}

/// Hands out the sequence numbers of one worker in one epoch.
pub(crate) struct Sequencer {
    next: u32,
    segment_bytes: u32,
    slots: u32,
    unpulled: VecDeque<Unpulled>,
}

impl Sequencer {
    /// Starts at `first`, which all workers must agree on. `segment_bytes` is the card's, `slots` the tenant's.
    pub(crate) fn new(first: u32, segment_bytes: u32, slots: u32) -> Self {
        assert!(
            segment_bytes > 0 && slots > 0,
            "a card has slots of some size"
        );
        Self {
            next: first,
            segment_bytes,
            slots,
            unpulled: VecDeque::new(),
        }
    }

    /// First sequence number of the next operation: its own `bytes / segment` new ones, or those of the push it pulls.
    pub(crate) fn begin(
        &mut self,
        action: Action,
        kind: Kind,
        name: &str,
        bytes: u64,
    ) -> Result<u32, PlanError> {
        if action == Action::Pull
            && let Some(at) = self.unpulled.iter().position(|push| push.name == name)
        {
            let push = &self.unpulled[at];
            if (push.bytes, push.kind) != (bytes, kind) {
                return Err(PlanError::PullDiffers {
                    pushed: push.bytes,
                    kind: push.kind,
                });
            }
            let first = push.first;
            self.unpulled.remove(at);
            return Ok(first);
        }

        let segments = bytes.div_ceil(u64::from(self.segment_bytes));
        if segments > 1 << 30 {
            return Err(PlanError::TooLong { bytes });
        }
        if action == Action::Push && segments > u64::from(self.slots) {
            return Err(PlanError::PushTooLong {
                segments,
                slots: self.slots,
            });
        }
        let (first, end) = (self.next, self.next.wrapping_add(segments as u32));
        if let Some(oldest) = self
            .unpulled
            .iter()
            .max_by_key(|push| end.wrapping_sub(push.first))
            && end.wrapping_sub(oldest.first) > self.slots
        {
            return Err(PlanError::Unpulled {
                name: oldest.name.clone(),
                slots: self.slots,
            });
        }
        self.next = end;
        if action == Action::Push && bytes > 0 {
            self.unpulled.push_back(Unpulled {
                name: name.to_owned(),
                first,
                bytes,
                kind,
            });
        }
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sequencer(first: u32) -> Sequencer {
        Sequencer::new(first, 1024, 8)
    }

    #[test]
    fn operations_follow_each_other_across_the_wrap() {
        let mut s = sequencer(u32::MAX - 1);
        assert_eq!(
            s.begin(Action::PushPull, Kind::Sum, "a", 1025),
            Ok(u32::MAX - 1)
        );
        assert_eq!(s.begin(Action::Pull, Kind::Sum, "b", 4), Ok(0));
        assert_eq!(s.begin(Action::PushPull, Kind::Sum, "c", 0), Ok(1));
        assert_eq!(
            s.begin(Action::PushWaive, Kind::Broadcast, "d", 1024),
            Ok(1)
        );
        assert_eq!(s.begin(Action::PushPull, Kind::Sum, "e", 100 * 1024), Ok(2));
    }

    #[test]
    fn a_pull_takes_the_numbers_of_its_push() {
        let mut s = sequencer(0);
        assert_eq!(s.begin(Action::Push, Kind::Sum, "a", 2048), Ok(0));
        assert_eq!(s.begin(Action::Push, Kind::Mean, "b", 4), Ok(2));
        assert_eq!(s.begin(Action::Push, Kind::Sum, "a", 2048), Ok(3));
        let differs = PlanError::PullDiffers {
            pushed: 4,
            kind: Kind::Mean,
        };
        assert_eq!(s.begin(Action::Pull, Kind::Sum, "b", 4), Err(differs));
        assert_eq!(s.begin(Action::Pull, Kind::Mean, "b", 4), Ok(2));
        assert_eq!(s.begin(Action::Pull, Kind::Sum, "a", 2048), Ok(0));
        assert_eq!(s.begin(Action::Pull, Kind::Sum, "a", 2048), Ok(3));
        assert_eq!(s.begin(Action::Pull, Kind::Sum, "a", 2048), Ok(5));
    }

    #[test]
    fn what_could_never_finish_is_refused_and_takes_no_number() {
        let mut s = sequencer(0);
        assert_eq!(
            s.begin(Action::Push, Kind::Sum, "big", 9 * 1024),
            Err(PlanError::PushTooLong {
                segments: 9,
                slots: 8
            })
        );
        assert_eq!(s.begin(Action::Push, Kind::Sum, "a", 5 * 1024), Ok(0));
        let held = PlanError::Unpulled {
            name: "a".into(),
            slots: 8,
        };
        assert_eq!(
            s.begin(Action::PushPull, Kind::Sum, "b", 4 * 1024),
            Err(held.clone())
        );
        assert_eq!(s.begin(Action::Pull, Kind::Sum, "b", 4 * 1024), Err(held));
        assert_eq!(s.begin(Action::PushPull, Kind::Sum, "b", 3 * 1024), Ok(5));
        assert_eq!(s.begin(Action::Pull, Kind::Sum, "a", 5 * 1024), Ok(0));
        assert_eq!(s.begin(Action::PushPull, Kind::Sum, "b", 4 * 1024), Ok(8));
    }

    proptest! {
        /// Pushes that are not pulled never share a slot with each other or with anything after them.
        #[test]
        fn no_two_open_pushes_share_a_slot(first: u32, ops in prop::collection::vec((0..4u8, 0..4u8, 0..6000u64), 1..60)) {
            let mut s = sequencer(first);
            let mut open: Vec<(u8, u32, u32)> = Vec::new();
            for (action, name, bytes) in ops {
                let action = [Action::Push, Action::PushWaive, Action::Pull, Action::PushPull][usize::from(action)];
                let Ok(seq) = s.begin(action, Kind::Sum, &name.to_string(), bytes) else { continue };
                let end = seq.wrapping_add(bytes.div_ceil(1024) as u32);
                if action == Action::Pull
                    && let Some(at) = open.iter().position(|&(n, from, _)| n == name && from == seq) {
                    open.remove(at);
                    continue;
                }
                for &(_, from, _) in &open {
                    prop_assert!(end.wrapping_sub(from) <= 8);
                }
                if action == Action::Push && bytes > 0 {
                    open.push((name, seq, end));
                }
            }
        }
    }
}
