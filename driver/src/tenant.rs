// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Tenants: training jobs on the card.

use std::fmt;

use phub_abi::regs::*;
use phub_pci::RegisterIoExt;
use serde::Serialize;

use crate::device::{Admin, Tables};
use crate::inspect::{Counters, read_counters};
use crate::{Command, Device, Error, Result};

/// A tenant of a card. Stays invalid after the tenant is deleted, whoever has its number next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct TenantId {
    /// Its entry in the card's tenant table.
    pub index: u32,
    pub(crate) generation: u32,
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.index.fmt(f)
    }
}

/// A tenant to be created.
#[derive(Clone, Copy, Debug)]
pub struct TenantConfig {
    /// World size.
    pub workers: u32,
    /// log2 of its slots.
    pub slots_log2: u32,
    /// Secret its packets carry on the wire.
    pub token: u64,
}

/// A tenant that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tenant {
    /// Which.
    pub id: TenantId,
    /// Its first epoch.
    pub epoch: u32,
    /// World size.
    pub workers: u32,
    /// First slot.
    pub slot_base: u32,
    /// log2 of its slots.
    pub slots_log2: u32,
}

pub(crate) struct TenantEntry {
    pub(crate) tenant: Tenant,
    /// What the card had counted for others under this number.
    pub(crate) before: Counters,
}

impl Tables {
    pub(crate) fn tenant(&self, id: TenantId) -> Result<&TenantEntry> {
        let entry = self.tenants.get(id.index as usize).and_then(Option::as_ref);
        entry
            .filter(|e| e.tenant.id == id)
            .ok_or(Error::NoSuchTenant { tenant: id })
    }
}

impl Device {
    /// Creates a tenant.
    ///
    /// # Errors
    /// [`Error::NoFreeTenant`], [`Error::NoFreeSlots`], [`Error::BadConfig`], those of a register access, and
    /// [`Error::CardFailed`].
    pub fn create_tenant(&self, config: TenantConfig) -> Result<Tenant> {
        let card = &self.card;
        let most = card.identity.workers;
        if !(1..=most).contains(&config.workers) {
            let what = format!(
                "{} workers; the card takes 1 to {most} a tenant",
                config.workers
            );
            return Err(Error::BadConfig { what });
        }
        if config.slots_log2 > card.identity.slots.ilog2() {
            let what = format!(
                "2^{} slots; the card has {}",
                config.slots_log2, card.identity.slots
            );
            return Err(Error::BadConfig { what });
        }
        let admin = card.admin()?;
        let tenant = card.tables().reserve(card.identity.tenants, config)?;
        let result = self.set_up_tenant(&admin, tenant, config.token);
        let mut tables = card.tables();
        match result {
            Ok(entry) => {
                let tenant = entry.tenant;
                tables.tenants[tenant.id.index as usize] = Some(entry);
                tracing::debug!(?tenant, "tenant created");
                Ok(tenant)
            }
            Err(error) => {
                tables.slots.release(tenant.slot_base, tenant.slots_log2);
                Err(error)
            }
        }
    }

    fn set_up_tenant(
        &self,
        _admin: &Admin<'_>,
        mut tenant: Tenant,
        token: u64,
    ) -> Result<TenantEntry> {
        let (card, index) = (&self.card, tenant.id.index);
        let before = read_counters(card, index)?;
        // Never an epoch this entry had before.
        tenant.epoch = card
            .read::<TenantTableEpoch>(index)?
            .value()
            .wrapping_add(1);
        let slots = TenantTableSlots::default()
            .with_base(tenant.slot_base)
            .with_log2(tenant.slots_log2);
        card.pci.set_at(index, slots)?;
        card.pci
            .set_at(index, TenantTableTokenLo::from_bits(token as u32))?;
        card.pci
            .set_at(index, TenantTableTokenHi::from_bits((token >> 32) as u32))?;
        card.pci
            .set_at(index, TenantTableEpoch::from_bits(tenant.epoch))?;
        let ctrl = TenantTableCtrl::default()
            .with_enable(true)
            .with_workers(tenant.workers);
        card.pci.set_at(index, ctrl)?;
        Ok(TenantEntry { tenant, before })
    }

    /// Ends the epoch of a tenant and returns the next one. Descriptors the card holds complete with `Aborted`.
    ///
    /// # Errors
    /// [`Error::NoSuchTenant`], [`Error::CommandTimeout`], [`Error::CommandRefused`], those of a register access, and
    /// [`Error::CardFailed`].
    pub fn abort_tenant(&self, id: TenantId) -> Result<u32> {
        let admin = self.card.admin()?;
        self.card.tables().tenant(id)?;
        self.card.command(&admin, Command::Abort(id.index))?;
        let epoch = self.card.read::<TenantTableEpoch>(id.index)?.value();
        tracing::debug!(tenant = id.index, epoch, "epoch aborted");
        Ok(epoch)
    }

    /// Deletes a tenant that has no queue (any more).
    ///
    /// # Errors
    /// [`Error::NoSuchTenant`], [`Error::TenantBusy`], [`Error::CommandTimeout`], those of a register access, and
    /// [`Error::CardFailed`]. Unless the tenant did not exist, it then still does.
    pub fn delete_tenant(&self, id: TenantId) -> Result<()> {
        let admin = self.card.admin()?;
        let tenant = {
            let tables = self.card.tables();
            let queues = tables
                .queues
                .iter()
                .filter(|t| **t == Some(id.index))
                .count();
            let tenant = tables.tenant(id)?.tenant;
            if queues > 0 {
                return Err(Error::TenantBusy { tenant: id, queues });
            }
            tenant
        };
        // Clears the slots for the next owner; the card does that only while the tenant is enabled.
        self.card.command(&admin, Command::Abort(id.index))?;
        self.card.pci.set_at(id.index, TenantTableCtrl::default())?;
        let mut tables = self.card.tables();
        tables.tenants[id.index as usize] = None;
        tables.slots.release(tenant.slot_base, tenant.slots_log2);
        tracing::debug!(?tenant, "tenant deleted");
        Ok(())
    }
}

impl Tables {
    /// Slots and a number for a tenant; the entry stays empty.
    fn reserve(&mut self, tenants: u32, config: TenantConfig) -> Result<Tenant> {
        let free = self.tenants.iter().position(Option::is_none);
        let index = free.ok_or(Error::NoFreeTenant { tenants })? as u32;
        let log2 = config.slots_log2;
        let slot_base = self
            .slots
            .allocate(log2)
            .ok_or_else(|| Error::NoFreeSlots {
                wanted: 1 << log2,
                largest: self.slots.largest().map_or(0, |l| 1 << l),
            })?;
        self.generation += 1;
        let id = TenantId {
            index,
            generation: self.generation,
        };
        Ok(Tenant {
            id,
            epoch: 0,
            workers: config.workers,
            slot_base,
            slots_log2: log2,
        })
    }
}
