// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Driver of the parameter hub card.
//!
//! [`Device`] is a card: it is opened by its address or over any [`phub_pci::PciFunction`], and gives tenants and queue
//! pairs. The rings of a queue pair are in [`ring`]; they work in any process that has the memory. What this crate
//! knows of PCI stops at that trait, and its back ends for real and simulated cards are in `backend`.
#![forbid(unsafe_code)]

mod address;
mod backend;
mod bind;
mod device;
mod discovery;
mod error;
mod identity;
mod inspect;
mod interrupts;
mod iova;
mod pci_info;
mod queue;
pub mod ring;
mod slots;
mod tenant;

pub use address::{AddressError, CardAddress, PciAddress};
pub use backend::{VfioOpenError, connect};
pub use bind::{BindError, Step};
pub use device::{Device, Options};
pub use discovery::{Found, Sysfs};
pub use error::{CardErrorCode, Command, Error, Result};
pub use identity::Identity;
pub use inspect::{CardError, Counters, OpenSlot, Perf};
pub use pci_info::PciInfo;
pub use queue::{Queue, QueueConfig, QueueState};
pub use tenant::{Tenant, TenantConfig, TenantId};
