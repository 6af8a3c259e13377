// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Addresses under which the card sees memory.

use std::collections::BTreeMap;
use std::ops::Range;

use phub_abi::PAGE;

/// Addresses every IOMMU translates: above the window in which x86 writes are interrupts (0xfee0_0000), and
/// within the 39 bits of the narrowest ones (Intel's three-level tables, virtio-iommu).
const RANGE: Range<u64> = 1 << 32..1 << 39;
/// Alignment of what is at least that large, so that the IOMMU can use a huge page for it.
const HUGE: u64 = 2 << 20;

/// Address ranges in use, by their first address.
#[derive(Debug)]
pub(crate) struct Iovas {
    taken: BTreeMap<u64, u64>,
    /// Where the search begins. It goes round, so that an address given back stays unused for long: a late access
    /// of the card then meets no mapping instead of another worker's memory.
    next: u64,
}

impl Iovas {
    pub(crate) fn new() -> Self {
        Self {
            taken: BTreeMap::new(),
            next: RANGE.start,
        }
    }

    /// The first address of `len` bytes (whole pages) nobody else has, with an unused page behind them.
    pub(crate) fn allocate(&mut self, len: u64) -> Option<u64> {
        let iova = self
            .find(self.next, len)
            .or_else(|| self.find(RANGE.start, len))?;
        self.taken.insert(iova, len);
        self.next = iova + len + PAGE;
        Some(iova)
    }

    /// Gives back what [`Iovas::allocate`] gave.
    pub(crate) fn release(&mut self, iova: u64) {
        let known = self.taken.remove(&iova);
        debug_assert!(known.is_some(), "IOVA {iova:#x} released twice");
    }

    fn find(&self, from: u64, len: u64) -> Option<u64> {
        let align = if len < HUGE { PAGE } else { HUGE };
        let mut at = from.next_multiple_of(align);
        loop {
            let end = at
                .checked_add(len)?
                .checked_add(PAGE)
                .filter(|end| *end <= RANGE.end)?;
            match self.taken.range(..end).next_back() {
                Some((base, len)) if base + len + PAGE > at => {
                    at = (base + len + PAGE).next_multiple_of(align);
                }
                _ => return Some(at),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_keep_a_page_between_them(
            steps in prop::collection::vec((1u64..1 << 12, any::<prop::sample::Index>(), any::<bool>()), 1..60),
        ) {
            let mut iovas = Iovas::new();
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (pages, pick, free) in steps {
                if free && !taken.is_empty() {
                    iovas.release(taken.swap_remove(pick.index(taken.len())).0);
                    continue;
                }
                let len = pages * PAGE;
                let iova = iovas.allocate(len).unwrap();
                let align = if len < HUGE { PAGE } else { HUGE };
                prop_assert!(iova.is_multiple_of(align));
                prop_assert!(RANGE.contains(&iova) && iova + len <= RANGE.end);
                for (other, bytes) in &taken {
                    prop_assert!(iova + len + PAGE <= *other || other + bytes + PAGE <= iova);
                }
                taken.push((iova, len));
            }
        }
    }

    #[test]
    fn an_address_given_back_comes_again_only_when_the_others_are_used() {
        let mut iovas = Iovas::new();
        let third = (RANGE.end - RANGE.start) / 3;
        let len = third / HUGE * HUGE - HUGE;
        let first = iovas.allocate(len).unwrap();
        iovas.release(first);
        let second = iovas.allocate(len).unwrap();
        let last = iovas.allocate(len).unwrap();
        assert!(first != second && first != last && second != last);
        assert_eq!(iovas.allocate(len), Some(first));
        assert_eq!(iovas.allocate(len), None);
        assert_eq!(iovas.allocate(u64::MAX - 100), None);
    }
}
