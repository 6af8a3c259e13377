// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A PCI function bound to vfio-pci, through `vfio-ioctls`.
//!
//! That crate keeps only a text of some errors and loses others (register and configuration accesses, resets), so these
//! are done here, on a duplicate of its device descriptor.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::ioctl::{NoArg, Opcode, ioctl, opcode};
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError};
use vmm_sys_util::eventfd::EventFd as VmmEventFd;

use crate::{MappedBar, Memory, MemoryError};

/// Region of BAR0 (`VFIO_PCI_BAR0_REGION_INDEX` in linux/vfio.h).
const BAR0: u32 = 0;
/// Region of configuration space (`VFIO_PCI_CONFIG_REGION_INDEX`).
const CONFIG: u32 = 7;
/// MSI-X interrupts (`VFIO_PCI_MSIX_IRQ_INDEX`).
const MSIX: u32 = 2;
/// Errors of the link and the function (`VFIO_PCI_ERR_IRQ_INDEX`).
const ERRORS: u32 = 3;
/// `VFIO_DEVICE_RESET`: `_IO(';', 100 + 11)`.
const RESET: Opcode = opcode::none(b';', 111);

/// An open function. It has the only device of its container.
pub struct VfioFunction {
    /// Dropped before the device: mapping and duplicate hold it open, and its group is free only after them.
    bar: ManuallyDrop<MappedBar>,
    file: ManuallyDrop<File>,
    device: ManuallyDrop<VfioDevice>,
    container: Arc<VfioContainer>,
    sysfs: PathBuf,
}

impl VfioFunction {
    /// Opens the function whose sysfs directory is `sysfs`.
    ///
    /// # Errors
    /// [`VfioError`] of the step that failed, and [`VfioError::VfioDeviceGetRegionInfo`] if BAR0 cannot be mapped.
    pub fn open(sysfs: &Path) -> Result<Self, VfioError> {
        let container = Arc::new(VfioContainer::new(None)?);
        let device = VfioDevice::new(sysfs, container.clone(), false)?;
        // SAFETY: the descriptor belongs to `device`, which lives until the end of this function at least.
        let fd = unsafe { BorrowedFd::borrow_raw(device.as_raw_fd()) };
        let file = File::from(
            fd.try_clone_to_owned()
                .map_err(|_| VfioError::VfioDeviceDupFd)?,
        );
        let bytes = u32::try_from(device.get_region_size(BAR0)).unwrap_or(0);
        let bar =
            MappedBar::map(&file, device.get_region_offset(BAR0), bytes).map_err(|error| {
                let errno = error.raw_os_error().unwrap_or(0);
                VfioError::VfioDeviceGetRegionInfo(vmm_sys_util::errno::Error::new(errno))
            })?;
        Ok(Self {
            bar: ManuallyDrop::new(bar),
            file: ManuallyDrop::new(file),
            device: ManuallyDrop::new(device),
            container,
            sysfs: sysfs.into(),
        })
    }

    /// BAR0.
    pub fn bar(&self) -> &MappedBar {
        &self.bar
    }

    /// Reads configuration space at `offset`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn config_read(&self, offset: u16, data: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(data, self.config_at(offset))
    }

    /// Writes configuration space at `offset`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn config_write(&self, offset: u16, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, self.config_at(offset))
    }

    /// MSI-X vectors.
    pub fn vectors(&self) -> usize {
        self.device
            .get_irq_info(MSIX)
            .map_or(0, |irq| irq.count as usize)
    }

    /// Connects eventfds to the first vectors; none disconnects all. The first also tells of errors of the link (AER), where
    /// the kernel reports them.
    ///
    /// # Errors
    /// [`VfioError::VfioDeviceEnableIrq`] or [`VfioError::VfioDeviceDisableIrq`].
    pub fn set_msix(&self, eventfds: &[BorrowedFd<'_>]) -> Result<(), VfioError> {
        if eventfds.is_empty() {
            if self.reports_errors() {
                self.device.disable_irq(ERRORS)?;
            }
            return self.device.disable_msix();
        }
        let duplicates: Result<Vec<_>, _> =
            eventfds.iter().map(|fd| fd.try_clone_to_owned()).collect();
        let wrapped: Vec<_> = duplicates
            .map_err(|_| VfioError::VfioDeviceDupFd)?
            .into_iter()
            // SAFETY: the descriptor is ours and goes over to the wrapper.
            .map(|fd| unsafe { VmmEventFd::from_raw_fd(fd.into_raw_fd()) })
            .collect();
        self.device.enable_msix(wrapped.iter().collect())?;
        match wrapped.first() {
            Some(first) if self.reports_errors() => self.device.enable_irq(ERRORS, vec![first]),
            _ => Ok(()),
        }
    }

    fn reports_errors(&self) -> bool {
        self.device
            .get_irq_info(ERRORS)
            .is_some_and(|irq| irq.count > 0)
    }

    /// Resets the function. The kernel can wait for ever for a device that is gone, so this gives up at `deadline`;
    /// the wait then goes on in a thread of its own.
    ///
    /// # Errors
    /// What the kernel says, or [`io::ErrorKind::TimedOut`].
    pub fn reset(&self, deadline: Duration) -> io::Result<()> {
        let file = self.file.try_clone()?;
        let (done, result) = mpsc::channel();
        std::thread::Builder::new()
            .name("vfio-reset".into())
            .spawn(move || {
                // SAFETY: VFIO_DEVICE_RESET takes no argument and touches no memory of this process.
                let outcome = unsafe { ioctl(&file, NoArg::<RESET>::new()) };
                // Nobody listens any more if it came too late.
                let _ = done.send(outcome);
            })?;
        match result.recv_timeout(deadline) {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Lets the function read and write `memory[offset..offset + len]` at `iova` until the mapping is dropped.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn map(
        &self,
        iova: u64,
        memory: &Memory,
        offset: u64,
        len: u64,
    ) -> Result<DmaMapping, MapError> {
        let memory = memory.slice(offset, len)?;
        // SAFETY: `DmaMapping` keeps the memory mapped in this process until it is unmapped for the function, and for good
        // if that fails. Memory has no references to its bytes, except as atomics.
        unsafe {
            self.container
                .vfio_dma_map(iova, len as usize, memory.as_ptr())
        }?;
        Ok(DmaMapping {
            container: self.container.clone(),
            memory,
            iova,
            mapped: true,
        })
    }

    fn config_at(&self, offset: u16) -> u64 {
        self.device.get_region_offset(CONFIG) + u64::from(offset)
    }
}

impl Drop for VfioFunction {
    fn drop(&mut self) {
        // SAFETY: each is dropped once, here; no method is called afterwards.
        unsafe {
            ManuallyDrop::drop(&mut self.bar);
            ManuallyDrop::drop(&mut self.file);
        }
        // The crate looks the group up in sysfs once more, and panics for a device that was unplugged.
        if self.sysfs.join("iommu_group").exists() {
            // SAFETY: dropped once, here; no method is called afterwards.
            unsafe { ManuallyDrop::drop(&mut self.device) };
        } else {
            tracing::warn!(device = %self.sysfs.display(), "unplugged: its group stays open");
        }
    }
}

/// Why memory could not be mapped for a function.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The range leaves the memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The kernel refused.
    #[error(transparent)]
    Vfio(#[from] VfioError),
}

/// Memory a function may read and write. Dropping it takes the memory back.
pub struct DmaMapping {
    container: Arc<VfioContainer>,
    memory: Memory,
    iova: u64,
    mapped: bool,
}

impl DmaMapping {
    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Takes the memory back: on return the function cannot touch it.
    ///
    /// # Errors
    /// [`VfioError::IommuDmaUnmap`]; the memory then stays allocated for good.
    pub fn unmap(mut self) -> Result<(), VfioError> {
        self.take_back()
    }

    fn take_back(&mut self) -> Result<(), VfioError> {
        if !std::mem::replace(&mut self.mapped, false) {
            return Ok(());
        }
        let result = self
            .container
            .vfio_dma_unmap(self.iova, self.memory.len() as usize);
        if result.is_err() {
            // The function may still write here, so this must never become anybody's memory.
            std::mem::forget(self.memory.clone());
        }
        result
    }
}

impl Drop for DmaMapping {
    fn drop(&mut self) {
        if let Err(error) = self.take_back() {
            tracing::error!(%error, iova = self.iova, "memory is kept: the function may use it");
        }
    }
}
