// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A card that can be pulled out of its slot.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use phub_pci::{Memory, PciError, PciFunction};

/// A card and its slot. Once pulled it is what a host sees of an empty slot: every read gives ones, every write goes nowhere, no
/// memory is touched and no interrupt comes.
pub struct Pluggable {
    card: Box<dyn PciFunction>,
    pulled: AtomicBool,
}

impl Pluggable {
    /// `card`, in its slot.
    pub fn new(card: Box<dyn PciFunction>) -> Self {
        Self {
            card,
            pulled: AtomicBool::new(false),
        }
    }

    /// Pulls it, for good.
    ///
    /// # Errors
    /// What the reset says that ends its work.
    pub fn pull(&self) -> Result<(), PciError> {
        self.pulled.store(true, Ordering::SeqCst);
        self.card.reset()
    }

    fn there(&self) -> Option<&dyn PciFunction> {
        (!self.pulled.load(Ordering::SeqCst)).then_some(&*self.card)
    }
}

impl PciFunction for Pluggable {
    fn address(&self) -> String {
        self.card.address()
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<(), PciError> {
        match self.there() {
            Some(card) => card.config_read(offset, data),
            None => {
                data.fill(0xff);
                Ok(())
            }
        }
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<(), PciError> {
        self.there()
            .map_or(Ok(()), |card| card.config_write(offset, data))
    }

    fn bar_bytes(&self) -> u32 {
        self.card.bar_bytes()
    }

    fn bar_read(&self, offset: u32) -> Result<u32, PciError> {
        self.there()
            .map_or(Ok(u32::MAX), |card| card.bar_read(offset))
    }

    fn bar_write(&self, offset: u32, value: u32) -> Result<(), PciError> {
        self.there()
            .map_or(Ok(()), |card| card.bar_write(offset, value))
    }

    // The IOMMU stays, and so do the host's mappings.
    fn dma_map(&self, iova: u64, memory: &Memory, offset: u64, len: u64) -> Result<(), PciError> {
        self.card.dma_map(iova, memory, offset, len)
    }

    fn dma_unmap(&self, iova: u64, len: u64) -> Result<(), PciError> {
        self.card.dma_unmap(iova, len)
    }

    fn vectors(&self) -> usize {
        self.card.vectors()
    }

    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> Result<(), PciError> {
        self.card.set_interrupts(eventfds)
    }

    fn reset(&self) -> Result<(), PciError> {
        self.card.reset()
    }

    fn relax(&self) {
        self.card.relax();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phub_abi::MAGIC;
    use phub_model::{GoldenCard, Params};

    #[test]
    fn an_empty_slot_reads_as_ones() {
        let card = Pluggable::new(Box::new(GoldenCard::new(Params::default())));
        assert_eq!(card.bar_read(0).unwrap(), MAGIC);
        card.pull().unwrap();
        card.bar_write(0x20, 1).unwrap();
        let mut id = [0; 4];
        card.config_read(0, &mut id).unwrap();
        assert_eq!((card.bar_read(0).unwrap(), id), (u32::MAX, [0xff; 4]));
    }
}
