// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A PCI function behind a socket, as a driver sees it.

use std::{
    os::fd::BorrowedFd,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use phub_pci::{Memory, PciError, PciFunction};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
};

use crate::{
    channel::{Channel, ChannelError, Message},
    wire::{
        Body, Command, FDS_MAX, Fields, Header, IRQ_ACTION_TRIGGER, IRQ_DATA_EVENTFD,
        IRQ_DATA_NONE, IRQ_MSIX, MAP_READ_WRITE, REGION_BAR0, REGION_CONFIG, parse_version,
        version_body,
    },
};

/// A client's end of a vfio-user connection.
///
/// Every call ends within the time limit given to [`Client::connect`]. A card that did not answer one call counts as gone
/// for all later ones: what state it is in is not known, and a reply might still come.
pub struct Client {
    address: String,
    timeout: Duration,
    connection: Mutex<Connection>,
    bar_bytes: u32,
    vectors: usize,
    fds_max: usize,
}

struct Connection {
    channel: Channel,
    next_id: u16,
    /// Why the connection is of no use any more.
    dead: Option<String>,
}

impl Client {
    /// Time limit for one call that suits a simulated card.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Connects to the server at `path` and asks what the function has; every call, this one included, takes at most `timeout`.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, PciError> {
        let address = format!("vfio-user:{}", path.display());
        let deadline = Instant::now() + timeout;
        let channel = Channel::new(dial(path, &address, deadline, timeout)?);
        let mut client = Self {
            address,
            timeout,
            connection: Mutex::new(Connection {
                channel,
                next_id: 0,
                dead: None,
            }),
            bar_bytes: 0,
            vectors: 0,
            fds_max: 1,
        };
        let version = client.call(
            "the version message",
            Command::Version,
            version_body(u16::MAX),
            &[],
        )?;
        let theirs = parse_version(&version)
            .map_err(|e| client.nonsense("the version message", e))?
            .1;
        client.fds_max = theirs.max_msg_fds.clamp(1, FDS_MAX);

        let ask = Body::default()
            .u32(32)
            .u32(0)
            .u32(REGION_BAR0)
            .u32(0)
            .u64(0)
            .u64(0);
        let reply = client.call("region information", Command::RegionInfo, ask, &[])?;
        let mut fields = Fields(&reply);
        let size = fields
            .bytes(16)
            .and_then(|_| fields.u64())
            .map_err(|e| client.nonsense("region information", e))?;
        client.bar_bytes = u32::try_from(size)
            .map_err(|_| client.nonsense("region information", Errno::OVERFLOW))?;

        let ask = Body::default().u32(16).u32(0).u32(IRQ_MSIX).u32(0);
        let reply = client.call("interrupt information", Command::IrqInfo, ask, &[])?;
        let mut fields = Fields(&reply);
        let count = fields
            .bytes(12)
            .and_then(|_| fields.u32())
            .map_err(|e| client.nonsense("interrupt information", e))?;
        client.vectors = count.min(2048) as usize;
        Ok(client)
    }

    /// Sends a command and waits for its reply; returns the reply's body.
    fn call(
        &self,
        what: &'static str,
        command: Command,
        body: Body,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Vec<u8>, PciError> {
        let mut connection = self.lock()?;
        let deadline = Instant::now() + self.timeout;
        let id = connection.id();
        let request = Header::command(id, command, false).encode(&body.0);
        let reply = connection
            .channel
            .send(&request, fds, deadline)
            .and_then(|()| connection.reply(id, deadline))
            .map_err(|e| self.broken(&mut connection, what, e))?;
        match reply.header.refusal() {
            None => Ok(reply.body),
            Some(e) if e.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {
                let reason = "it has failed; the log of its simulator says why".to_string();
                connection.dead = Some(reason.clone());
                Err(PciError::Gone {
                    address: self.address.clone(),
                    reason,
                })
            }
            Some(source) => Err(PciError::System {
                what: format!("{} refused {what}", self.address),
                source,
            }),
        }
    }

    /// Sends a command that has no reply.
    fn post(&self, what: &'static str, command: Command, body: Body) -> Result<(), PciError> {
        let mut connection = self.lock()?;
        let id = connection.id();
        let request = Header::command(id, command, true).encode(&body.0);
        connection
            .channel
            .send(&request, &[], Instant::now() + self.timeout)
            .map_err(|e| self.broken(&mut connection, what, e))
    }

    fn lock(&self) -> Result<std::sync::MutexGuard<'_, Connection>, PciError> {
        // A panic elsewhere cannot have left the stream half-written: no code between two socket calls panics.
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &connection.dead {
            Some(reason) => Err(PciError::Gone {
                address: self.address.clone(),
                reason: reason.clone(),
            }),
            None => Ok(connection),
        }
    }

    /// Marks the connection dead.
    fn broken(
        &self,
        connection: &mut Connection,
        what: &'static str,
        error: ChannelError,
    ) -> PciError {
        if let ChannelError::Timeout = error {
            let millis = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
            connection.dead = Some(format!("it did not answer {what} within {millis} ms"));
            return PciError::Timeout {
                address: self.address.clone(),
                what,
                millis,
            };
        }
        let reason = match error {
            ChannelError::Closed if what == "the version message" => {
                "it closed the connection at once: is another client using it?".into()
            }
            other => format!("{other}, during {what}"),
        };
        connection.dead = Some(reason.clone());
        PciError::Gone {
            address: self.address.clone(),
            reason,
        }
    }

    /// A reply that makes no sense.
    fn nonsense(&self, what: &'static str, errno: Errno) -> PciError {
        PciError::System {
            what: format!("reply of {} to {what} makes no sense", self.address),
            source: errno.into(),
        }
    }

    fn region_read(
        &self,
        what: &'static str,
        region: u32,
        offset: u64,
        data: &mut [u8],
    ) -> Result<(), PciError> {
        let body = Body::default()
            .u64(offset)
            .u32(region)
            .u32(data.len() as u32);
        let reply = self.call(what, Command::RegionRead, body, &[])?;
        let mut fields = Fields(&reply);
        let got = fields
            .bytes(16)
            .and_then(|_| fields.bytes(data.len()))
            .map_err(|e| self.nonsense(what, e))?;
        data.copy_from_slice(got);
        Ok(())
    }

    fn irqs(&self, flags: u32, start: usize, eventfds: &[BorrowedFd<'_>]) -> Result<(), PciError> {
        let body = Body::default()
            .u32(20)
            .u32(flags)
            .u32(IRQ_MSIX)
            .u32(start as u32)
            .u32(eventfds.len() as u32);
        self.call("interrupt set-up", Command::SetIrqs, body, eventfds)
            .map(drop)
    }
}

impl Connection {
    fn id(&mut self) -> u16 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    fn reply(&self, id: u16, deadline: Instant) -> Result<Message, ChannelError> {
        loop {
            let message = self.channel.receive(deadline)?;
            if message.header.is_command() {
                // A server may ask for DMA through the socket; all memory we map has a file descriptor, so none needs to.
                let refusal = Header::reply(&message.header, Err(Errno::NOTSUP)).encode(&[]);
                self.channel.send(&refusal, &[], deadline)?;
            } else if message.header.is_reply() && message.header.id == id {
                return Ok(message);
            } else {
                tracing::warn!(
                    id = message.header.id,
                    "reply to nothing that was asked: ignored"
                );
            }
        }
    }
}

impl PciFunction for Client {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<(), PciError> {
        check_config(offset, data.len())?;
        self.region_read("a configuration read", REGION_CONFIG, offset.into(), data)
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<(), PciError> {
        check_config(offset, data.len())?;
        let body = Body::default()
            .u64(offset.into())
            .u32(REGION_CONFIG)
            .u32(data.len() as u32)
            .bytes(data);
        self.call("a configuration write", Command::RegionWrite, body, &[])
            .map(drop)
    }

    fn bar_bytes(&self) -> u32 {
        self.bar_bytes
    }

    fn bar_read(&self, offset: u32) -> Result<u32, PciError> {
        self.check_bar(offset)?;
        let mut data = [0; 4];
        self.region_read("a register read", REGION_BAR0, offset.into(), &mut data)?;
        Ok(u32::from_le_bytes(data))
    }

    /// Posted, as on PCI: it has taken effect before the next read returns.
    fn bar_write(&self, offset: u32, value: u32) -> Result<(), PciError> {
        self.check_bar(offset)?;
        let body = Body::default()
            .u64(offset.into())
            .u32(REGION_BAR0)
            .u32(4)
            .u32(value);
        self.post("a register write", Command::RegionWrite, body)
    }

    fn dma_map(&self, iova: u64, memory: &Memory, offset: u64, len: u64) -> Result<(), PciError> {
        if offset.checked_add(len).is_none_or(|end| end > memory.len()) {
            return Err(PciError::Mapping {
                iova,
                len,
                reason: "it lies outside the memory".into(),
            });
        }
        let at = memory.fd_offset() + offset;
        let body = Body::default()
            .u32(32)
            .u32(MAP_READ_WRITE)
            .u64(at)
            .u64(iova)
            .u64(len);
        self.call("a DMA mapping", Command::DmaMap, body, &[memory.fd()])
            .map(drop)
    }

    fn dma_unmap(&self, iova: u64, len: u64) -> Result<(), PciError> {
        let body = Body::default().u32(24).u32(0).u64(iova).u64(len);
        self.call("a DMA unmapping", Command::DmaUnmap, body, &[])
            .map(drop)
    }

    fn vectors(&self) -> usize {
        self.vectors
    }

    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> Result<(), PciError> {
        if eventfds.len() > self.vectors {
            return Err(PciError::Vectors {
                wanted: eventfds.len(),
                available: self.vectors,
            });
        }
        self.irqs(IRQ_DATA_NONE | IRQ_ACTION_TRIGGER, 0, &[])?;
        for (i, some) in eventfds.chunks(self.fds_max).enumerate() {
            self.irqs(
                IRQ_DATA_EVENTFD | IRQ_ACTION_TRIGGER,
                i * self.fds_max,
                some,
            )?;
        }
        Ok(())
    }

    fn reset(&self) -> Result<(), PciError> {
        self.call("a reset", Command::Reset, Body::default(), &[])
            .map(drop)
    }
}

impl Client {
    fn check_bar(&self, offset: u32) -> Result<(), PciError> {
        if !offset.is_multiple_of(4) || offset >= self.bar_bytes {
            return Err(PciError::OutOfRange {
                region: "BAR0",
                offset: offset.into(),
                len: 4,
            });
        }
        Ok(())
    }
}

fn check_config(offset: u16, len: usize) -> Result<(), PciError> {
    let inside = usize::from(offset) + len <= phub_pci::config::CONFIG_BYTES;
    if !matches!(len, 1 | 2 | 4) || !usize::from(offset).is_multiple_of(len) || !inside {
        return Err(PciError::OutOfRange {
            region: "config",
            offset: offset.into(),
            len: len as u64,
        });
    }
    Ok(())
}

/// A connected socket.
fn dial(
    path: &Path,
    address: &str,
    deadline: Instant,
    timeout: Duration,
) -> Result<std::os::fd::OwnedFd, PciError> {
    let failed = |what: &str, e: Errno| PciError::System {
        what: format!("{what} {}", path.display()),
        source: e.into(),
    };
    let to = SocketAddrUnix::new(path).map_err(|e| failed("socket path", e))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|e| failed("a socket for", e))?;
    loop {
        match connect(&socket, &to) {
            Ok(()) => return Ok(socket),
            // The server's queue of connections is full.
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                return Err(PciError::Timeout {
                    address: address.into(),
                    what: "a connection",
                    millis,
                });
            }
            Err(e) => return Err(failed("no card listens (start `phub-sim serve`) at", e)),
        }
    }
}
