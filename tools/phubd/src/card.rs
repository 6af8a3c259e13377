// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The card as the hub uses it: the driver's types on one side, the control protocol's on the other.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use phub::control::{Layout, SlotInfo, ranks_of};
use phub_driver::{
    CardAddress, Device, Error, Identity, OpenSlot, Queue, QueueConfig, Tenant as CardTenant,
    TenantConfig, TenantId,
};
use phub_model::{GoldenCard, Params};
use phub_pci::PciError;
use phub_sys::{EventFd, Memory};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::HubError;
use crate::config::Card;
use crate::tenant::Tenant;

/// Why the card did not do what the hub wanted.
#[derive(Debug)]
pub(crate) enum CardError {
    /// It has no room for more; nothing is wrong with it.
    Full(String),
    /// It cannot be used any more.
    Failed(String),
}

impl From<Error> for CardError {
    fn from(error: Error) -> Self {
        let what = error.to_string();
        match error {
            Error::NoFreeQueue { .. }
            | Error::NoFreeTenant { .. }
            | Error::NoFreeSlots { .. }
            | Error::NoFreeIova { .. }
            | Error::BadConfig { .. }
            | Error::Memory(_)
            | Error::System { .. } => Self::Full(what),
            _ => Self::Failed(what),
        }
    }
}

pub(crate) struct CardPort {
    /// None once the card is gone.
    device: Option<Device>,
    address: String,
    identity: Identity,
    /// Signalled when the card has errors to report.
    errors: EventFd,
}

impl CardPort {
    pub(crate) fn open(card: &Card) -> Result<Self, HubError> {
        let open = |error: Error| HubError::Open(error.to_string());
        let device = match card {
            Card::Address(address) if address == "model" => {
                Device::new(Arc::new(GoldenCard::new(Params::default())))
            }
            Card::Address(address) => {
                let address: CardAddress = address
                    .parse()
                    .map_err(|e: phub_driver::AddressError| HubError::Open(e.to_string()))?;
                Device::open(&address)
            }
            Card::Function(function) => Device::new(function.clone()),
        };
        let device = device.map_err(open)?;
        let errors = device.error_event().map_err(open)?;
        Ok(Self {
            address: device.address(),
            identity: device.identity().clone(),
            device: Some(device),
            errors,
        })
    }

    fn device(&self) -> Result<&Device, CardError> {
        let gone = || CardError::Failed(format!("the card at {} is gone", self.address));
        self.device.as_ref().ok_or_else(gone)
    }

    /// Lets go of a card that is gone.
    pub(crate) fn abandon(&mut self) {
        let Some(device) = self.device.take() else {
            return;
        };
        // Closing a device that does not answer can take the kernel long: nobody waits for that.
        let closing = std::thread::Builder::new()
            .name("closing".into())
            .spawn(move || drop(device));
        if let Err(error) = closing {
            tracing::warn!(%error, "the card was closed without a thread for that");
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn identity(&self) -> BTreeMap<String, serde_json::Value> {
        by_name(&self.identity)
    }

    /// NUMA node of the card, if that is known.
    pub(crate) fn numa_node(&self) -> Option<u32> {
        self.device.as_ref()?.numa_node()
    }

    pub(crate) fn segment_bytes(&self) -> u32 {
        self.identity.segment_bytes
    }

    pub(crate) fn workers_max(&self) -> u32 {
        self.identity.workers
    }

    pub(crate) fn slots_log2(&self) -> u8 {
        self.identity.slots.ilog2() as u8
    }

    /// Readable when [`CardPort::queue_errors`] has something to tell.
    pub(crate) fn error_event(&self) -> BorrowedFd<'_> {
        self.errors.as_fd()
    }

    /// A tenant with `1 << wanted` slots, or with as many as there are, but at least `1 << least`.
    pub(crate) fn create_tenant(
        &self,
        world: u32,
        wanted: u8,
        least: u8,
        token: u64,
    ) -> Result<CardTenant, CardError> {
        let mut slots_log2 = u32::from(wanted);
        let device = self.device()?;
        loop {
            match device.create_tenant(TenantConfig {
                workers: world,
                slots_log2,
                token,
            }) {
                Err(Error::NoFreeSlots { .. }) if slots_log2 > u32::from(least) => slots_log2 -= 1,
                result => return Ok(result?),
            }
        }
    }

    pub(crate) fn abort(&self, id: TenantId) -> Result<u32, CardError> {
        Ok(self.device()?.abort_tenant(id)?)
    }

    pub(crate) fn delete_tenant(&self, id: TenantId) -> Result<(), CardError> {
        Ok(self.device()?.delete_tenant(id)?)
    }

    pub(crate) fn create_queue(
        &self,
        tenant: TenantId,
        worker: u32,
        memory: &Memory,
        layout: &Layout,
        event: &EventFd,
    ) -> Result<Arc<Queue>, CardError> {
        let event = event
            .try_clone()
            .map_err(|e| CardError::Full(format!("cannot duplicate an eventfd: {e}")))?;
        let queue = self
            .device()?
            .create_queue(QueueConfig {
                tenant,
                worker,
                memory: memory.clone(),
                sq_offset: layout.sq_offset,
                sq_log2: layout.sq_log2,
                cq_offset: layout.cq_offset,
                cq_log2: layout.cq_log2,
                event: Some(event),
            })
            .map_err(|error| match error {
                // A limit of the system for locked memory, say: the card is none the worse for it.
                Error::Pci(PciError::Mapping { .. } | PciError::System { .. }) => {
                    CardError::Full(error.to_string())
                }
                error => error.into(),
            })?;
        Ok(Arc::new(queue))
    }

    /// Takes a queue from the card: on return the card does not touch its memory any more. Nobody else may hold the queue.
    pub(crate) fn release(&self, queue: Arc<Queue>) -> Result<(), CardError> {
        match Arc::into_inner(queue) {
            Some(queue) => Ok(queue.close()?),
            None => Err(CardError::Failed("a queue to be released is in use".into())),
        }
    }

    pub(crate) fn counters(&self, id: TenantId) -> Result<BTreeMap<String, u64>, CardError> {
        Ok(by_name(&self.device()?.counters(id)?))
    }

    pub(crate) fn perf(&self) -> Result<BTreeMap<String, u64>, CardError> {
        Ok(by_name(&self.device()?.perf()?))
    }

    /// Queues the card has stopped since the last call, and why. Fails if the card does not answer.
    pub(crate) fn queue_errors(&self) -> Result<Vec<(u32, String)>, CardError> {
        // An eventfd of our own: draining does not fail.
        let _ = self.errors.drain();
        Ok(self
            .device()?
            .take_errors()?
            .iter()
            .map(|error| (error.queue, error.code.to_string()))
            .collect())
    }

    /// All open slots, with the names of their tenants.
    pub(crate) fn slots(
        &self,
        tenants: &BTreeMap<String, Tenant>,
    ) -> Result<Vec<SlotInfo>, CardError> {
        let name = |index: u32| {
            tenants
                .iter()
                .find(|(_, t)| t.id.index == index)
                .map_or("", |(name, _)| name)
                .to_owned()
        };
        let info = |slot: OpenSlot| SlotInfo {
            slot: slot.slot,
            tenant: name(slot.tenant),
            seq: slot.seq,
            key: slot.key,
            bytes: slot.bytes,
            complete: slot.complete,
            contributed: ranks_of(slot.contributed),
            missing: ranks_of(waited_for(&slot)),
            since: slot.since,
        };
        Ok(self.device()?.slots()?.into_iter().map(info).collect())
    }

    /// The workers that a tenant's oldest open segment waits for, as a bitmap; 0 if there is none, or the card does not say.
    pub(crate) fn oldest_waits_for(&self, id: TenantId) -> u64 {
        let slots = self.device().and_then(|device| Ok(device.slots()?));
        let slots = slots.unwrap_or_else(|error| {
            tracing::warn!(?error, "open slots not read");
            Vec::new()
        });
        let of_tenant = slots.iter().filter(|slot| slot.tenant == id.index);
        // Sequence numbers wrap, and all open ones are near each other.
        let oldest = of_tenant.reduce(|a, b| {
            if (b.seq.wrapping_sub(a.seq) as i32) < 0 {
                b
            } else {
                a
            }
        });
        oldest.map_or(0, waited_for)
    }
}

/// Workers that have not joined a slot's round; if all have: those that have not taken the result.
fn waited_for(slot: &OpenSlot) -> u64 {
    let everyone = u64::MAX >> (64 - slot.workers.clamp(1, 64));
    everyone
        & !if slot.complete {
            slot.left
        } else {
            slot.joined
        }
}

/// A flat struct of the driver as a map from its fields' names.
fn by_name<T: Serialize, V: DeserializeOwned>(value: &T) -> BTreeMap<String, V> {
    let fields = serde_json::to_value(value).and_then(serde_json::from_value);
    debug_assert!(fields.is_ok(), "the driver's structs are flat");
    fields.unwrap_or_default()
}
