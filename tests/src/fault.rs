// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A faulty card: any card, behind a layer that records what a driver does, and breaks what a test says.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use phub_pci::{Memory, PciError, PciFunction};

/// A kind of call a driver makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named as the methods of PciFunction")]
pub enum Call {
    ConfigRead,
    ConfigWrite,
    BarRead,
    BarWrite,
    Map,
    Unmap,
    Interrupts,
    Reset,
}

/// What happens to a call instead of what should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An unplugged card: reads give all ones, everything else does nothing and says it worked.
    AllOnes,
    /// A card whose simulator has ended.
    Gone,
    /// No answer.
    Timeout,
    /// The operating system refuses.
    Refuse,
}

/// What a driver did that changes the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Wrote a register.
    Write {
        /// Where.
        offset: u32,
        /// What.
        value: u32,
    },
    /// Mapped memory at an IOVA.
    Map(u64),
    /// Took the memory at an IOVA back.
    Unmap(u64),
    /// Connected that many interrupts.
    Interrupts(usize),
    /// Reset the function.
    Reset,
}

/// A card and its faults.
pub struct FaultCard {
    inner: Arc<dyn PciFunction>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Calls so far.
    calls: usize,
    broken: BTreeMap<Call, Fault>,
    /// From this call on, or only at this one, there is a fault.
    at: Option<(usize, Fault, bool)>,
    lies: BTreeMap<u32, u32>,
    deaf: Vec<u32>,
    delay: Duration,
    /// Kinds of calls that met a fault.
    hit: BTreeSet<Call>,
    events: Vec<Event>,
    mapped: BTreeMap<u64, u64>,
}

impl FaultCard {
    /// A card without faults so far.
    pub fn new(inner: Arc<dyn PciFunction>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            state: Mutex::default(),
        })
    }

    /// From now on, calls of this kind fail.
    pub fn break_call(&self, call: Call, fault: Fault) {
        self.state().broken.insert(call, fault);
    }

    /// From now on, all calls fail.
    pub fn break_all(&self, fault: Fault) {
        self.fail_at(0, fault, false);
    }

    /// The call with this number fails, counted from now; and if not `once`, all after it.
    pub fn fail_at(&self, call: usize, fault: Fault, once: bool) {
        let mut state = self.state();
        state.at = Some((state.calls + call, fault, once));
    }

    /// From now on, reading this register gives this value.
    pub fn lie(&self, offset: u32, value: u32) {
        self.state().lies.insert(offset, value);
    }

    /// From now on, writes of this register do nothing.
    pub fn ignore_writes(&self, offset: u32) {
        self.state().deaf.push(offset);
    }

    /// From now on, every call takes that much longer.
    pub fn delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// From now on, the card works.
    pub fn heal(&self) {
        let mut state = self.state();
        (state.broken, state.lies, state.deaf) = Default::default();
        (state.at, state.delay) = (None, Duration::ZERO);
    }

    /// Number of calls since the last time, and what changed the card, in order.
    pub fn take_events(&self) -> (usize, Vec<Event>) {
        let mut state = self.state();
        (
            std::mem::take(&mut state.calls),
            std::mem::take(&mut state.events),
        )
    }

    /// Whether a call of this kind has met a fault.
    pub fn hit(&self, call: Call) -> bool {
        self.state().hit.contains(&call)
    }

    /// Mappings that exist: IOVA and bytes.
    pub fn mappings(&self) -> Vec<(u64, u64)> {
        self.state()
            .mapped
            .iter()
            .map(|(iova, len)| (*iova, *len))
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call: `true` if it may go on, `false` if it meets [`Fault::AllOnes`], an error for other faults.
    fn enter(&self, call: Call) -> Result<bool, PciError> {
        let mut state = self.state();
        let number = state.calls;
        state.calls += 1;
        let here = state
            .at
            .filter(|(at, _, once)| if *once { number == *at } else { number >= *at });
        let fault = here
            .map(|(_, fault, _)| fault)
            .or_else(|| state.broken.get(&call).copied());
        let delay = state.delay;
        if fault.is_some() {
            state.hit.insert(call);
        }
        drop(state);
        std::thread::sleep(delay);
        let address = self.address();
        match fault {
            None => Ok(true),
            Some(Fault::AllOnes) => Ok(false),
            Some(Fault::Gone) => Err(PciError::Gone {
                address,
                reason: "a test says so".into(),
            }),
            Some(Fault::Timeout) => Err(PciError::Timeout {
                address,
                what: "a test",
                millis: 0,
            }),
            Some(Fault::Refuse) => {
                let source = std::io::ErrorKind::PermissionDenied.into();
                Err(PciError::System {
                    what: format!("{call:?}"),
                    source,
                })
            }
        }
    }

    fn happened(&self, event: Event) {
        self.state().events.push(event);
    }
}

impl PciFunction for FaultCard {
    fn address(&self) -> String {
        "faulty".into()
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<(), PciError> {
        if self.enter(Call::ConfigRead)? {
            return self.inner.config_read(offset, data);
        }
        data.fill(u8::MAX);
        Ok(())
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<(), PciError> {
        if self.enter(Call::ConfigWrite)? {
            self.inner.config_write(offset, data)
        } else {
            Ok(())
        }
    }

    fn bar_bytes(&self) -> u32 {
        self.inner.bar_bytes()
    }

    fn bar_read(&self, offset: u32) -> Result<u32, PciError> {
        if !self.enter(Call::BarRead)? {
            return Ok(u32::MAX);
        }
        let lie = self.state().lies.get(&offset).copied();
        lie.map_or_else(|| self.inner.bar_read(offset), Ok)
    }

    fn bar_write(&self, offset: u32, value: u32) -> Result<(), PciError> {
        if self.enter(Call::BarWrite)? && !self.state().deaf.contains(&offset) {
            self.happened(Event::Write { offset, value });
            self.inner.bar_write(offset, value)?;
        }
        Ok(())
    }

    fn dma_map(&self, iova: u64, memory: &Memory, offset: u64, len: u64) -> Result<(), PciError> {
        // The IOMMU works, whatever the card does.
        self.enter(Call::Map)?;
        self.inner.dma_map(iova, memory, offset, len)?;
        self.state().mapped.insert(iova, len);
        self.happened(Event::Map(iova));
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, len: u64) -> Result<(), PciError> {
        self.enter(Call::Unmap)?;
        self.inner.dma_unmap(iova, len)?;
        self.state().mapped.remove(&iova);
        self.happened(Event::Unmap(iova));
        Ok(())
    }

    fn vectors(&self) -> usize {
        self.inner.vectors()
    }

    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> Result<(), PciError> {
        if self.enter(Call::Interrupts)? {
            self.inner.set_interrupts(eventfds)?;
            self.happened(Event::Interrupts(eventfds.len()));
        }
        Ok(())
    }

    fn reset(&self) -> Result<(), PciError> {
        if self.enter(Call::Reset)? {
            self.inner.reset()?;
            self.happened(Event::Reset);
        }
        Ok(())
    }

    fn relax(&self) {
        self.inner.relax();
    }
}
