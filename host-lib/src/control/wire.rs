// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! One JSON object a message over a `SOCK_SEQPACKET` UNIX socket, with file descriptors beside it. Nothing here waits.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message in bytes.
pub const MESSAGE_MAX: usize = 64 * 1024;
/// Most file descriptors of one message.
const FDS_MAX: usize = 4;

/// A message and what came with it.
#[derive(Debug)]
pub struct Received<T> {
    /// The message.
    pub message: T,
    /// Its file descriptors, close-on-exec.
    pub fds: Vec<OwnedFd>,
}

/// Sends one message at once, or fails with [`io::ErrorKind::WouldBlock`].
pub fn send(socket: impl AsFd, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let data = serde_json::to_vec(message)?;
    if data.len() > MESSAGE_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("message of {} bytes", data.len()),
        ));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "too many file descriptors",
        ));
    }
    sendmsg(
        socket,
        &[IoSlice::new(&data)],
        &mut control,
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives one message that is there already; `None` when the other side has closed.
///
/// Fails with [`io::ErrorKind::WouldBlock`] if there is none, with [`io::ErrorKind::InvalidData`] if it is not one.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<Received<T>>> {
    let mut data = vec![0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut data)],
        &mut control,
        RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
    )?;
    // Descriptors are taken before anything can fail, so that none stays open unseen.
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "message too long",
        ));
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&data[..got.bytes])
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    Ok(Some(Received { message, fds }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap()
    }

    #[test]
    fn messages_keep_their_bounds_and_descriptors() {
        let (a, b) = pair();
        send(&a, &vec![1, 2], &[a.as_fd(), b.as_fd()]).unwrap();
        send(&a, &vec![3], &[]).unwrap();
        let first: Received<Vec<u32>> = receive(&b).unwrap().unwrap();
        assert_eq!((first.message, first.fds.len()), (vec![1, 2], 2));
        let second: Received<Vec<u32>> = receive(&b).unwrap().unwrap();
        assert_eq!((second.message, second.fds.len()), (vec![3], 0));
        assert_eq!(
            receive::<Vec<u32>>(&b).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        drop((first.fds, a));
        assert!(receive::<Vec<u32>>(&b).unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let (a, b) = pair();
        rustix::io::write(&a, b"{\"x\":").unwrap();
        assert_eq!(
            receive::<Vec<u32>>(&b).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        rustix::io::write(&a, &vec![b' '; MESSAGE_MAX + 1]).unwrap();
        assert_eq!(
            receive::<Vec<u32>>(&b).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        let long = "x".repeat(MESSAGE_MAX);
        assert_eq!(
            send(&a, &long, &[]).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
