// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! From a hub's address to a worker of a tenant.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use phub_sys::{EventFd, Memory};

use crate::arena::Arena;
use crate::control::{Connection, Join, Joined, Received, Reply, Request, unexpected};
use crate::engine::{Engine, Settings};
use crate::shared::{Shared, system};
use crate::transport::{Ring, Waker};
use crate::{Error, Refusal, Result, Worker};

/// How long the hub may take to answer a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait before asking again to join a tenant whose last run is about to end.
const JOIN_AGAIN: Duration = Duration::from_millis(10);

/// Longer than any job, and short enough to be added to a time.
const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Where a hub is: `unix:/path/of/phubd.sock`, or the path alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// The socket of `phubd` on the card's own host.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(address: &str) -> Result<Self> {
        let path = address.strip_prefix("unix:").unwrap_or(address);
        if path.is_empty() || (path == address && address.contains("://")) {
            return Err(Error::InvalidUsage {
                what: format!("`{address}` is no hub's address"),
                remedy: "write unix:/path/of/phubd.sock",
            });
        }
        Ok(Self::Unix(path.into()))
    }
}

/// How a worker wants to work. Fields have sensible defaults: `JoinOptions { arena_bytes: 1 << 30, ..Default::default() }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinOptions {
    /// Card-visible memory for tensors, in bytes (64 MiB).
    pub arena_bytes: u64,
    /// How long a wait goes on while nothing moves (30 s). A worker that dies is noticed much sooner.
    pub timeout: Duration,
    /// Whether payloads and results carry a CRC-32 between this library and the card (yes).
    pub crc: bool,
    /// Sequence number of the first segment (0); the same on all workers. For tests of the wrap.
    #[doc(hidden)]
    pub first_sequence: u32,
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self {
            arena_bytes: 64 << 20,
            timeout: Duration::from_secs(30),
            crc: true,
            first_sequence: 0,
        }
    }
}

/// A connection to a hub.
#[derive(Debug)]
pub struct Hub {
    control: Connection,
}

impl Hub {
    /// Connects to the hub at `address`, which reads as [`Address`] says.
    ///
    /// Errors: [`Error::HubUnreachable`], or [`Error::Refused`] by a hub of another version.
    pub fn connect(address: &str) -> Result<Self> {
        let Address::Unix(path) = address.parse()?;
        Self::open(&path)
    }

    fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            control: Connection::open(path, ANSWER_TIMEOUT)?,
        })
    }

    /// Becomes worker `rank` of the `world` workers of `tenant`, whose secret is `token`.
    ///
    /// It does not wait for the other workers: the first operation does. If a part of the workers of
    /// an earlier run has not left yet, it waits for them. Errors: [`Error::Refused`], with the rule that is broken.
    pub fn join(
        mut self,
        tenant: &str,
        rank: u32,
        world: u32,
        token: u64,
        options: JoinOptions,
    ) -> Result<Worker> {
        let request = Join {
            tenant: tenant.to_owned(),
            token,
            world,
            rank,
            arena_bytes: options.arena_bytes,
        };
        let answer = self.ask_to_join(&Request::Join(request), options.timeout.min(TIMEOUT_MAX))?;
        let joined = match answer.message {
            Reply::Joined(joined) => joined,
            other => return Err(unexpected("join", &other)),
        };
        let Ok([arena, event, kick]) = <[_; 3]>::try_from(answer.fds) else {
            return Err(Error::Protocol {
                what: "answer to join without its three descriptors".into(),
            });
        };
        check(&joined)?;
        let layout = &joined.layout;
        let memory = Memory::from_fd(arena, 0, layout.arena_bytes)
            .map_err(|e| system("map the arena", &e))?;
        let ring = Ring::new(&memory, layout, kick).map_err(|e| system("map the rings", &e))?;
        let start =
            usize::try_from(layout.buffers_offset).map_err(|e| system("map the arena", &e))?;
        let arena = Arena::new(memory, joined.iova, start);
        let event = EventFd::from_fd(event).map_err(|e| system("take the eventfd", &e))?;
        let hub = rustix::io::fcntl_dupfd_cloexec(&self.control, 0)
            .map_err(|e| system("duplicate the connection", &e))?;
        let settings = Settings {
            tenant: tenant.to_owned(),
            rank,
            timeout: options.timeout.min(TIMEOUT_MAX),
            crc: options.crc,
            first_sequence: options.first_sequence,
        };
        let engine = Engine::new(settings, &joined, ring, self.control);
        let shared = Shared::new(engine, Waker { event, hub }, arena);
        tracing::debug!(
            tenant,
            rank,
            world,
            epoch = joined.epoch,
            queue = joined.queue,
            "joined"
        );
        Ok(Worker::new(shared, tenant.to_owned(), rank, world))
    }
}

impl Hub {
    /// Asks until those who are still in the last run have left, or `timeout` is over.
    fn ask_to_join(&mut self, request: &Request, timeout: Duration) -> Result<Received<Reply>> {
        let deadline = Instant::now() + timeout;
        loop {
            // The hub maps the arena before it answers, and those of others before that.
            match self.control.call_within(request, timeout) {
                Err(Error::Refused {
                    code: Refusal::EpochClosing,
                    ..
                }) if Instant::now() < deadline => {
                    std::thread::sleep(JOIN_AGAIN);
                }
                answer => return answer,
            }
        }
    }
}

/// A hub of the right version does not send these; memory accesses depend on them.
fn check(joined: &Joined) -> Result<()> {
    let segment_ok =
        joined.segment_bytes.is_power_of_two() && joined.segment_bytes <= crate::chunk::CHUNK_BYTES;
    if joined.layout.is_sound() && segment_ok && joined.slots > 0 {
        return Ok(());
    }
    Err(Error::Protocol {
        what: format!("answer to join is {joined:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!("unix:/run/x".parse(), Ok(Address::Unix("/run/x".into())));
        assert_eq!("/run/x".parse(), Ok(Address::Unix("/run/x".into())));
        assert!("".parse::<Address>().is_err());
        assert!("unix:".parse::<Address>().is_err());
        assert!("phub://host".parse::<Address>().is_err());
    }

    #[test]
    fn nobody_there_is_an_error_with_a_remedy() {
        let error = Hub::connect("unix:/nonexistent/phubd.sock").unwrap_err();
        assert!(matches!(error, Error::HubUnreachable { .. }), "{error}");
        assert!(error.remedy().contains("phubd"));
    }
}
