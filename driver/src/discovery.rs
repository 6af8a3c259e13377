// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Cards of this host, found in sysfs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use phub_abi::{PCI_DEVICE, PCI_VENDOR};
use serde::Serialize;

use crate::PciAddress;

/// A PCI function as sysfs describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Where it is.
    pub address: PciAddress,
    /// PCI vendor.
    pub vendor: u16,
    /// PCI device.
    pub device: u16,
    /// Driver bound to it, if any; a card that is to be used needs `vfio-pci`.
    pub driver: Option<String>,
    /// Its IOMMU group; none without an IOMMU.
    pub iommu_group: Option<u32>,
    /// NUMA node, if the host has several.
    pub numa_node: Option<u32>,
}

impl Found {
    /// Whether it is a parameter hub card.
    pub fn is_card(&self) -> bool {
        (self.vendor, self.device) == (PCI_VENDOR, PCI_DEVICE)
    }
}

/// The tree that describes the host's devices.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::at("/sys")
    }
}

impl Sysfs {
    /// The tree at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The parameter hub cards, in order of their addresses. A host without PCI has none.
    ///
    /// # Errors
    /// What reading the directory says.
    pub fn cards(&self) -> io::Result<Vec<Found>> {
        let devices = match fs::read_dir(self.root.join("bus/pci/devices")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut cards = Vec::new();
        for entry in devices {
            let Some(address) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            // A device may be unplugged while we look.
            cards.extend(self.find(address).ok().flatten().filter(Found::is_card));
        }
        cards.sort_by_key(|card| card.address);
        Ok(cards)
    }

    /// The function at an address, whatever it is; `None` if there is none.
    ///
    /// # Errors
    /// What reading its files says.
    pub fn find(&self, address: PciAddress) -> io::Result<Option<Found>> {
        let path = self.path(address);
        if !path.exists() {
            return Ok(None);
        }
        let id = |name| {
            let text = fs::read_to_string(path.join(name))?;
            let digits = text.trim().trim_start_matches("0x");
            u16::from_str_radix(digits, 16)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
        };
        let node = fs::read_to_string(path.join("numa_node")).unwrap_or_default();
        Ok(Some(Found {
            address,
            vendor: id("vendor")?,
            device: id("device")?,
            driver: link_name(&path.join("driver")),
            iommu_group: link_name(&path.join("iommu_group")).and_then(|n| n.parse().ok()),
            // -1 where there is only one.
            numa_node: node.trim().parse().ok(),
        }))
    }

    /// The functions of an IOMMU group, in order of their addresses.
    ///
    /// # Errors
    /// What reading the group says.
    pub fn group(&self, group: u32) -> io::Result<Vec<Found>> {
        let mut members = Vec::new();
        for entry in fs::read_dir(
            self.root
                .join(format!("kernel/iommu_groups/{group}/devices")),
        )? {
            if let Some(address) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) {
                members.extend(self.find(address)?);
            }
        }
        members.sort_by_key(|member| member.address);
        Ok(members)
    }

    /// Directory of a PCI function.
    pub fn path(&self, address: PciAddress) -> PathBuf {
        self.root.join("bus/pci/devices").join(address.to_string())
    }

    /// A path below the root.
    pub(crate) fn path_of(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }
}

/// Last part of what a symbolic link points to.
fn link_name(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A sysfs in a temporary directory.
    pub(crate) struct FakeSysfs(pub(crate) tempfile::TempDir);

    impl FakeSysfs {
        pub(crate) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("bus/pci/devices")).unwrap();
            Self(dir)
        }

        pub(crate) fn sysfs(&self) -> Sysfs {
            Sysfs::at(self.0.path())
        }

        pub(crate) fn add(
            &self,
            address: &str,
            device: u16,
            driver: Option<&str>,
            group: Option<u32>,
        ) {
            let path = self.0.path().join("bus/pci/devices").join(address);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("vendor"), "0x1234\n").unwrap();
            fs::write(path.join("device"), format!("{device:#06x}\n")).unwrap();
            fs::write(path.join("numa_node"), "-1\n").unwrap();
            if let Some(driver) = driver {
                fs::create_dir_all(self.0.path().join("bus/pci/drivers").join(driver)).unwrap();
                symlink(
                    format!("../../../bus/pci/drivers/{driver}"),
                    path.join("driver"),
                )
                .unwrap();
            }
            if let Some(group) = group {
                symlink(
                    format!("../../../kernel/iommu_groups/{group}"),
                    path.join("iommu_group"),
                )
                .unwrap();
                let members = self
                    .0
                    .path()
                    .join(format!("kernel/iommu_groups/{group}/devices"));
                fs::create_dir_all(&members).unwrap();
                symlink("../../../../devices", members.join(address)).unwrap();
            }
        }
    }

    #[test]
    fn cards_are_listed_and_nothing_else() {
        let fake = FakeSysfs::new();
        fake.add("0000:3b:00.0", PCI_DEVICE, Some("vfio-pci"), Some(7));
        fake.add("0000:03:00.0", PCI_DEVICE, None, None);
        fake.add("0000:04:00.0", 0x1111, Some("bochs-drm"), Some(2));
        let node = fake
            .sysfs()
            .path("0000:3b:00.0".parse().unwrap())
            .join("numa_node");
        fs::write(node, "1\n").unwrap();
        let cards = fake.sysfs().cards().unwrap();
        let expected = |address: &str, driver: Option<&str>, iommu_group, numa_node| Found {
            address: address.parse().unwrap(),
            vendor: PCI_VENDOR,
            device: PCI_DEVICE,
            driver: driver.map(str::to_owned),
            iommu_group,
            numa_node,
        };
        assert_eq!(
            cards,
            [
                expected("0000:03:00.0", None, None, None),
                expected("0000:3b:00.0", Some("vfio-pci"), Some(7), Some(1)),
            ]
        );
    }

    #[test]
    fn groups_list_their_members() {
        let fake = FakeSysfs::new();
        fake.add("0000:3b:00.1", 0x1111, None, Some(7));
        fake.add("0000:3b:00.0", PCI_DEVICE, Some("vfio-pci"), Some(7));
        let members = fake.sysfs().group(7).unwrap();
        assert_eq!(
            members
                .iter()
                .map(|m| m.address.function)
                .collect::<Vec<_>>(),
            [0, 1]
        );
        assert!(fake.sysfs().group(8).is_err());
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let fake = FakeSysfs::new();
        assert_eq!(fake.sysfs().find("3b:00.0".parse().unwrap()).unwrap(), None);
        assert_eq!(Sysfs::at("/nonexistent").cards().unwrap(), []);
        fake.add("0000:3b:00.0", PCI_DEVICE, None, None);
        fs::write(
            fake.sysfs().path("3b:00.0".parse().unwrap()).join("vendor"),
            "what\n",
        )
        .unwrap();
        assert!(fake.sysfs().find("3b:00.0".parse().unwrap()).is_err());
        assert_eq!(fake.sysfs().cards().unwrap(), []);
    }
}
