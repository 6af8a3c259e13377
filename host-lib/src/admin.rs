// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What an operator asks of a hub.

use std::path::Path;
use std::time::Duration;

use crate::Result;
use crate::control::{Connection, Reply, Request, unexpected};
pub use crate::control::{
    CreateTenant, HubCounters, Info, Member, SlotInfo, Slots, Stats, TenantInfo,
};

/// An operator's connection to a hub. Changing anything takes the hub's own user, or root.
#[derive(Debug)]
pub struct Admin {
    control: Connection,
}

impl Admin {
    /// Connects to the hub's socket; `timeout` holds for each answer.
    pub fn connect(socket: &Path, timeout: Duration) -> Result<Self> {
        Ok(Self {
            control: Connection::open(socket, timeout)?,
        })
    }

    /// What the hub and its card are.
    pub fn info(&mut self) -> Result<Info> {
        match self.call(&Request::Info)? {
            Reply::Info(info) => Ok(info),
            other => Err(unexpected("info", &other)),
        }
    }

    /// All tenants, in order of their names.
    pub fn tenants(&mut self) -> Result<Vec<TenantInfo>> {
        match self.call(&Request::Tenants)? {
            Reply::Tenants { tenants } => Ok(tenants),
            other => Err(unexpected("tenants", &other)),
        }
    }

    /// Makes a tenant that stays until it is deleted.
    pub fn create_tenant(&mut self, tenant: CreateTenant) -> Result<TenantInfo> {
        match self.call(&Request::CreateTenant(tenant))? {
            Reply::Created(tenant) => Ok(tenant),
            other => Err(unexpected("create-tenant", &other)),
        }
    }

    /// Ends a tenant; its workers get [`crate::Error::Aborted`].
    pub fn delete_tenant(&mut self, name: &str) -> Result<()> {
        match self.call(&Request::DeleteTenant {
            name: name.to_owned(),
        })? {
            Reply::Deleted => Ok(()),
            other => Err(unexpected("delete-tenant", &other)),
        }
    }

    /// Counters of every tenant, of the card, and of the hub.
    pub fn stats(&mut self) -> Result<Stats> {
        match self.call(&Request::Stats)? {
            Reply::Stats(stats) => Ok(stats),
            other => Err(unexpected("stats", &other)),
        }
    }

    /// The open slots, of one tenant or of all: what is waited for, and for whom.
    pub fn slots(&mut self, tenant: Option<&str>) -> Result<Slots> {
        match self.call(&Request::Slots {
            tenant: tenant.map(str::to_owned),
        })? {
            Reply::Slots(slots) => Ok(slots),
            other => Err(unexpected("slots", &other)),
        }
    }

    fn call(&mut self, request: &Request) -> Result<Reply> {
        Ok(self.control.call(request)?.message)
    }
}
