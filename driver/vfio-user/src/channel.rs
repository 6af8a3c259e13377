// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Whole messages, with their file descriptors and a deadline, over a UNIX stream socket.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

use crate::wire::{FDS_MAX, HEADER, Header, MESSAGE_MAX};

/// Why a message did not come or go. After any of these the stream is out of step: close it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error("the other side closed the connection")]
    Closed,
    #[error("no complete message in time")]
    Timeout,
    #[error("a message states a size of {0} bytes")]
    Size(u32),
    #[error("more file descriptors than {FDS_MAX} with one message")]
    TooManyFds,
    #[error("socket: {0}")]
    Socket(#[from] Errno),
}

/// One message.
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) body: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// A connected stream socket.
pub(crate) struct Channel(OwnedFd);

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Channel {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// The next message, whole.
    pub(crate) fn receive(&self, deadline: Instant) -> Result<Message, ChannelError> {
        let mut head = [0; HEADER];
        let mut fds = Vec::new();
        // Reads stop at the message's end, so every descriptor that arrives belongs to this message.
        self.fill(&mut head, &mut fds, deadline)?;
        let header = Header::decode(&head);
        let size = header.size as usize;
        if !(HEADER..=MESSAGE_MAX).contains(&size) {
            return Err(ChannelError::Size(header.size));
        }
        let mut body = vec![0; size - HEADER];
        self.fill(&mut body, &mut fds, deadline)?;
        Ok(Message { header, body, fds })
    }

    /// Sends a message and its descriptors.
    pub(crate) fn send(
        &self,
        message: &[u8],
        fds: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), ChannelError> {
        let mut sent = 0;
        while sent < message.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            // Descriptors travel with the first byte.
            if sent == 0 && !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(ChannelError::TooManyFds);
            }
            let rest = [IoSlice::new(&message[sent..])];
            match sendmsg(
                &self.0,
                &rest,
                &mut control,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(n) => sent += n,
                Err(Errno::AGAIN) => wait(self.as_fd(), PollFlags::OUT, deadline)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(ChannelError::Closed),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn fill(
        &self,
        buffer: &mut [u8],
        fds: &mut Vec<OwnedFd>,
        deadline: Instant,
    ) -> Result<(), ChannelError> {
        let mut have = 0;
        while have < buffer.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut rest = [IoSliceMut::new(&mut buffer[have..])];
            let got = match recvmsg(
                &self.0,
                &mut rest,
                &mut control,
                RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
            ) {
                Ok(got) => got,
                Err(Errno::AGAIN) => {
                    wait(self.as_fd(), PollFlags::IN, deadline)?;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => return Err(ChannelError::Closed),
                Err(e) => return Err(e.into()),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(more) = message {
                    fds.extend(more);
                }
            }
            if got.flags.contains(ReturnFlags::CTRUNC) || fds.len() > FDS_MAX {
                return Err(ChannelError::TooManyFds);
            }
            if got.bytes == 0 {
                return Err(ChannelError::Closed);
            }
            have += got.bytes;
        }
        Ok(())
    }
}

/// Waits until `fd` is ready for `what`.
fn wait(fd: BorrowedFd<'_>, what: PollFlags, deadline: Instant) -> Result<(), ChannelError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ChannelError::Timeout);
    }
    match poll(
        &mut [PollFd::from_borrowed_fd(fd, what)],
        Some(&timespec(left)),
    ) {
        Ok(0) => Err(ChannelError::Timeout),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// `duration` for a system call.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
