// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Ways to a PCI function.

mod vfio;

use std::sync::Arc;

use phub_pci::PciFunction;
use phub_vfio_user::Client;

use crate::{CardAddress, Result, Sysfs};

pub use vfio::VfioOpenError;

/// The PCI function at an address, not yet a [`crate::Device`].
///
/// # Errors
/// [`crate::Error::Vfio`] or [`crate::Error::Pci`] if it cannot be opened.
pub fn connect(address: &CardAddress) -> Result<Arc<dyn PciFunction>> {
    Ok(match address {
        CardAddress::Vfio(address) => Arc::new(vfio::VfioCard::open(&Sysfs::default(), *address)?),
        CardAddress::VfioUser(path) => Arc::new(Client::connect(path, Client::TIMEOUT)?),
    })
}
