// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A toy PCI function, a server that offers it, and a raw connection that may say anything.
#![allow(dead_code)]

use std::{
    collections::{BTreeMap, HashMap},
    io::{Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use phub_pci::{
    Memory, PciError, PciFunction,
    config::{ConfigEffect, ConfigSpace},
    dma::DmaMap,
};
use phub_vfio_user::{Server, Stop};

/// Bytes of the toy's BAR0.
pub(crate) const BAR_BYTES: u32 = 0x1_0000;
/// Writing a number here raises that vector.
pub(crate) const RAISE: u32 = 0x100;
/// Writing an IOVA here (32 bits) reads the dword there into [`DMA_DATA`].
pub(crate) const DMA_ADDRESS: u32 = 0x104;
/// What the last DMA read gave; all ones if it was refused.
pub(crate) const DMA_DATA: u32 = 0x108;
/// Interrupt vectors of the toy.
pub(crate) const VECTORS: usize = 65;

/// The toy: dwords, a DMA read, interrupts.
#[derive(Default)]
pub(crate) struct Toy(pub Mutex<ToyState>);

pub(crate) struct ToyState {
    pub registers: HashMap<u32, u32>,
    pub config: ConfigSpace,
    pub dma: DmaMap,
    pub mapped: BTreeMap<u64, u64>,
    pub interrupts: Vec<OwnedFd>,
    pub resets: u32,
}

impl Default for ToyState {
    fn default() -> Self {
        Self {
            registers: HashMap::new(),
            config: ConfigSpace::new(VECTORS as u16),
            dma: DmaMap::default(),
            mapped: BTreeMap::new(),
            interrupts: Vec::new(),
            resets: 0,
        }
    }
}

impl PciFunction for Toy {
    fn address(&self) -> String {
        "toy".into()
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<(), PciError> {
        self.0.lock().unwrap().config.read(offset, data)
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<(), PciError> {
        let effect = self.0.lock().unwrap().config.write(offset, data)?;
        if effect == ConfigEffect::Reset {
            self.reset()
        } else {
            Ok(())
        }
    }

    fn bar_bytes(&self) -> u32 {
        BAR_BYTES
    }

    fn bar_read(&self, offset: u32) -> Result<u32, PciError> {
        Ok(self
            .0
            .lock()
            .unwrap()
            .registers
            .get(&offset)
            .copied()
            .unwrap_or(0))
    }

    fn bar_write(&self, offset: u32, value: u32) -> Result<(), PciError> {
        let mut state = self.0.lock().unwrap();
        state.registers.insert(offset, value);
        if offset == RAISE
            && let Some(fd) = state.interrupts.get(value as usize)
        {
            rustix::io::write(fd, &1u64.to_ne_bytes()).unwrap();
        }
        if offset == DMA_ADDRESS {
            let mut data = [0; 4];
            let ok = state.dma.read(value.into(), &mut data);
            let data = if ok {
                u32::from_le_bytes(data)
            } else {
                u32::MAX
            };
            state.registers.insert(DMA_DATA, data);
        }
        Ok(())
    }

    fn dma_map(&self, iova: u64, memory: &Memory, offset: u64, len: u64) -> Result<(), PciError> {
        let mut state = self.0.lock().unwrap();
        state.dma.map(iova, memory, offset, len)?;
        state.mapped.insert(iova, len);
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, len: u64) -> Result<(), PciError> {
        let mut state = self.0.lock().unwrap();
        state.dma.unmap(iova, len)?;
        state.mapped.remove(&iova);
        Ok(())
    }

    fn vectors(&self) -> usize {
        VECTORS
    }

    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> Result<(), PciError> {
        self.0.lock().unwrap().interrupts = eventfds
            .iter()
            .map(|fd| fd.try_clone_to_owned().unwrap())
            .collect();
        Ok(())
    }

    fn reset(&self) -> Result<(), PciError> {
        let mut state = self.0.lock().unwrap();
        state.registers.clear();
        state.config.reset();
        state.resets += 1;
        Ok(())
    }
}

/// A toy behind a socket, served until this is dropped.
pub(crate) struct Served {
    pub toy: Arc<Toy>,
    pub path: PathBuf,
    pub stop: Stop,
    thread: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Served {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("card.sock");
        let (toy, stop) = (Arc::new(Toy::default()), Stop::new().unwrap());
        let server = Server::bind(&path).unwrap();
        let thread = std::thread::spawn({
            let (toy, stop) = (toy.clone(), stop.clone());
            move || server.run(&*toy, &stop).unwrap()
        });
        Self {
            toy,
            path,
            stop,
            thread: Some(thread),
            _dir: dir,
        }
    }

    /// Ends the server and waits for it.
    pub(crate) fn end(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

/// Shared memory of `pages` pages.
pub(crate) fn memory(pages: u64) -> Memory {
    let fd = memfd(pages * 4096);
    Memory::from_fd(fd, 0, pages * 4096).unwrap()
}

/// A memfd that can be sealed.
pub(crate) fn memfd(bytes: u64) -> OwnedFd {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, bytes).unwrap();
    fd
}

/// An eventfd.
pub(crate) fn eventfd() -> OwnedFd {
    use rustix::event::EventfdFlags;
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Takes the count of an eventfd.
pub(crate) fn count(fd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(_) => u64::from_ne_bytes(count),
        Err(_) => 0,
    }
}

/// Waits until `done`, at most 5 s.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..500 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within 5 s");
}

/// A connection on which the test writes the bytes itself.
pub(crate) struct Raw(pub UnixStream);

/// Reply: flags, errno, body.
pub(crate) type Reply = (u32, u32, Vec<u8>);

impl Raw {
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Self(stream)
    }

    /// Connected, and past the version message.
    pub(crate) fn introduced(path: &Path) -> Self {
        let mut raw = Self::connect(path);
        let (flags, ..) = raw.ask(1, &[0, 0, 1, 0]).unwrap();
        assert_eq!(flags, 1);
        raw
    }

    pub(crate) fn message(command: u16, body: &[u8]) -> Vec<u8> {
        let mut m = vec![7, 0];
        m.extend(command.to_le_bytes());
        m.extend((16 + body.len() as u32).to_le_bytes());
        m.extend([0; 8]);
        m.extend(body);
        m
    }

    /// Sends a command; its reply, or none if the server hung up.
    pub(crate) fn ask(&mut self, command: u16, body: &[u8]) -> Option<Reply> {
        self.0.write_all(&Self::message(command, body)).unwrap();
        self.reply()
    }

    /// The errno of a command that must be refused.
    pub(crate) fn refused(&mut self, command: u16, body: &[u8]) -> u32 {
        let (flags, errno, rest) = self.ask(command, body).unwrap();
        assert_eq!(
            (flags, rest.len()),
            (0x21, 0),
            "command {command} was not refused"
        );
        errno
    }

    pub(crate) fn reply(&mut self) -> Option<Reply> {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).ok()?;
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let mut body = vec![0; word(4) as usize - 16];
        self.0.read_exact(&mut body).ok()?;
        Some((word(8), word(12), body))
    }

    /// Whether the server has closed this connection.
    pub(crate) fn hung_up(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 64]), Ok(0) | Err(_))
    }

    pub(crate) fn send_with_fds(&mut self, message: &[u8], fds: &[BorrowedFd<'_>]) {
        assert!(self.try_send_with_fds(message, fds));
    }

    /// Whether the message went out; the server may have hung up.
    pub(crate) fn try_send_with_fds(&mut self, message: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let mut space = vec![std::mem::MaybeUninit::uninit(); 16 * fds.len() + 64];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        let data = [std::io::IoSlice::new(message)];
        sendmsg(self.0.as_fd(), &data, &mut control, SendFlags::NOSIGNAL).is_ok()
    }
}

/// Little-endian fields of 4 bytes.
pub(crate) fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Body of a DMA map or unmap message.
pub(crate) fn map_body(offset: Option<u64>, iova: u64, len: u64) -> Vec<u8> {
    let mut body = words(&[32, if offset.is_some() { 3 } else { 0 }]);
    for v in offset.into_iter().chain([iova, len]) {
        body.extend(v.to_le_bytes());
    }
    body
}

/// Body of a region access.
pub(crate) fn access(region: u32, offset: u64, count: u32, data: &[u8]) -> Vec<u8> {
    [
        &offset.to_le_bytes()[..],
        &region.to_le_bytes(),
        &count.to_le_bytes(),
        data,
    ]
    .concat()
}
