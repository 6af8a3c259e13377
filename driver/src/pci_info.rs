// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What configuration space says of a function, through the types of `pci-driver` over a copy of it.
//!
//! `pci-driver` can also drive VFIO, but its errors are mostly unfinished and its traits sealed; so containers, mappings and
//! interrupts go through `vfio-ioctls` (see `backend`), and every back end offers configuration space to the same code here.

use std::io;

use pci_driver::config::PciConfig;
use pci_driver::config::caps::{MsiXCapability, PciExpressCapability};
use pci_driver::regions::{BackedByPciSubregion, PciMemoryRegion, PciRegion};
use phub_abi::{PCI_DEVICE, PCI_VENDOR};
use phub_pci::PciFunction;
use serde::Serialize;

use crate::error::ALL_ONES;
use crate::{Error, Result};

/// A copy of the part of configuration space that holds the header and the capabilities. `pci-driver` reads words in
/// place, so it must be aligned.
#[repr(align(4))]
struct Snapshot([u8; 256]);

/// What a PCI function is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PciInfo {
    /// Vendor.
    pub vendor: u16,
    /// Device.
    pub device: u16,
    /// Revision.
    pub revision: u8,
    /// Whether it can be reset alone, without the others on its bus.
    pub function_level_reset: bool,
    /// MSI-X vectors.
    pub msix_vectors: u32,
    /// Speed of its link as PCI Express generation, 0 if it has none.
    pub link_generation: u8,
    /// Lanes of its link, 0 if it has none.
    pub link_width: u8,
}

impl PciInfo {
    /// Reads configuration space.
    ///
    /// # Errors
    /// [`Error::CardGone`] if nothing answers, [`Error::BadIdentity`] for capabilities that make no list, and what the
    /// function says.
    pub fn read(pci: &dyn PciFunction) -> Result<Self> {
        let mut copy = Snapshot([0; 256]);
        for (offset, dword) in (0..).step_by(4).zip(copy.0.chunks_exact_mut(4)) {
            pci.config_read(offset, dword)?;
        }
        let address = pci.address();
        // No function has these numbers. Other bytes may be there still: the kernel keeps some itself.
        if copy.0.starts_with(&[u8::MAX; 4]) {
            return Err(Error::CardGone {
                address,
                reason: ALL_ONES.into(),
            });
        }
        Self::parse(&copy).map_err(|error| Error::BadIdentity {
            address,
            what: format!("a configuration space that makes no sense ({error})"),
        })
    }

    /// Refuses what is not a card.
    pub(crate) fn check(&self, address: String) -> Result<()> {
        if (self.vendor, self.device) == (PCI_VENDOR, PCI_DEVICE) {
            return Ok(());
        }
        Err(Error::WrongDevice {
            address,
            vendor: self.vendor,
            device: self.device,
        })
    }

    fn parse(copy: &Snapshot) -> io::Result<Self> {
        let region = PciMemoryRegion::new(&copy.0);
        let config = PciConfig::backed_by(&region);
        let capabilities = config.capabilities()?;
        let express = capabilities.of_type::<PciExpressCapability<'_>>()?.next();
        let msix = capabilities.of_type::<MsiXCapability<'_>>()?.next();
        let mut info = Self {
            vendor: config.vendor_id().read()?,
            device: config.device_id().read()?,
            revision: config.revision_id().read()?,
            function_level_reset: false,
            msix_vectors: 0,
            link_generation: 0,
            link_width: 0,
        };
        if let Some(express) = express {
            info.function_level_reset = express
                .device_capabilities()
                .function_level_reset_capability()
                .read()?;
            // PCI Express Base Specification, 7.5.3.8: speed in bits 3:0, width in bits 9:4.
            let link = express.read_le_u16(0x12)?;
            info.link_generation = (link & 0xf) as u8;
            info.link_width = (link >> 4 & 0x3f) as u8;
        }
        if let Some(msix) = msix {
            // 7.7.2.2: table size less one in bits 10:0.
            info.msix_vectors = u32::from(msix.read_le_u16(0x02)? & 0x7ff) + 1;
        }
        Ok(info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phub_pci::config::ConfigSpace;

    fn copy_of(space: &ConfigSpace) -> Snapshot {
        let mut copy = Snapshot([0; 256]);
        for (offset, dword) in (0..).step_by(4).zip(copy.0.chunks_exact_mut(4)) {
            space.read(offset, dword).unwrap();
        }
        copy
    }

    #[test]
    fn the_card_is_recognized() {
        let info = PciInfo::parse(&copy_of(&ConfigSpace::new(65))).unwrap();
        let expected = PciInfo {
            vendor: PCI_VENDOR,
            device: PCI_DEVICE,
            revision: 0,
            function_level_reset: true,
            msix_vectors: 65,
            link_generation: 3,
            link_width: 16,
        };
        assert_eq!(info, expected);
        info.check("here".into()).unwrap();
        let other = PciInfo {
            device: 0x1111,
            ..info
        };
        assert!(matches!(
            other.check("here".into()),
            Err(Error::WrongDevice { device: 0x1111, .. })
        ));
    }

    #[test]
    fn capabilities_in_a_circle_are_an_error() {
        let mut copy = copy_of(&ConfigSpace::new(65));
        copy.0[0x81] = 0x40; // MSI-X points back to PCI Express
        assert!(PciInfo::parse(&copy).is_err());
        assert!(PciInfo::parse(&Snapshot([0; 256])).is_ok_and(|info| info.msix_vectors == 0));
    }
}
