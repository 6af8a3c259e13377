// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A client's connection to the hub: one question, one answer, each with a deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::{Received, Reply, Request, VERSION, receive, send};
use crate::{Error, Result};

/// An open connection, after the greeting.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    path: PathBuf,
    timeout: Duration,
}

impl Connection {
    /// Connects to the hub's socket and greets it. `timeout` holds for this and for every later answer.
    pub fn open(path: &Path, timeout: Duration) -> Result<Self> {
        let unreachable = |reason: &dyn std::fmt::Display| Error::HubUnreachable {
            address: path.display().to_string(),
            reason: reason.to_string(),
        };
        let address = SocketAddrUnix::new(path).map_err(|e| unreachable(&e))?;
        // Non-blocking: a hub whose backlog is full answers EAGAIN instead of letting us wait for ever.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|e| unreachable(&e))?;
        let deadline = Instant::now() + timeout;
        while let Err(error) = connect(&socket, &address) {
            if error != Errno::AGAIN || Instant::now() >= deadline {
                return Err(unreachable(&error));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut connection = Self {
            socket,
            path: path.to_owned(),
            timeout,
        };
        let client = format!("phub {}", env!("CARGO_PKG_VERSION"));
        match connection
            .call(&Request::Hello {
                version: VERSION,
                client,
            })?
            .message
        {
            Reply::Hello {
                version: VERSION, ..
            } => Ok(connection),
            other => Err(unexpected("hello", &other)),
        }
    }

    /// Where the hub is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks, and waits for the answer. A refusal is an error; any other error ends the connection.
    pub fn call(&mut self, request: &Request) -> Result<Received<Reply>> {
        self.call_within(request, self.timeout)
    }

    /// The same for a request that may take the hub longer: mapping an arena for the card, say.
    pub fn call_within(&mut self, request: &Request, timeout: Duration) -> Result<Received<Reply>> {
        let answer = self.exchange(request, timeout);
        if answer.is_err() {
            // A late answer would be taken for that to the next question.
            self.close();
        }
        let answer = answer?;
        match answer.message {
            Reply::Refused { code, reason } => Err(Error::Refused { code, reason }),
            _ => Ok(answer),
        }
    }

    fn exchange(&self, request: &Request, timeout: Duration) -> Result<Received<Reply>> {
        let deadline = Instant::now() + timeout;
        loop {
            match send(&self.socket, request, &[]) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT, deadline, timeout)?
                }
                // A hub that has closed the connection may have said why: that is still to be read.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
                Err(error) => return Err(self.gone(&error)),
            }
        }
        loop {
            match receive::<Reply>(&self.socket) {
                Ok(Some(received)) => return Ok(received),
                Ok(None) => return Err(self.gone(&"connection closed")),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::IN, deadline, timeout)?
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(Error::Protocol {
                        what: format!("answer of the hub: {error}"),
                    });
                }
                Err(error) => return Err(self.gone(&error)),
            }
        }
    }

    /// Ends the conversation; the hub notices at once.
    pub fn close(&mut self) {
        // It fails only if the other side has closed already.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    fn wait(&self, what: PollFlags, deadline: Instant, timeout: Duration) -> Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.gone(&format_args!("no answer in {timeout:?}")));
        }
        let left = Timespec::try_from(left).map_err(|_| self.gone(&"timeout too long"))?;
        match poll(&mut [PollFd::new(&self.socket, what)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(self.gone(&error)),
        }
    }

    fn gone(&self, reason: &dyn std::fmt::Display) -> Error {
        Error::HubGone {
            address: self.path.display().to_string(),
            reason: reason.to_string(),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The error for an answer that does not belong to the question.
pub(crate) fn unexpected(question: &str, answer: &Reply) -> Error {
    Error::Protocol {
        what: format!("answer to {question} is {answer:?}"),
    }
}
