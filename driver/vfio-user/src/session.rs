// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What one client has set up, and what its commands do. No socket in here.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use phub_pci::{
    Memory, PciError, PciFunction,
    config::{CONFIG_BYTES, MSIX_BAR_BYTES},
};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};

use crate::{
    channel::Message,
    wire::{
        Body, Command, DATA_MAX, DEVICE_FLAGS, Fields, IRQ_ACTION_TRIGGER, IRQ_DATA_BOOL,
        IRQ_DATA_EVENTFD, IRQ_DATA_NONE, IRQ_ERR, IRQ_INFO_FLAGS, IRQ_MSIX, IRQS, REGION_BAR0,
        REGION_BAR2, REGION_CONFIG, REGION_FLAGS, REGIONS, UNMAP_ALL, parse_version, version_body,
    },
};

/// Most DMA mappings of a client: 2 GiB in pages of 4 KiB, which is how a virtual machine maps memory.
const MAPS_MAX: usize = 1 << 19;
/// Most bytes of BAR0 in one message: each dword is an access of its own.
const BAR0_BYTES_MAX: u32 = 4096;
/// Granularity of DMA mappings.
const PAGE: u64 = 4096;

/// One client and the function it has for itself.
pub(crate) struct Session<'a> {
    function: &'a dyn PciFunction,
    introduced: bool,
    maps: BTreeMap<u64, Map>,
    files: HashMap<FileId, File>,
    vectors: Vec<Option<OwnedFd>>,
}

type FileId = (u64, u64);

struct Map {
    len: u64,
    /// None: address space without memory that could be mapped. The card's accesses there are refused.
    file: Option<FileId>,
}

/// A client may map thousands of pieces of one file; it is mapped into this process once.
struct File {
    memory: Memory,
    users: usize,
}

impl<'a> Session<'a> {
    pub(crate) fn new(function: &'a dyn PciFunction) -> Self {
        let vectors = (0..function.vectors()).map(|_| None).collect();
        Self {
            function,
            introduced: false,
            maps: BTreeMap::new(),
            files: HashMap::new(),
            vectors,
        }
    }

    /// Carries out one command; the reply's body.
    pub(crate) fn handle(&mut self, message: Message) -> Result<Vec<u8>, Errno> {
        let command = Command::from_code(message.header.command).ok_or(Errno::NOSYS)?;
        if self.introduced != (command != Command::Version) {
            return Err(Errno::INVAL);
        }
        let body = Fields(&message.body);
        match command {
            Command::Version => {
                let (minor, _) = parse_version(&message.body)?;
                self.introduced = true;
                Ok(version_body(minor).0)
            }
            Command::DmaMap => self.dma_map(body, message.fds),
            Command::DmaUnmap => self.dma_unmap(body),
            Command::DeviceInfo => Ok(Body::default()
                .u32(16)
                .u32(DEVICE_FLAGS)
                .u32(REGIONS)
                .u32(IRQS)
                .0),
            Command::RegionInfo => self.region_info(body),
            Command::IrqInfo => self.irq_info(body),
            Command::SetIrqs => self.set_irqs(body, message.fds),
            Command::RegionRead => self.region_read(body),
            Command::RegionWrite => self.region_write(body),
            Command::Reset => {
                self.function.reset().map_err(errno)?;
                Ok(Vec::new())
            }
        }
    }

    /// Stops the card and takes back all the client gave it.
    pub(crate) fn end(self) {
        let mut results = vec![self.function.reset(), self.function.set_interrupts(&[])];
        for (iova, map) in &self.maps {
            if map.file.is_some() {
                results.push(self.function.dma_unmap(*iova, map.len));
            }
        }
        // One reason is enough: a card that is gone says so every time.
        if let Some(error) = results.into_iter().find_map(Result::err) {
            tracing::warn!(%error, "while taking the card back from a client");
        }
    }

    fn dma_map(&mut self, mut body: Fields<'_>, fds: Vec<OwnedFd>) -> Result<Vec<u8>, Errno> {
        let (_argsz, _flags, offset, iova, len) = (
            body.u32()?,
            body.u32()?,
            body.u64()?,
            body.u64()?,
            body.u64()?,
        );
        let end = iova.checked_add(len).ok_or(Errno::INVAL)?;
        if len == 0 || [iova, len, offset].iter().any(|v| !v.is_multiple_of(PAGE)) || fds.len() > 1
        {
            return Err(Errno::INVAL);
        }
        if self
            .maps
            .range(..end)
            .next_back()
            .is_some_and(|(at, map)| at + map.len > iova)
        {
            return Err(Errno::EXIST);
        }
        if self.maps.len() >= MAPS_MAX {
            return Err(Errno::NOSPC);
        }
        let file = match fds.into_iter().next() {
            None => None,
            Some(fd) => {
                let id = self.open(fd)?;
                let mapped = self
                    .function
                    .dma_map(iova, &self.files[&id].memory, offset, len);
                if let Err(e) = mapped {
                    self.close(id);
                    return Err(errno(e));
                }
                Some(id)
            }
        };
        self.maps.insert(iova, Map { len, file });
        Ok(Vec::new())
    }

    fn dma_unmap(&mut self, mut body: Fields<'_>) -> Result<Vec<u8>, Errno> {
        let (_argsz, flags, iova, len) = (body.u32()?, body.u32()?, body.u64()?, body.u64()?);
        let end = match flags {
            // To the end of the address space, whose last byte nobody maps, is a range too: clients unmap all in halves.
            0 => len
                .checked_sub(1)
                .and_then(|rest| iova.checked_add(rest))
                .ok_or(Errno::INVAL)?
                .saturating_add(1),
            UNMAP_ALL if (iova, len) == (0, 0) => u64::MAX,
            _ => return Err(Errno::INVAL),
        };
        // A range with nothing in it is fine (clients unmap what they could not map); half a mapping is not.
        let cut = |at: u64| {
            self.maps
                .range(..at)
                .next_back()
                .is_some_and(|(from, map)| from + map.len > at)
        };
        if cut(iova) || cut(end) {
            return Err(Errno::INVAL);
        }
        let inside: Vec<u64> = self.maps.range(iova..end).map(|(at, _)| *at).collect();
        for at in inside {
            let Some(map) = self.maps.remove(&at) else {
                continue;
            };
            if let Some(id) = map.file {
                let unmapped = self.function.dma_unmap(at, map.len);
                self.close(id);
                unmapped.map_err(errno)?;
            }
        }
        Ok(Body::default().u32(24).u32(flags).u64(iova).u64(len).0)
    }

    fn open(&mut self, fd: OwnedFd) -> Result<FileId, Errno> {
        let stat = rustix::fs::fstat(&fd)?;
        let id = (stat.st_dev, stat.st_ino);
        if let Some(file) = self.files.get_mut(&id) {
            // A file that has grown since is mapped by its old size: a map beyond is refused.
            file.users += 1;
            return Ok(id);
        }
        let len = u64::try_from(stat.st_size).map_err(|_| Errno::INVAL)?;
        let memory = Memory::from_fd(fd, 0, len).map_err(|error| {
            tracing::warn!(%error, "a client's memory cannot be used");
            Errno::INVAL
        })?;
        self.files.insert(id, File { memory, users: 1 });
        Ok(id)
    }

    fn close(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.users -= 1;
            if file.users == 0 {
                self.files.remove(&id);
            }
        }
    }

    fn region_size(&self, region: u32) -> Result<u64, Errno> {
        match region {
            REGION_BAR0 => Ok(self.function.bar_bytes().into()),
            REGION_BAR2 => Ok(MSIX_BAR_BYTES.into()),
            REGION_CONFIG => Ok(CONFIG_BYTES as u64),
            _ if region < REGIONS => Ok(0),
            _ => Err(Errno::INVAL),
        }
    }

    fn region_info(&self, mut body: Fields<'_>) -> Result<Vec<u8>, Errno> {
        let (_argsz, _flags, region) = (body.u32()?, body.u32()?, body.u32()?);
        let size = self.region_size(region)?;
        let flags = if size == 0 { 0 } else { REGION_FLAGS };
        Ok(Body::default()
            .u32(32)
            .u32(flags)
            .u32(region)
            .u32(0)
            .u64(size)
            .u64(0)
            .0)
    }

    /// Region, offset and length of an access, checked.
    fn access(&self, body: &mut Fields<'_>) -> Result<(u32, u64, u32), Errno> {
        let (offset, region, count) = (body.u64()?, body.u32()?, body.u32()?);
        let end = offset.checked_add(count.into()).ok_or(Errno::INVAL)?;
        let most = if region == REGION_BAR0 {
            BAR0_BYTES_MAX
        } else {
            DATA_MAX
        };
        let aligned =
            region != REGION_BAR0 || (offset.is_multiple_of(4) && count.is_multiple_of(4));
        if count > most || !aligned || end > self.region_size(region)? {
            return Err(Errno::INVAL);
        }
        Ok((region, offset, count))
    }

    fn region_read(&self, mut body: Fields<'_>) -> Result<Vec<u8>, Errno> {
        let (region, offset, count) = self.access(&mut body)?;
        let mut data = vec![0; count as usize];
        match region {
            REGION_BAR0 => {
                for (at, dword) in (offset as u32..).step_by(4).zip(data.chunks_exact_mut(4)) {
                    dword
                        .copy_from_slice(&self.function.bar_read(at).map_err(errno)?.to_le_bytes());
                }
            }
            REGION_CONFIG => {
                for (at, len) in aligned_pieces(offset, count) {
                    let from = at - offset as usize;
                    self.function
                        .config_read(at as u16, &mut data[from..from + len])
                        .map_err(errno)?;
                }
            }
            // Whoever attaches to this socket keeps the MSI-X table itself: vectors come by SET_IRQS.
            _ => {}
        }
        Ok(Body::default()
            .u64(offset)
            .u32(region)
            .u32(count)
            .bytes(&data)
            .0)
    }

    fn region_write(&self, mut body: Fields<'_>) -> Result<Vec<u8>, Errno> {
        let (region, offset, count) = self.access(&mut body)?;
        let data = body.bytes(count as usize)?;
        match region {
            REGION_BAR0 => {
                for (at, dword) in (offset as u32..).step_by(4).zip(data.chunks_exact(4)) {
                    let value = u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]]);
                    self.function.bar_write(at, value).map_err(errno)?;
                }
            }
            REGION_CONFIG => {
                for (at, len) in aligned_pieces(offset, count) {
                    let from = at - offset as usize;
                    self.function
                        .config_write(at as u16, &data[from..from + len])
                        .map_err(errno)?;
                }
            }
            _ => {}
        }
        Ok(Body::default().u64(offset).u32(region).u32(count).0)
    }

    fn irq_info(&self, mut body: Fields<'_>) -> Result<Vec<u8>, Errno> {
        let (_argsz, _flags, index) = (body.u32()?, body.u32()?, body.u32()?);
        let count = self.irq_count(index)?;
        let flags = if count == 0 { 0 } else { IRQ_INFO_FLAGS };
        Ok(Body::default()
            .u32(16)
            .u32(flags)
            .u32(index)
            .u32(count as u32)
            .0)
    }

    fn irq_count(&self, index: u32) -> Result<usize, Errno> {
        match index {
            IRQ_MSIX => Ok(self.vectors.len()),
            IRQ_ERR => Ok(1),
            _ if index < IRQS => Ok(0),
            _ => Err(Errno::INVAL),
        }
    }

    fn set_irqs(&mut self, mut body: Fields<'_>, fds: Vec<OwnedFd>) -> Result<Vec<u8>, Errno> {
        let (_argsz, flags, index) = (body.u32()?, body.u32()?, body.u32()?);
        let (start, count) = (body.u32()? as usize, body.u32()? as usize);
        let have = self.irq_count(index)?;
        if start.checked_add(count).is_none_or(|end| end > have) || flags & IRQ_ACTION_TRIGGER == 0
        {
            return Err(Errno::INVAL);
        }
        // Only MSI-X does anything: the error interrupt is accepted so that QEMU asks no questions, and never fires.
        match flags & !IRQ_ACTION_TRIGGER {
            IRQ_DATA_EVENTFD if fds.len() == count || fds.is_empty() => {
                let mut fds = fds.into_iter();
                if index == IRQ_MSIX {
                    self.vectors[start..start + count].fill_with(|| fds.next());
                    self.connect()?;
                }
            }
            IRQ_DATA_NONE if count == 0 => {
                if index == IRQ_MSIX {
                    self.vectors.fill_with(|| None);
                    self.connect()?;
                }
            }
            kind @ (IRQ_DATA_NONE | IRQ_DATA_BOOL) if index == IRQ_MSIX => {
                let wanted = if kind == IRQ_DATA_BOOL {
                    body.bytes(count)?
                } else {
                    &vec![1; count]
                };
                for (vector, _) in self.vectors[start..]
                    .iter()
                    .zip(wanted)
                    .filter(|(_, wanted)| **wanted != 0)
                {
                    if let Some(fd) = vector {
                        rustix::io::write(fd, &1u64.to_ne_bytes())?;
                    }
                }
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(Vec::new())
    }

    /// Tells the function which eventfds its vectors have.
    fn connect(&self) -> Result<(), Errno> {
        let connected = self
            .vectors
            .iter()
            .rposition(Option::is_some)
            .map_or(0, |last| last + 1);
        let nobody = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let fds: Vec<BorrowedFd<'_>> = self.vectors[..connected]
            .iter()
            .map(|fd| fd.as_ref().unwrap_or(&nobody).as_fd())
            .collect();
        self.function.set_interrupts(&fds).map_err(errno)
    }
}

/// Cuts a range into naturally aligned pieces of 4, 2 and 1 bytes: (offset, length).
fn aligned_pieces(offset: u64, count: u32) -> impl Iterator<Item = (usize, usize)> {
    let (mut at, end) = (offset as usize, offset as usize + count as usize);
    std::iter::from_fn(move || {
        let len = [4, 2, 1]
            .into_iter()
            .find(|n| at.is_multiple_of(*n) && at + n <= end)?;
        at += len;
        Some((at - len, len))
    })
}

/// The nearest errno.
fn errno(error: PciError) -> Errno {
    tracing::debug!(%error, "refused");
    match error {
        PciError::OutOfRange { .. } | PciError::Mapping { .. } | PciError::Vectors { .. } => {
            Errno::INVAL
        }
        PciError::Gone { .. } => Errno::NODEV,
        PciError::Timeout { .. } => Errno::TIMEDOUT,
        PciError::System { source, .. } => source
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error),
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::aligned_pieces;

    #[test]
    fn pieces_are_aligned_and_cover_the_range() {
        let pieces: Vec<_> = aligned_pieces(1, 10).collect();
        assert_eq!(pieces, [(1, 1), (2, 2), (4, 4), (8, 2), (10, 1)]);
        assert_eq!(aligned_pieces(0, 0).count(), 0);
        assert_eq!(aligned_pieces(0, 4096).count(), 1024);
    }
}
