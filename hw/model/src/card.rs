// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The golden model as a PCI function in this process.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use phub_abi::BAR0_BYTES;
use phub_pci::config::{ConfigEffect, ConfigSpace};
use phub_pci::dma::DmaMap;
use phub_pci::{Memory, PciError, PciFunction};

use crate::Params;
use crate::csr::Csr;
use crate::hub::Host;
use crate::order::{Contribution, Order};

/// The golden card. Every register write runs the model until nothing can move, so that whoever polls never waits.
#[derive(Debug)]
pub struct GoldenCard {
    params: Params,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    csr: Csr,
    config: ConfigSpace,
    dma: DmaMap,
    eventfds: Vec<OwnedFd>,
}

impl Host for DmaMap {
    fn read(&self, iova: u64, data: &mut [u8]) -> bool {
        self.read(iova, data)
    }

    fn write(&self, iova: u64, data: &[u8]) -> bool {
        self.write(iova, data)
    }
}

/// Host memory while the function may not master the bus.
struct NoHost;

impl Host for NoHost {
    fn read(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn write(&self, _: u64, _: &[u8]) -> bool {
        false
    }
}

impl GoldenCard {
    /// A card that serves its queues in turn.
    pub fn new(params: Params) -> Self {
        Self::with_order(params, Order::RoundRobin)
    }

    /// A card that takes contributions in the given order.
    pub fn with_order(params: Params, order: Order) -> Self {
        let state = State {
            csr: Csr::new(params, order),
            config: ConfigSpace::new(params.vectors() as u16),
            dma: DmaMap::default(),
            eventfds: Vec::new(),
        };
        Self {
            params,
            state: Mutex::new(state),
        }
    }

    /// Takes the list of what has joined since the last call, in order. The first call starts the list.
    pub fn take_trace(&self) -> Vec<Contribution> {
        self.lock()
            .csr
            .hub
            .trace
            .replace(Vec::new())
            .unwrap_or_default()
    }

    /// Contributions of a recorded order that have not come yet; 0 for other orders.
    pub fn unplayed(&self) -> usize {
        match &self.lock().csr.hub.order {
            Order::Recorded(recording) => recording.remaining(),
            _ => 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The model has no invariant that a panic of another thread could have left broken for good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, offset: u32) -> Result<(), PciError> {
        if offset >= BAR0_BYTES || !offset.is_multiple_of(4) {
            return Err(PciError::OutOfRange {
                region: "BAR0",
                offset: offset.into(),
                len: 4,
            });
        }
        Ok(())
    }
}

impl State {
    fn write(&mut self, offset: u32, value: u32) {
        let master = self.config.bus_master();
        self.csr
            .write(offset, value, if master { &self.dma } else { &NoHost });
        let vectors = self.csr.hub.take_interrupts();
        for eventfd in vectors
            .iter()
            .filter_map(|v| self.eventfds.get(usize::from(*v)))
        {
            if master && let Err(error) = rustix::io::write(eventfd, &1u64.to_ne_bytes()) {
                tracing::warn!(%error, "interrupt lost");
            }
        }
    }

    fn reset(&mut self) {
        let trace = self.csr.hub.trace.take();
        self.csr = Csr::new(self.csr.hub.params, self.csr.hub.order.clone());
        self.csr.hub.trace = trace;
        self.config.reset();
    }
}

impl PciFunction for GoldenCard {
    fn address(&self) -> String {
        "model".into()
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<(), PciError> {
        self.lock().config.read(offset, data)
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<(), PciError> {
        let mut state = self.lock();
        if state.config.write(offset, data)? == ConfigEffect::Reset {
            state.reset();
        }
        Ok(())
    }

    fn bar_bytes(&self) -> u32 {
        BAR0_BYTES
    }

    fn bar_read(&self, offset: u32) -> Result<u32, PciError> {
        self.check(offset)?;
        Ok(self.lock().csr.read(offset))
    }

    fn bar_write(&self, offset: u32, value: u32) -> Result<(), PciError> {
        self.check(offset)?;
        self.lock().write(offset, value);
        Ok(())
    }

    fn dma_map(&self, iova: u64, memory: &Memory, offset: u64, len: u64) -> Result<(), PciError> {
        self.lock().dma.map(iova, memory, offset, len)
    }

    fn dma_unmap(&self, iova: u64, len: u64) -> Result<(), PciError> {
        self.lock().dma.unmap(iova, len)
    }

    fn vectors(&self) -> usize {
        self.params.vectors() as usize
    }

    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> Result<(), PciError> {
        if eventfds.len() > self.vectors() {
            return Err(PciError::Vectors {
                wanted: eventfds.len(),
                available: self.vectors(),
            });
        }
        let duplicates: Result<Vec<_>, _> =
            eventfds.iter().map(|fd| fd.try_clone_to_owned()).collect();
        self.lock().eventfds = duplicates.map_err(|source| PciError::System {
            what: "duplicating an eventfd".into(),
            source,
        })?;
        Ok(())
    }

    fn reset(&self) -> Result<(), PciError> {
        self.lock().reset();
        Ok(())
    }
}
