// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The hub's listening socket, and who is at the other end of a connection.

use std::fs::{Permissions, remove_file, rename, set_permissions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with, sockopt,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::HubError;

/// A listening `SOCK_SEQPACKET` socket in the file system, for its owner and group only. Dropping it removes the file.
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    pub(crate) fn bind(path: &Path) -> Result<Self, HubError> {
        let system = |what: &str| {
            let what = format!("{what} {}", path.display());
            move |error: Errno| HubError::system(what, error)
        };
        let address = SocketAddrUnix::new(path).map_err(system("use the socket path"))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let new = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        // A file nobody listens on is left over from a hub that was killed.
        if path
            .symlink_metadata()
            .is_ok_and(|file| file.file_type().is_socket())
            && connect(new().map_err(system("probe"))?, &address) != Err(Errno::CONNREFUSED)
        {
            return Err(HubError::InUse(path.to_owned()));
        }
        // It gets its mode before it gets its name: there is no moment in which others could connect.
        let hidden = path.with_extension(format!("{}.new", std::process::id()));
        let _ = remove_file(&hidden);
        let socket = new().map_err(system("make"))?;
        let hidden_address = SocketAddrUnix::new(&hidden).map_err(system("use the socket path"))?;
        bind(&socket, &hidden_address).map_err(system("bind"))?;
        let placed = set_permissions(&hidden, Permissions::from_mode(0o660)).and_then(|()| {
            listen(&socket, 128)?;
            rename(&hidden, path)
        });
        if let Err(error) = placed {
            let _ = remove_file(&hidden);
            return Err(HubError::system(
                format!("listen on {}", path.display()),
                error,
            ));
        }
        Ok(Self {
            socket,
            path: path.to_owned(),
        })
    }

    /// The next connection, if one waits.
    pub(crate) fn accept(&self) -> std::io::Result<Option<(OwnedFd, Peer)>> {
        match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                let peer = Peer::of(&socket)?;
                Ok(Some((socket, peer)))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "socket not removed");
        }
    }
}

/// The process at the other end.
pub(crate) struct Peer {
    /// 0 if it lives in a PID namespace we do not see.
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// Readable once the process has ended, also when a child of it keeps the connection open.
    pub(crate) pidfd: Option<OwnedFd>,
}

impl Peer {
    fn of(socket: &OwnedFd) -> std::io::Result<Self> {
        let credentials = sockopt::socket_peercred(socket)?;
        let pid = credentials.pid;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok();
        Ok(Self {
            pid: Pid::as_raw(Some(pid)) as u32,
            uid: credentials.uid.as_raw(),
            pidfd,
        })
    }

    /// Whether it may change what belongs to all.
    pub(crate) fn is_operator(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}
