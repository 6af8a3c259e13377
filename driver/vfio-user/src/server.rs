// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Offers a PCI function at a socket, to one client after the other.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use phub_pci::PciFunction;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{
    channel::{Channel, ChannelError},
    session::Session,
    stop::Stop,
    wire::Header,
};

/// Longest time for the rest of a message to arrive, or for a reply to be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a card cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Another server listens there.
    #[error("{path} is in use by another server; stop that one or choose another path")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// There is something else than a socket at that place.
    #[error("{path} exists and is not a socket; remove it or choose another path")]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{what} {path}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The socket.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// A listening socket; dropping it removes the socket's file.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of our file, so that the file of a successor is left alone.
    file: (u64, u64),
}

impl Server {
    /// Listens at `path`. A socket that a dead server left there is replaced.
    pub fn bind(path: &Path) -> Result<Self, ServerError> {
        let failed = |what| {
            move |source| ServerError::System {
                what,
                path: path.into(),
                source,
            }
        };
        match path.symlink_metadata() {
            Ok(there) if !there.file_type().is_socket() => {
                return Err(ServerError::NotASocket { path: path.into() });
            }
            Ok(_) => match UnixStream::connect(path) {
                Ok(_) => return Err(ServerError::InUse { path: path.into() }),
                Err(_) => {
                    std::fs::remove_file(path).map_err(failed("removing the stale socket"))?
                }
            },
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(failed("listening at"))?;
        listener
            .set_nonblocking(true)
            .map_err(failed("preparing"))?;
        let there = path.metadata().map_err(failed("looking at"))?;
        Ok(Self {
            listener,
            path: path.into(),
            file: (there.dev(), there.ino()),
        })
    }

    /// Serves clients one after the other until `stop` is raised. A second client at the same time is turned away.
    ///
    /// When a client leaves, `function` is reset and loses the client's mappings and interrupts.
    pub fn run(&self, function: &dyn PciFunction, stop: &Stop) -> Result<(), ServerError> {
        while let Some(client) = self.next_client(stop)? {
            tracing::info!("a client came");
            let mut session = Session::new(function);
            let why = self.serve(&Channel::new(client), &mut session, stop);
            session.end();
            match why {
                Ok(()) | Err(ChannelError::Closed) => tracing::info!("the client left"),
                Err(error) => tracing::warn!(%error, "the client was dropped"),
            }
        }
        Ok(())
    }

    /// The next client, or none if `stop` was raised.
    fn next_client(&self, stop: &Stop) -> Result<Option<OwnedFd>, ServerError> {
        let failed = |what, source| ServerError::System {
            what,
            path: self.path.clone(),
            source,
        };
        loop {
            let mut fds = [
                PollFd::new(stop, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(failed("waiting at", e.into())),
            }
            if fds[0].revents().contains(PollFlags::IN) {
                return Ok(None);
            }
            match self.listener.accept() {
                Ok((client, _)) => return Ok(Some(client.into())),
                // The client may have left again already; out of descriptors may pass.
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => {
                    tracing::warn!(%error, "a client could not be accepted");
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    /// Handles the messages of one client until it leaves (`Closed`), misbehaves, or `stop` is raised.
    fn serve(
        &self,
        channel: &Channel,
        session: &mut Session<'_>,
        stop: &Stop,
    ) -> Result<(), ChannelError> {
        loop {
            let mut fds = [
                PollFd::new(channel, PollFlags::IN),
                PollFd::new(stop, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            let [client, stopped, knock] = fds.each_ref().map(|fd| !fd.revents().is_empty());
            if stopped {
                return Ok(());
            }
            // The present client first: if it has left, the one that knocks is welcome.
            if client {
                let message = channel.receive(Instant::now() + PATIENCE)?;
                let header = message.header;
                if !header.is_command() {
                    tracing::warn!(id = header.id, "a reply to nothing that was asked: ignored");
                    continue;
                }
                let result = session.handle(message);
                if let Err(errno) = result {
                    tracing::warn!(command = header.command, %errno, "refused");
                }
                if !header.is_posted() {
                    let (result, body) =
                        result.map_or_else(|e| (Err(e), Vec::new()), |body| (Ok(()), body));
                    let reply = Header::reply(&header, result).encode(&body);
                    channel.send(&reply, &[], Instant::now() + PATIENCE)?;
                }
            } else if knock && self.listener.accept().is_ok() {
                tracing::warn!("a second client was turned away");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self
            .path
            .symlink_metadata()
            .is_ok_and(|there| (there.dev(), there.ino()) == self.file)
        {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
