// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Memory shared with a card and with other processes.

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// NUMA nodes that can be named.
const NODES: usize = 1024;
/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;
/// Bytes of a small page; offsets of mappings are multiples.
const PAGE: u64 = 4096;

/// Whether new memory is made of huge pages, which need fewer entries in the IOMMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Pages of 4 KiB.
    No,
    /// Pages of 2 MiB where the system has enough set aside; else 4 KiB, with a warning in the log.
    Prefer,
}

/// Why memory could not be had or accessed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system refused.
    #[error("{what} of {bytes:#x} bytes: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Size of the memory.
        bytes: u64,
        /// Why it failed.
        source: std::io::Error,
    },
    /// An access or a view outside the memory.
    #[error(
        "{len:#x} bytes at offset {offset:#x} are outside the {size:#x} bytes of the memory, or misaligned"
    )]
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes there are.
        size: u64,
    },
    /// The descriptor's owner could shrink the file under us, which would kill us at the next access.
    #[error(
        "the memory can be truncated by its owner; it must be a memfd that allows or has F_SEAL_SHRINK"
    )]
    Unsealed,
}

/// A range of a memfd, mapped. Clones and views share the mapping, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct Memory {
    mapping: Arc<Mapping>,
    /// First byte of this view in the mapping.
    start: u64,
    len: u64,
}

#[derive(Debug)]
struct Mapping {
    fd: OwnedFd,
    /// First byte of the mapping in the file.
    file_offset: u64,
    map: MmapRaw,
}

impl Memory {
    /// New zeroed memory of at least `bytes` bytes, rounded up to whole pages and sealed against any change of size.
    ///
    /// # Errors
    /// [`MemoryError::System`], for instance without memory left.
    pub fn new(bytes: u64, huge: HugePages) -> Result<Self, MemoryError> {
        // Rounding up wastes half a huge page at most.
        if huge == HugePages::Prefer && bytes >= HUGE / 2 {
            match Self::create(bytes, HUGE, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB) {
                Ok(memory) => return Ok(memory),
                Err(error) => tracing::warn!(
                    %error,
                    "no huge pages: the card's memory uses pages of 4 KiB; `sysctl vm.nr_hugepages` sets some aside"
                ),
            }
        }
        Self::create(bytes, PAGE, MemfdFlags::empty())
    }

    fn create(bytes: u64, page: u64, flags: MemfdFlags) -> Result<Self, MemoryError> {
        let size = bytes
            .max(1)
            .checked_next_multiple_of(page)
            .unwrap_or(u64::MAX);
        let system = |what| {
            move |error: Errno| MemoryError::System {
                what,
                bytes: size,
                source: error.into(),
            }
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags;
        let fd = memfd_create("phub", flags).map_err(system("memfd_create"))?;
        ftruncate(&fd, size).map_err(system("ftruncate"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&fd, seals).map_err(system("F_ADD_SEALS"))?;
        // Huge pages are reserved here, so that a lack of them is an error and not a signal at first use.
        Self::map(fd, 0, size)
    }

    /// Memory another process made: `len` bytes of `fd` from `offset`, a multiple of 4096.
    ///
    /// The file must be sealed against shrinking, or allow us to do so: a truncated mapping would kill us.
    pub fn from_fd(fd: OwnedFd, offset: u64, len: u64) -> Result<Self, MemoryError> {
        let system = |what| {
            move |error: Errno| MemoryError::System {
                what,
                bytes: len,
                source: error.into(),
            }
        };
        let seals = fcntl_get_seals(&fd).map_err(|_| MemoryError::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            fcntl_add_seals(&fd, SealFlags::SHRINK).map_err(|_| MemoryError::Unsealed)?;
        }
        let size = u64::try_from(fstat(&fd).map_err(system("fstat"))?.st_size).unwrap_or(0);
        let fits = offset.checked_add(len).is_some_and(|end| end <= size);
        if !fits || len == 0 || !offset.is_multiple_of(PAGE) {
            return Err(MemoryError::OutOfRange { offset, len, size });
        }
        Self::map(fd, offset, len)
    }

    fn map(fd: OwnedFd, file_offset: u64, len: u64) -> Result<Self, MemoryError> {
        let system = |what| {
            move |source| MemoryError::System {
                what,
                bytes: len,
                source,
            }
        };
        let bytes = usize::try_from(len).map_err(|_| MemoryError::OutOfRange {
            offset: 0,
            len,
            size: 0,
        })?;
        let file = File::from(fd);
        let map = MmapOptions::new()
            .offset(file_offset)
            .len(bytes)
            .map_raw(&file)
            .map_err(system("mmap"))?;
        Ok(Self {
            mapping: Arc::new(Mapping {
                fd: file.into(),
                file_offset,
                map,
            }),
            start: 0,
            len,
        })
    }

    /// Asks for the whole file's pages that are not there yet to be taken from NUMA node `node` while it has some: the
    /// node of the card that will read them, say.
    ///
    /// # Errors
    /// What the kernel says: there is no such node, or it knows no nodes.
    pub fn prefer_node(&self, node: u32) -> io::Result<()> {
        let mut nodes = [0u64; NODES / 64];
        let word = nodes
            .get_mut(node as usize / 64)
            .ok_or(io::ErrorKind::InvalidInput)?;
        *word = 1 << (node % 64);
        // SAFETY: the range is this mapping's, whose contents a policy does not change, and the kernel reads `NODES` bits of `nodes`.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.as_ptr(),
                self.len,
                libc::MPOL_PREFERRED,
                nodes.as_ptr(),
                // One more than the bits there are, as the system call has it.
                NODES + 1,
                0,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "memory is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The memfd, to be passed to another process or to a card.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd.as_fd()
    }

    /// Where this memory begins in [`Memory::fd`], in bytes.
    pub fn fd_offset(&self) -> u64 {
        self.mapping.file_offset + self.start
    }

    /// Where this memory is mapped in this process, for the kernel's DMA map. Not to be dereferenced.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer(0)
    }

    /// Part of this memory, sharing its mapping.
    pub fn slice(&self, offset: u64, len: u64) -> Result<Self, MemoryError> {
        self.check(offset, len, 1)?;
        Ok(Self {
            mapping: self.mapping.clone(),
            start: self.start + offset,
            len,
        })
    }

    /// Copies `memory[offset..]` into `to`. Concurrent writes of others may be seen in part.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryError> {
        self.check(offset, to.len() as u64, 1)?;
        // SAFETY: the range lies inside the mapping (checked), which lives as long as `self` and cannot shrink
        // (sealed); `to` is our own memory, so the two do not overlap. Torn values are allowed: bytes have
        // no invalid values, and callers order accesses by the ring protocol.
        unsafe { std::ptr::copy_nonoverlapping(self.pointer(offset), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Copies `from` into `memory[offset..]`.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryError> {
        self.check(offset, from.len() as u64, 1)?;
        // SAFETY: as in `read_at`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.pointer(offset), from.len()) };
        Ok(())
    }

    /// Copies FP32 values out of `memory[offset..]`; `offset` is a multiple of 4.
    pub fn read_f32(&self, offset: u64, to: &mut [f32]) -> Result<(), MemoryError> {
        self.check(offset, size_of_val(to) as u64, 4)?;
        // SAFETY: as in `read_at`; every bit pattern is an `f32`.
        unsafe {
            std::ptr::copy_nonoverlapping(self.pointer(offset).cast(), to.as_mut_ptr(), to.len())
        };
        Ok(())
    }

    /// Copies FP32 values into `memory[offset..]`; `offset` is a multiple of 4.
    pub fn write_f32(&self, offset: u64, from: &[f32]) -> Result<(), MemoryError> {
        self.check(offset, size_of_val(from) as u64, 4)?;
        // SAFETY: as in `read_at`, the other way round.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.pointer(offset).cast(), from.len())
        };
        Ok(())
    }

    /// Sets `len` bytes from `offset` to zero.
    pub fn fill_zero(&self, offset: u64, len: u64) -> Result<(), MemoryError> {
        self.check(offset, len, 1)?;
        // SAFETY: as in `read_at`; `len` fits a `usize` because the mapping does.
        unsafe { std::ptr::write_bytes(self.pointer(offset), 0, len as usize) };
        Ok(())
    }

    /// Reads the dword at `offset`, a multiple of 4.
    pub fn load_u32(&self, offset: u64, order: Ordering) -> Result<u32, MemoryError> {
        Ok(self.atomic_u32(offset)?.load(order))
    }

    /// Writes the dword at `offset`, a multiple of 4.
    pub fn store_u32(&self, offset: u64, value: u32, order: Ordering) -> Result<(), MemoryError> {
        self.atomic_u32(offset)?.store(value, order);
        Ok(())
    }

    /// The dword at `offset`, a multiple of 4, as an atomic.
    pub fn atomic_u32(&self, offset: u64) -> Result<&AtomicU32, MemoryError> {
        self.check(offset, 4, 4)?;
        // SAFETY: in range and aligned (checked; mappings are page aligned); lives as long as `self`. Others
        // access it as an atomic or by copy, and the card by DMA, which is as a relaxed atomic access.
        Ok(unsafe { AtomicU32::from_ptr(self.pointer(offset).cast()) })
    }

    /// The quadword at `offset`, a multiple of 8, as an atomic.
    pub fn atomic_u64(&self, offset: u64) -> Result<&AtomicU64, MemoryError> {
        self.check(offset, 8, 8)?;
        // SAFETY: as in `atomic_u32`.
        Ok(unsafe { AtomicU64::from_ptr(self.pointer(offset).cast()) })
    }

    fn pointer(&self, offset: u64) -> *mut u8 {
        // `start + offset` is inside the mapping, whose size is a `usize`.
        self.mapping
            .map
            .as_mut_ptr()
            .wrapping_add((self.start + offset) as usize)
    }

    fn check(&self, offset: u64, len: u64, align: u64) -> Result<(), MemoryError> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if inside && (self.start + offset).is_multiple_of(align) {
            Ok(())
        } else {
            Err(MemoryError::OutOfRange {
                offset,
                len,
                size: self.len,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_atomics_see_one_memory() {
        let memory = Memory::new(1, HugePages::No).unwrap();
        assert_eq!(memory.len(), 4096);
        memory.write_at(8, &[1, 2, 3, 4]).unwrap();
        assert_eq!(memory.load_u32(8, Ordering::Acquire).unwrap(), 0x0403_0201);
        let other = Memory::from_fd(memory.fd().try_clone_to_owned().unwrap(), 0, 4096).unwrap();
        other.store_u32(12, 7, Ordering::Release).unwrap();
        let mut bytes = [0; 8];
        memory.slice(8, 8).unwrap().read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 7, 0, 0, 0]);
        memory.write_f32(64, &[1.5, f32::INFINITY]).unwrap();
        let mut values = [0.0; 2];
        other.read_f32(64, &mut values).unwrap();
        assert_eq!(values, [1.5, f32::INFINITY]);
        memory.fill_zero(0, 4096).unwrap();
        assert_eq!(other.load_u32(12, Ordering::Relaxed).unwrap(), 0);
    }

    #[test]
    fn accesses_outside_are_refused() {
        let memory = Memory::new(8192, HugePages::No).unwrap();
        let slice = memory.slice(4096, 4096).unwrap();
        for (offset, len) in [(4096, 1), (4095, 2), (u64::MAX, 2), (0, 4097)] {
            assert!(slice.slice(offset, len).is_err(), "{offset} {len}");
        }
        assert!(slice.load_u32(4093, Ordering::Relaxed).is_err());
        assert!(slice.load_u32(2, Ordering::Relaxed).is_err());
        assert!(slice.atomic_u64(4).is_err());
        assert!(slice.read_at(4090, &mut [0; 7]).is_err());
        assert!(slice.write_at(4096, &[]).is_ok());
    }

    #[test]
    fn files_that_can_shrink_are_refused() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4096).unwrap();
        assert!(matches!(
            Memory::from_fd(file, 0, 4096),
            Err(MemoryError::Unsealed)
        ));
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 8192).unwrap();
        let memory = Memory::from_fd(file, 4096, 4096).unwrap();
        assert_eq!(memory.fd_offset(), 4096);
        assert!(ftruncate(memory.fd(), 0).is_err());
    }

    #[test]
    fn ranges_beyond_the_file_are_refused() {
        for (offset, len) in [
            (0, 8192),
            (4096, 1),
            (100, 8),
            (0, 0),
            (u64::MAX - 4095, 8192),
        ] {
            let fd = Memory::new(4096, HugePages::No)
                .unwrap()
                .fd()
                .try_clone_to_owned()
                .unwrap();
            assert!(Memory::from_fd(fd, offset, len).is_err(), "{offset} {len}");
        }
    }

    #[test]
    fn a_node_can_be_preferred() {
        /// Of the page at an address (linux/mempolicy.h).
        const MPOL_F_ADDR: libc::c_int = 1 << 1;
        let memory = Memory::new(1 << 20, HugePages::No).unwrap();
        match memory.prefer_node(0) {
            Ok(()) => {
                let mut mode = -1i32;
                let none = std::ptr::null_mut::<u64>();
                // SAFETY: the kernel writes the mode, and no nodes as there is no room for any.
                let asked = unsafe {
                    libc::syscall(
                        libc::SYS_get_mempolicy,
                        &raw mut mode,
                        none,
                        0,
                        memory.as_ptr(),
                        MPOL_F_ADDR,
                    )
                };
                assert_eq!((asked, mode), (0, libc::MPOL_PREFERRED));
            }
            Err(error) => assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSYS)),
        }
        memory.write_at(0, &[7; 4096]).unwrap();
        assert!(memory.prefer_node(NODES as u32).is_err());
        assert!(
            memory.prefer_node(NODES as u32 - 1).is_err(),
            "no such node"
        );
    }

    #[test]
    fn huge_pages_fall_back() {
        let memory = Memory::new(3 << 20, HugePages::Prefer).unwrap();
        assert!(memory.len() == 3 << 20 || memory.len() == 4 << 20);
        assert_eq!(Memory::new(100, HugePages::Prefer).unwrap().len(), PAGE);
    }

    #[test]
    fn absurd_sizes_are_errors() {
        assert!(Memory::new(u64::MAX, HugePages::No).is_err());
        assert!(Memory::new(1 << 62, HugePages::Prefer).is_err());
    }
}
