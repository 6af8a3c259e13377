// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The Verilated card in this process, deterministic: its clock runs only inside calls.

use std::{
    os::fd::BorrowedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use phub_abi::BAR0_BYTES;
use phub_pci::{Memory, PciError, PciFunction};

use crate::{
    Parameters,
    card::{Card, CardConfig, Taken, check_bar, gone},
    failure::{Failure, SimError},
};

/// Cycles that one [`PciFunction::relax`] runs at most.
const SLICE: u32 = 256;

/// A Verilated card whose clock runs while a register is accessed and in [`PciFunction::relax`], on the caller's thread.
///
/// The same calls in the same order give the same cycles, whatever the machine does.
pub struct VerilatedCard {
    card: Mutex<Card>,
    vectors: usize,
    parameters: Parameters,
}

impl VerilatedCard {
    /// A card after power-on.
    pub fn new(config: CardConfig) -> Result<Self, SimError> {
        let card = Card::new(config)?;
        Ok(Self {
            vectors: card.vectors(),
            parameters: card.parameters(),
            card: Mutex::new(card),
        })
    }

    /// With which parameters the core was built.
    pub fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// Clock cycles since power-on.
    pub fn cycle(&self) -> u64 {
        self.lock().cycle()
    }

    /// Whether the card does nothing until a register is written.
    pub fn idle(&self) -> bool {
        self.lock().idle()
    }

    /// Runs the clock for `cycles`, or until the card is idle.
    pub fn run(&self, cycles: u32) -> Result<(), Failure> {
        self.lock().run(cycles)
    }

    /// Why the card stopped for good, if it has.
    pub fn failure(&self) -> Option<Failure> {
        self.lock().failure().cloned()
    }

    /// The contributions taken since the last call, in order; see [`CardConfig::contributions`].
    pub fn take_trace(&self) -> Vec<Taken> {
        self.lock().take_trace()
    }

    fn lock(&self) -> MutexGuard<'_, Card> {
        // A panic elsewhere leaves the card between two cycles at worst.
        self.card.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PciFunction for VerilatedCard {
    fn address(&self) -> String {
        "this process (simulated)".into()
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<(), PciError> {
        self.lock().config_read(offset, data)
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<(), PciError> {
        self.lock().config_write(offset, data)
    }

    fn bar_bytes(&self) -> u32 {
        BAR0_BYTES
    }

    fn bar_read(&self, offset: u32) -> Result<u32, PciError> {
        check_bar(offset)?;
        self.lock().read(offset).map_err(gone)
    }

    fn bar_write(&self, offset: u32, value: u32) -> Result<(), PciError> {
        check_bar(offset)?;
        self.lock().write(offset, value).map_err(gone)
    }

    fn dma_map(&self, iova: u64, memory: &Memory, offset: u64, len: u64) -> Result<(), PciError> {
        self.lock().map(iova, memory, offset, len)
    }

    fn dma_unmap(&self, iova: u64, len: u64) -> Result<(), PciError> {
        self.lock().unmap(iova, len)
    }

    fn vectors(&self) -> usize {
        self.vectors
    }

    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> Result<(), PciError> {
        self.lock().set_interrupts(eventfds)
    }

    fn reset(&self) -> Result<(), PciError> {
        self.lock().reset().map_err(gone)
    }

    fn relax(&self) {
        // A failure is reported by the next register access, and by `failure`.
        let _ = self.lock().run(SLICE);
    }
}
