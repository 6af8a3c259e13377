// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Which aggregation slots belong to a tenant: a buddy allocator, as a tenant's slots are an aligned power of two.

use std::collections::BTreeSet;

/// Free ranges by the log2 of their size; each begins at a multiple of its size.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Vec<BTreeSet<u32>>,
}

impl Slots {
    /// `1 << log2` free slots.
    pub(crate) fn new(log2: u32) -> Self {
        let mut free = vec![BTreeSet::new(); log2 as usize + 1];
        free[log2 as usize].insert(0);
        Self { free }
    }

    /// The first of `1 << log2` slots nobody else has.
    pub(crate) fn allocate(&mut self, log2: u32) -> Option<u32> {
        let from = (log2 as usize..self.free.len()).find(|l| !self.free[*l].is_empty())?;
        let base = self.free[from].pop_first()?;
        for half in log2 as usize..from {
            self.free[half].insert(base + (1 << half));
        }
        Some(base)
    }

    /// Gives back what [`Slots::allocate`] gave.
    pub(crate) fn release(&mut self, mut base: u32, log2: u32) {
        let mut log2 = log2 as usize;
        while log2 + 1 < self.free.len() && self.free[log2].remove(&(base ^ 1 << log2)) {
            base &= !(1 << log2);
            log2 += 1;
        }
        let new = self.free[log2].insert(base);
        debug_assert!(new, "slots {base} released twice");
    }

    /// log2 of the largest range that is free.
    pub(crate) fn largest(&self) -> Option<u32> {
        self.free
            .iter()
            .rposition(|f| !f.is_empty())
            .map(|l| l as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_never_overlap_and_merge_again(
            steps in prop::collection::vec((0u32..=6, any::<prop::sample::Index>()), 1..100),
        ) {
            let mut slots = Slots::new(6);
            let mut taken: Vec<(u32, u32)> = Vec::new();
            let mut owner = [false; 64];
            for (log2, pick) in steps {
                if let Some(base) = slots.allocate(log2) {
                    prop_assert!(base.is_multiple_of(1 << log2));
                    for slot in base..base + (1 << log2) {
                        prop_assert!(!std::mem::replace(&mut owner[slot as usize], true));
                    }
                    taken.push((base, log2));
                } else {
                    prop_assert!(slots.largest().is_none_or(|l| l < log2));
                    let (base, log2) = taken.swap_remove(pick.index(taken.len()));
                    owner[base as usize..][..1 << log2].fill(false);
                    slots.release(base, log2);
                }
            }
            for (base, log2) in taken {
                slots.release(base, log2);
            }
            prop_assert_eq!(slots.allocate(6), Some(0));
        }
    }

    #[test]
    fn more_than_there_is_cannot_be_had() {
        let mut slots = Slots::new(2);
        assert_eq!(slots.allocate(3), None);
        assert_eq!(slots.allocate(2), Some(0));
        assert_eq!((slots.allocate(0), slots.largest()), (None, None));
    }
}
