// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Handing a card to vfio-pci and back, as writes to sysfs that can be shown before they are made.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::discovery::Found;
use crate::{PciAddress, Sysfs};

/// The driver a card needs.
const VFIO_PCI: &str = "vfio-pci";

/// One write to a file of sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    path: PathBuf,
    value: String,
}

impl Step {
    /// Makes the write. Only root may.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn run(&self) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(&self.path)?;
        // In one piece: each write is a command of its own.
        file.write_all(format!("{}\n", self.value).as_bytes())
    }
}

/// As a shell command.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "echo '{}' > {}", self.value, self.path.display())
    }
}

/// Why a card is not handed over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// There is no such function.
    #[error("there is no PCI function {address}; `phubctl doctor` lists the cards of this host")]
    NotFound {
        /// Where it was looked for.
        address: PciAddress,
    },
    /// It is something else, which somebody may need.
    #[error("{address} is {vendor:04x}:{device:04x}, not a parameter hub card; it is left alone")]
    NotACard {
        /// The function.
        address: PciAddress,
        /// PCI vendor.
        vendor: u16,
        /// PCI device.
        device: u16,
    },
    /// The driver is not loaded.
    #[error("the kernel has no vfio-pci driver; as root: modprobe vfio-pci")]
    NoDriver,
    /// sysfs could not be read.
    #[error("reading sysfs about {address}: {source}")]
    Sysfs {
        /// What was looked for.
        address: PciAddress,
        /// Why it failed.
        source: io::Error,
    },
}

impl Sysfs {
    /// What binds a card to vfio-pci; nothing if it is.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind_steps(&self, address: PciAddress) -> Result<Vec<Step>, BindError> {
        let card = self.card(address)?;
        if card.driver.as_deref() == Some(VFIO_PCI) {
            return Ok(Vec::new());
        }
        if !self.bus().join("drivers").join(VFIO_PCI).exists() {
            return Err(BindError::NoDriver);
        }
        Ok(self.rebind(&card, VFIO_PCI))
    }

    /// What gives a card back to whatever driver the kernel has for it; nothing if vfio-pci does not have it.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn unbind_steps(&self, address: PciAddress) -> Result<Vec<Step>, BindError> {
        let card = self.card(address)?;
        if card.driver.as_deref() != Some(VFIO_PCI) {
            return Ok(Vec::new());
        }
        Ok(self.rebind(&card, ""))
    }

    fn card(&self, address: PciAddress) -> Result<Found, BindError> {
        let found = self
            .find(address)
            .map_err(|source| BindError::Sysfs { address, source })?
            .ok_or(BindError::NotFound { address })?;
        if found.is_card() {
            return Ok(found);
        }
        Err(BindError::NotACard {
            address,
            vendor: found.vendor,
            device: found.device,
        })
    }

    fn bus(&self) -> PathBuf {
        self.path_of("bus/pci")
    }

    /// Takes a function from its driver and lets the kernel look for `driver`, or for any if that is empty.
    fn rebind(&self, found: &Found, driver: &str) -> Vec<Step> {
        let device = self.path(found.address);
        let address = found.address.to_string();
        let step = |path: PathBuf, value: &str| Step {
            path,
            value: value.to_owned(),
        };
        let mut steps = Vec::new();
        if found.driver.is_some() {
            steps.push(step(device.join("driver/unbind"), &address));
        }
        steps.push(step(device.join("driver_override"), driver));
        steps.push(step(self.bus().join("drivers_probe"), &address));
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::tests::FakeSysfs;
    use phub_abi::PCI_DEVICE;

    const CARD: &str = "0000:3b:00.0";

    fn shown(steps: Result<Vec<Step>, BindError>) -> Vec<String> {
        steps
            .unwrap()
            .iter()
            .map(|step| {
                let text = step.to_string();
                let path = text.find("bus/pci").unwrap();
                format!("{}{}", &text[..text.find('>').unwrap() + 2], &text[path..])
            })
            .collect()
    }

    #[test]
    fn a_card_goes_to_vfio_and_back() {
        let fake = FakeSysfs::new();
        let card = CARD.parse().unwrap();
        fake.add(CARD, PCI_DEVICE, Some("other"), Some(7));
        let error = fake.sysfs().bind_steps(card).unwrap_err();
        assert!(error.to_string().contains("modprobe vfio-pci"), "{error}");
        fake.add("0000:3b:00.1", PCI_DEVICE, Some("vfio-pci"), Some(8));
        assert_eq!(
            shown(fake.sysfs().bind_steps(card)),
            [
                "echo '0000:3b:00.0' > bus/pci/devices/0000:3b:00.0/driver/unbind",
                "echo 'vfio-pci' > bus/pci/devices/0000:3b:00.0/driver_override",
                "echo '0000:3b:00.0' > bus/pci/drivers_probe",
            ]
        );
        assert!(shown(fake.sysfs().unbind_steps(card)).is_empty());
        let bound = "0000:3b:00.1".parse().unwrap();
        assert!(shown(fake.sysfs().bind_steps(bound)).is_empty());
        assert_eq!(
            shown(fake.sysfs().unbind_steps(bound))[1..],
            [
                "echo '' > bus/pci/devices/0000:3b:00.1/driver_override",
                "echo '0000:3b:00.1' > bus/pci/drivers_probe",
            ]
        );
    }

    #[test]
    fn what_is_no_card_is_left_alone() {
        let fake = FakeSysfs::new();
        fake.add(CARD, 0x1111, Some("nvme"), Some(7));
        let error = fake.sysfs().bind_steps(CARD.parse().unwrap()).unwrap_err();
        assert!(
            matches!(error, BindError::NotACard { device: 0x1111, .. }),
            "{error}"
        );
        let nothing = "0000:00:1f.7".parse().unwrap();
        assert!(matches!(
            fake.sysfs().unbind_steps(nothing),
            Err(BindError::NotFound { .. })
        ));
    }
}
