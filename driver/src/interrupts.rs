// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Which eventfd each interrupt vector signals: vector 0 reports errors, vector `q + 1` completions of queue `q`.

use std::os::fd::AsFd;

use phub_pci::PciFunction;
use phub_sys::EventFd;

use crate::{Error, Result};

/// The connections of all vectors.
pub(crate) struct Interrupts {
    error: EventFd,
    /// Stands in where a queue has no eventfd, so that all vectors are always connected: connecting another number of
    /// them would make VFIO switch MSI-X off and on, and lose what fires meanwhile.
    nobody: EventFd,
    queues: Vec<Option<EventFd>>,
}

impl Interrupts {
    /// Connects the first `vectors` vectors.
    pub(crate) fn connect(pci: &dyn PciFunction, vectors: usize) -> Result<Self> {
        let interrupts = Self {
            error: event()?,
            nobody: event()?,
            queues: (1..vectors).map(|_| None).collect(),
        };
        interrupts.apply(pci)?;
        Ok(interrupts)
    }

    /// Connects a queue's vector to `event`, or to nothing.
    pub(crate) fn set(
        &mut self,
        pci: &dyn PciFunction,
        queue: u32,
        event: Option<EventFd>,
    ) -> Result<()> {
        let before = std::mem::replace(&mut self.queues[queue as usize], event);
        let result = self.apply(pci);
        if result.is_err() {
            self.queues[queue as usize] = before;
        }
        // An interrupt that fires while its vector is being reconnected may be lost: everybody looks once.
        for event in self.queues.iter().flatten().chain([&self.error]) {
            event.signal().map_err(|source| Error::System {
                what: "signalling an eventfd",
                source,
            })?;
        }
        result
    }

    pub(crate) fn error_event(&self) -> Result<EventFd> {
        self.error.try_clone().map_err(|source| Error::System {
            what: "duplicating an eventfd",
            source,
        })
    }

    fn apply(&self, pci: &dyn PciFunction) -> Result<()> {
        let queues = self
            .queues
            .iter()
            .map(|event| event.as_ref().unwrap_or(&self.nobody));
        let all: Vec<_> = [&self.error]
            .into_iter()
            .chain(queues)
            .map(AsFd::as_fd)
            .collect();
        Ok(pci.set_interrupts(&all)?)
    }
}

fn event() -> Result<EventFd> {
    EventFd::new().map_err(|source| Error::System {
        what: "making an eventfd",
        source,
    })
}
