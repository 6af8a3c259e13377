// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What can go wrong, with a remedy in each message.

use std::fmt;

use phub_pci::PciError;
use phub_sys::MemoryError;
use serde::Serialize;

use crate::{AddressError, TenantId};

/// Result of the driver.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the driver could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address has no known form.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The PCI function is another kind of device.
    #[error(
        "{address} is PCI device {vendor:04x}:{device:04x}, not a parameter hub; check the address with `phubctl doctor`"
    )]
    WrongDevice {
        /// Where it is.
        address: String,
        /// Its vendor.
        vendor: u16,
        /// Its device.
        device: u16,
    },
    /// The card's first register does not identify it.
    #[error(
        "{address}: magic register reads {found:#010x} instead of {:#010x}; load the parameter hub image onto the card",
        phub_abi::MAGIC
    )]
    WrongMagic {
        /// Where it is.
        address: String,
        /// What was read.
        found: u32,
    },
    /// The card speaks an incompatible version.
    #[error(
        "{address} has ABI {major}.{minor}, this driver has {}.{}; use driver and card image of the same release",
        phub_abi::ABI_MAJOR,
        phub_abi::ABI_MINOR
    )]
    AbiMismatch {
        /// Where it is.
        address: String,
        /// The card's major version.
        major: u32,
        /// The card's minor version.
        minor: u32,
    },
    /// The card describes itself as something that cannot be.
    #[error("{address} says it has {what}; its image is broken, load another")]
    BadIdentity {
        /// Where it is.
        address: String,
        /// What it says.
        what: String,
    },
    /// The card did not follow `ctrl.enable` in time.
    #[error(
        "{address} was not {state} within {millis} ms (fatal error code {fatal}); reset or reload the card"
    )]
    NotReady {
        /// Where it is.
        address: String,
        /// What was waited for.
        state: &'static str,
        /// The deadline.
        millis: u64,
        /// What its fatal-error register reads, 0 if nothing.
        fatal: u32,
    },
    /// The card did not finish a command in time.
    #[error(
        "{address} did not finish to {what} within {millis} ms (fatal error code {fatal}); open it again"
    )]
    CommandTimeout {
        /// Where it is.
        address: String,
        /// The command.
        what: Command,
        /// The deadline.
        millis: u64,
        /// What its fatal-error register reads, 0 if nothing.
        fatal: u32,
    },
    /// The card refused a command.
    #[error("{address} refused to {what}; open the card again")]
    CommandRefused {
        /// Where it is.
        address: String,
        /// The command.
        what: Command,
    },
    /// The card is not there any more.
    #[error("the card at {address} is gone ({reason}); restart it and open it again")]
    CardGone {
        /// Where it was.
        address: String,
        /// How that was noticed.
        reason: String,
    },
    /// An earlier failure made the driver give the card up.
    #[error("the card at {address} was given up: {reason}; open it again")]
    CardFailed {
        /// Where it is.
        address: String,
        /// The failure.
        reason: String,
    },
    /// All queue pairs are in use.
    #[error("all {queues} queue pairs are in use; close one, or use another card")]
    NoFreeQueue {
        /// Queue pairs the card has.
        queues: u32,
    },
    /// All tenants are in use.
    #[error("all {tenants} tenants are in use; delete one, or use another card")]
    NoFreeTenant {
        /// Tenants the card has.
        tenants: u32,
    },
    /// Not enough slots in one piece.
    #[error(
        "{wanted} slots wanted, {largest} are free in one piece; ask for fewer, or delete a tenant"
    )]
    NoFreeSlots {
        /// Asked for.
        wanted: u32,
        /// Largest free piece.
        largest: u32,
    },
    /// No address range is left for the memory.
    #[error("no range of {bytes:#x} bytes is left in the card's address space; use smaller arenas")]
    NoFreeIova {
        /// Asked for.
        bytes: u64,
    },
    /// The tenant does not exist (any more).
    #[error("tenant {tenant} does not exist any more; create another")]
    NoSuchTenant {
        /// Which.
        tenant: TenantId,
    },
    /// The tenant has queues.
    #[error("tenant {tenant} has {queues} open queue pairs; close them first")]
    TenantBusy {
        /// Which.
        tenant: TenantId,
        /// Its queues.
        queues: usize,
    },
    /// A parameter the card cannot satisfy.
    #[error("{what}")]
    BadConfig {
        /// Which, and what is possible.
        what: String,
    },
    /// The card stopped the queue when it was enabled.
    #[error("the card stopped queue pair {queue}: {code}")]
    QueueError {
        /// Which.
        queue: u32,
        /// Why.
        code: CardErrorCode,
    },
    /// The card's debug window did not answer in time.
    #[error("{address} did not show slot {slot} within {millis} ms; the card hangs, open it again")]
    SlotUnread {
        /// Where it is.
        address: String,
        /// Which slot.
        slot: u32,
        /// The deadline.
        millis: u64,
    },
    /// The PCI function refused or failed.
    #[error(transparent)]
    Pci(PciError),
    /// The card's memory could not be had or accessed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The card's VFIO device could not be opened.
    #[error(transparent)]
    Vfio(#[from] crate::backend::VfioOpenError),
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl From<PciError> for Error {
    fn from(error: PciError) -> Self {
        match error {
            PciError::Gone { address, reason } => Self::CardGone { address, reason },
            other => Self::Pci(other),
        }
    }
}

/// What an empty slot looks like, and a card that was loaded anew while the bus was not told.
pub(crate) const ALL_ONES: &str = "its registers read all ones: it was unplugged, or reloaded; for the second, as root: \
     echo 1 > /sys/bus/pci/devices/ADDRESS/remove; echo 1 > /sys/bus/pci/rescan";

/// What a card can be told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// End the epoch of the tenant with this number.
    Abort(u32),
    /// Stop the queue pair with this number.
    Stop(u32),
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abort(tenant) => write!(f, "end the epoch of tenant {tenant}"),
            Self::Stop(queue) => write!(f, "stop queue pair {queue}"),
        }
    }
}

/// Why the card stopped a queue (`err_e` in the RTL).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CardErrorCode {
    /// A doorbell value outside the ring, or a completion head past the tail.
    Doorbell,
    /// The submission ring cannot be read.
    SqRead,
    /// The completion ring cannot be written.
    CqWrite,
    /// Enabled with a size, tenant or worker out of range.
    QueueConfig,
    /// A code this driver does not know.
    Unknown(u8),
}

impl CardErrorCode {
    pub(crate) fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Doorbell,
            2 => Self::SqRead,
            3 => Self::CqWrite,
            4 => Self::QueueConfig,
            other => Self::Unknown(other as u8),
        }
    }
}

impl fmt::Display for CardErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Doorbell => f.write_str("a doorbell was rung with a value outside the ring"),
            Self::SqRead => f.write_str("its submission ring cannot be read"),
            Self::CqWrite => f.write_str("its completion ring cannot be written"),
            Self::QueueConfig => f.write_str("its size, tenant or worker is out of range"),
            Self::Unknown(code) => write!(f, "error code {code}, unknown to this driver"),
        }
    }
}
