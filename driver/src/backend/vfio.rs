// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A card of this host, bound to vfio-pci.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use phub_abi::PAGE;
use phub_pci::config::CONFIG_BYTES;
use phub_pci::{Memory, PciError, PciFunction};
use phub_sys::{DmaMapping, MapError, VfioError, VfioFunction};

use rustix::io::Errno;

use crate::discovery::Found;
use crate::{PciAddress, Sysfs};

/// Time limit for a function-level reset, which takes 100 ms or more.
const RESET_DEADLINE: Duration = Duration::from_secs(10);

/// Why a card could not be opened through VFIO.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioOpenError {
    /// There is no such function.
    #[error("there is no PCI function {address}; `phubctl doctor` lists the cards of this host")]
    NotFound {
        /// Where it was looked for.
        address: PciAddress,
    },
    /// sysfs could not be read.
    #[error("reading sysfs about {address}: {source}")]
    Sysfs {
        /// What was looked for.
        address: PciAddress,
        /// Why it failed.
        source: io::Error,
    },
    /// The function is behind no IOMMU.
    #[error(
        "{address} is behind no IOMMU; switch it on in the firmware (VT-d, AMD-Vi) and boot with intel_iommu=on"
    )]
    NoIommu {
        /// The card.
        address: PciAddress,
    },
    /// Another driver, or none, is bound to the function.
    #[error(
        "{address} is bound to {}, not to vfio-pci; as root: modprobe vfio-pci; echo vfio-pci > \
         /sys/bus/pci/devices/{address}/driver_override; echo {address} > /sys/bus/pci/drivers_probe",
        driver.as_deref().unwrap_or("no driver")
    )]
    NotBound {
        /// The card.
        address: PciAddress,
        /// Its driver.
        driver: Option<String>,
    },
    /// Other functions of the group are in the hands of other drivers.
    #[error(
        "IOMMU group {group} of {address} is shared with {others}; bind these to vfio-pci too, or to no driver"
    )]
    NotViable {
        /// The card.
        address: PciAddress,
        /// Its group.
        group: u32,
        /// The other functions and their drivers.
        others: String,
    },
    /// The kernel has no VFIO.
    #[error("{path} does not exist; as root: modprobe vfio-pci")]
    NoVfio {
        /// What is missing.
        path: String,
    },
    /// The device files may not be opened.
    #[error("permission to open {path} denied; run as root, or as root: chown $USER {path}")]
    Permission {
        /// Which file.
        path: String,
    },
    /// Another process has the card.
    #[error("{address} is in use by another process (look for phubd); end it first")]
    Busy {
        /// The card.
        address: PciAddress,
    },
    /// Anything else.
    #[error("opening {address} through VFIO: {source}")]
    Other {
        /// The card.
        address: PciAddress,
        /// What it met.
        source: VfioError,
    },
}

/// A card through VFIO: registers are mapped, memory is translated by the IOMMU, interrupts are MSI-X.
pub(crate) struct VfioCard {
    address: PciAddress,
    numa_node: Option<u32>,
    /// By their first IOVA. Declared before the function: mappings are taken back first.
    mappings: Mutex<BTreeMap<u64, DmaMapping>>,
    function: VfioFunction,
}

impl VfioCard {
    pub(crate) fn open(sysfs: &Sysfs, address: PciAddress) -> Result<Self, VfioOpenError> {
        let (group, numa_node) = check(sysfs, address)?;
        let function = VfioFunction::open(&sysfs.path(address))
            .map_err(|error| explain(sysfs, address, group, error))?;
        Ok(Self {
            address,
            numa_node,
            mappings: Mutex::default(),
            function,
        })
    }

    fn system(&self, what: &str, source: io::Error) -> PciError {
        // What a read of an unplugged device gives.
        if Errno::from_io_error(&source) == Some(Errno::NODEV) {
            return PciError::Gone {
                address: self.address(),
                reason: format!("{what}: {source}"),
            };
        }
        PciError::System {
            what: format!("{what} of {}", self.address),
            source,
        }
    }

    fn mappings(&self) -> MutexGuard<'_, BTreeMap<u64, DmaMapping>> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What can be seen in sysfs to be wrong; else the IOMMU group and the NUMA node.
fn check(sysfs: &Sysfs, address: PciAddress) -> Result<(u32, Option<u32>), VfioOpenError> {
    let found = sysfs
        .find(address)
        .map_err(|source| VfioOpenError::Sysfs { address, source })?;
    let Found {
        driver,
        iommu_group,
        numa_node,
        ..
    } = found.ok_or(VfioOpenError::NotFound { address })?;
    let group = iommu_group.ok_or(VfioOpenError::NoIommu { address })?;
    match driver.as_deref() {
        Some("vfio-pci") => Ok((group, numa_node)),
        _ => Err(VfioOpenError::NotBound { address, driver }),
    }
}

/// What an error of VFIO means for who set up the host.
fn explain(sysfs: &Sysfs, address: PciAddress, group: u32, error: VfioError) -> VfioOpenError {
    let (path, source) = match &error {
        VfioError::OpenContainer(source) => ("/dev/vfio/vfio".into(), source),
        VfioError::OpenGroup(source, group) => (format!("/dev/vfio/{group}"), source),
        VfioError::GroupViable => {
            return VfioOpenError::NotViable {
                address,
                group,
                others: others(sysfs, address, group),
            };
        }
        _ => {
            return VfioOpenError::Other {
                address,
                source: error,
            };
        }
    };
    match source.kind() {
        io::ErrorKind::NotFound => VfioOpenError::NoVfio { path },
        io::ErrorKind::PermissionDenied => VfioOpenError::Permission { path },
        io::ErrorKind::ResourceBusy => VfioOpenError::Busy { address },
        _ => VfioOpenError::Other {
            address,
            source: error,
        },
    }
}

/// The functions of a group that keep it from being used.
fn others(sysfs: &Sysfs, address: PciAddress, group: u32) -> String {
    let members = sysfs.group(group).unwrap_or_default();
    let foreign = members.iter().filter(|member| {
        member.address != address && member.driver.as_deref().is_some_and(|d| d != "vfio-pci")
    });
    let named: Vec<_> = foreign
        .map(|member| {
            format!(
                "{} ({})",
                member.address,
                member.driver.as_deref().unwrap_or_default()
            )
        })
        .collect();
    if named.is_empty() {
        "functions sysfs does not name".into()
    } else {
        named.join(", ")
    }
}

impl PciFunction for VfioCard {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<(), PciError> {
        check_config(offset, data.len())?;
        self.function
            .config_read(offset, data)
            .map_err(|e| self.system("configuration read", e))
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<(), PciError> {
        check_config(offset, data.len())?;
        self.function
            .config_write(offset, data)
            .map_err(|e| self.system("configuration write", e))
    }

    fn bar_bytes(&self) -> u32 {
        self.function.bar().bytes()
    }

    fn bar_read(&self, offset: u32) -> Result<u32, PciError> {
        self.function
            .bar()
            .read(offset)
            .ok_or_else(|| outside_bar(offset))
    }

    fn bar_write(&self, offset: u32, value: u32) -> Result<(), PciError> {
        self.function
            .bar()
            .write(offset, value)
            .ok_or_else(|| outside_bar(offset))
    }

    fn dma_map(&self, iova: u64, memory: &Memory, offset: u64, len: u64) -> Result<(), PciError> {
        let refused = |reason: String| PciError::Mapping { iova, len, reason };
        if [iova, offset, len].iter().any(|n| !n.is_multiple_of(PAGE)) || len == 0 {
            return Err(refused("not whole pages".into()));
        }
        let mut mappings = self.mappings();
        let Entry::Vacant(entry) = mappings.entry(iova) else {
            return Err(refused("overlaps another mapping".into()));
        };
        let mapping = self
            .function
            .map(iova, memory, offset, len)
            .map_err(|e| refused(reason(&e)))?;
        entry.insert(mapping);
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, len: u64) -> Result<(), PciError> {
        let refused = |reason: String| PciError::Mapping { iova, len, reason };
        let mut mappings = self.mappings();
        match mappings.entry(iova) {
            Entry::Occupied(entry) if entry.get().len() == len => {
                entry.remove().unmap().map_err(|e| refused(e.to_string()))
            }
            _ => Err(refused("no such mapping".into())),
        }
    }

    fn numa_node(&self) -> Option<u32> {
        self.numa_node
    }

    fn vectors(&self) -> usize {
        self.function.vectors()
    }

    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> Result<(), PciError> {
        let available = self.vectors();
        if eventfds.len() > available {
            return Err(PciError::Vectors {
                wanted: eventfds.len(),
                available,
            });
        }
        self.function
            .set_msix(eventfds)
            .map_err(|error| self.system("connecting interrupts", io::Error::other(error)))
    }

    fn reset(&self) -> Result<(), PciError> {
        self.function
            .reset(RESET_DEADLINE)
            .map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => PciError::Timeout {
                    address: self.address(),
                    what: "a function-level reset",
                    millis: crate::device::millis(RESET_DEADLINE),
                },
                _ => self.system("function-level reset", error),
            })
    }
}

/// Why a mapping failed, with a remedy where there is one.
fn reason(error: &MapError) -> String {
    match error {
        MapError::Vfio(VfioError::IommuDmaMap(errno)) if errno.errno() == Errno::NOMEM.raw_os_error() => {
            "more memory than this process may lock; raise `ulimit -l` (RLIMIT_MEMLOCK), or give it CAP_IPC_LOCK".into()
        }
        other => other.to_string(),
    }
}

fn check_config(offset: u16, len: usize) -> Result<(), PciError> {
    let at = usize::from(offset);
    if !matches!(len, 1 | 2 | 4) || !at.is_multiple_of(len) || at + len > CONFIG_BYTES {
        return Err(PciError::OutOfRange {
            region: "config",
            offset: offset.into(),
            len: len as u64,
        });
    }
    Ok(())
}

fn outside_bar(offset: u32) -> PciError {
    PciError::OutOfRange {
        region: "BAR0",
        offset: offset.into(),
        len: 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::tests::FakeSysfs;
    use phub_abi::PCI_DEVICE;

    const CARD: &str = "0000:3b:00.0";

    fn address() -> PciAddress {
        CARD.parse().unwrap()
    }

    #[test]
    fn what_sysfs_shows_to_be_wrong_is_said() {
        let fake = FakeSysfs::new();
        let open = || VfioCard::open(&fake.sysfs(), address()).err().unwrap();
        assert!(matches!(open(), VfioOpenError::NotFound { .. }));
        fake.add(CARD, PCI_DEVICE, Some("vfio-pci"), None);
        assert!(matches!(open(), VfioOpenError::NoIommu { .. }));
    }

    #[test]
    fn a_card_of_another_driver_is_not_touched() {
        for driver in [None, Some("other")] {
            let fake = FakeSysfs::new();
            fake.add(CARD, PCI_DEVICE, driver, Some(7));
            let error = VfioCard::open(&fake.sysfs(), address()).err().unwrap();
            assert!(
                matches!(&error, VfioOpenError::NotBound { driver: d, .. } if d.as_deref() == driver)
            );
            assert!(error.to_string().contains("driver_override"), "{error}");
        }
    }

    #[test]
    fn errors_of_the_kernel_are_explained() {
        let fake = FakeSysfs::new();
        fake.add(CARD, PCI_DEVICE, Some("vfio-pci"), Some(7));
        fake.add("0000:3b:00.1", 0x1111, Some("snd"), Some(7));
        let explained = |error| explain(&fake.sysfs(), address(), 7, error).to_string();
        let text = explained(VfioError::GroupViable);
        assert!(text.contains("0000:3b:00.1 (snd)"), "{text}");
        let text = explained(VfioError::OpenContainer(io::ErrorKind::NotFound.into()));
        assert!(text.contains("modprobe vfio-pci"), "{text}");
        let denied = io::ErrorKind::PermissionDenied.into();
        let text = explained(VfioError::OpenGroup(denied, "7".into()));
        assert!(text.contains("chown $USER /dev/vfio/7"), "{text}");
        let text = explained(VfioError::OpenGroup(
            io::ErrorKind::ResourceBusy.into(),
            "7".into(),
        ));
        assert!(text.contains("in use"), "{text}");
        let text = explained(VfioError::VfioType1V2);
        assert!(text.contains("VfioType1V2"), "{text}");
    }

    #[test]
    fn locked_memory_has_a_remedy() {
        let error =
            VfioError::IommuDmaMap(vmm_sys_util::errno::Error::new(Errno::NOMEM.raw_os_error()));
        assert!(reason(&error.into()).contains("ulimit -l"));
    }

    #[test]
    fn without_vfio_a_card_does_not_open() {
        if std::path::Path::new("/dev/vfio/vfio").exists() {
            return; // this host has VFIO: what happens then is for tests with a card
        }
        let fake = FakeSysfs::new();
        fake.add(CARD, PCI_DEVICE, Some("vfio-pci"), Some(7));
        let error = VfioCard::open(&fake.sysfs(), address()).err().unwrap();
        assert!(matches!(error, VfioOpenError::NoVfio { .. }), "{error}");
    }
}
