// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The IOMMU in front of a simulated card: which shared memory lies at which IOVA.

use std::{collections::BTreeMap, ops::Range, sync::atomic::Ordering};

use phub_abi::PAGE;

use crate::{Memory, PciError};

/// A piece of shared memory the card may read and write.
#[derive(Clone, Debug)]
struct Mapping {
    memory: Memory,
    offset: u64,
    len: u64,
}

/// Mappings by their first IOVA; they do not overlap.
#[derive(Clone, Debug, Default)]
pub struct DmaMap(BTreeMap<u64, Mapping>);

impl DmaMap {
    /// Lets the card use `memory[offset..offset + len]` at `iova`.
    ///
    /// # Errors
    /// [`PciError::Mapping`] if a number is not a multiple of 4096, the range leaves the memory or
    /// the address space, or overlaps another mapping.
    pub fn map(
        &mut self,
        iova: u64,
        memory: &Memory,
        offset: u64,
        len: u64,
    ) -> Result<(), PciError> {
        let refused = |reason: &str| {
            Err(PciError::Mapping {
                iova,
                len,
                reason: reason.into(),
            })
        };
        if [iova, offset, len].iter().any(|n| !n.is_multiple_of(PAGE)) || len == 0 {
            return refused("not whole pages");
        }
        if offset.checked_add(len).is_none_or(|end| end > memory.len()) {
            return refused("leaves the memory");
        }
        let Some(last) = iova.checked_add(len - 1) else {
            return refused("leaves the address space");
        };
        let before = self.0.range(..=last).next_back();
        if before.is_some_and(|(at, m)| at + (m.len - 1) >= iova) {
            return refused("overlaps another mapping");
        }
        self.0.insert(
            iova,
            Mapping {
                memory: memory.clone(),
                offset,
                len,
            },
        );
        Ok(())
    }

    /// Takes a mapping back, exactly as it was made.
    ///
    /// # Errors
    /// [`PciError::Mapping`] if there is none like it.
    pub fn unmap(&mut self, iova: u64, len: u64) -> Result<(), PciError> {
        if self.0.get(&iova).is_none_or(|m| m.len != len) {
            return Err(PciError::Mapping {
                iova,
                len,
                reason: "no such mapping".into(),
            });
        }
        self.0.remove(&iova);
        Ok(())
    }

    /// Reads what lies at `iova`, page by page; `false` if a page is not mapped.
    pub fn read(&self, iova: u64, data: &mut [u8]) -> bool {
        self.walk(iova, data.len(), |memory, offset, piece| {
            memory.read_at(offset, &mut data[piece]).is_ok()
        })
    }

    /// Writes at `iova`, page by page; `false` if a page is not mapped.
    ///
    /// An aligned last dword is written after everything else, with release ordering: the phase bit of a
    /// completion lies there, and whoever sees it sees all that was written before.
    pub fn write(&self, iova: u64, data: &[u8]) -> bool {
        self.walk(iova, data.len(), |memory, offset, piece| {
            let data = &data[piece];
            match data.split_last_chunk() {
                Some((head, last)) if (offset + head.len() as u64).is_multiple_of(4) => {
                    let (at, last) = (offset + head.len() as u64, u32::from_le_bytes(*last));
                    memory.write_at(offset, head).is_ok()
                        && memory.store_u32(at, last, Ordering::Release).is_ok()
                }
                _ => memory.write_at(offset, data).is_ok(),
            }
        })
    }

    /// Calls `access(memory, offset, range of the data)` for each piece of an access, in order, page by
    /// page as the card's bursts go; `false` if a page is not mapped or an access fails.
    fn walk(
        &self,
        iova: u64,
        len: usize,
        mut access: impl FnMut(&Memory, u64, Range<usize>) -> bool,
    ) -> bool {
        let mut done = 0;
        let mut whole = true;
        while done < len {
            let Some(at) = iova.checked_add(done as u64) else {
                return false;
            };
            let piece = (len - done).min((PAGE - at % PAGE) as usize);
            whole &= match self.0.range(..=at).next_back() {
                Some((base, m)) if at - base < m.len => {
                    access(&m.memory, m.offset + (at - base), done..done + piece)
                }
                _ => false,
            };
            done += piece;
        }
        whole
    }
}
