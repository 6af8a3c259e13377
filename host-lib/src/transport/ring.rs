// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A worker's queue pair in its arena: rings, shadow doorbells, and being woken.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use phub_abi::{Completion, Descriptor};
use phub_driver::ring::{CompletionQueue, RingError, SubmissionQueue};
use phub_sys::{EventFd, Memory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::control::{ControlPage, Layout};

/// Submission and completion ring of one worker.
pub(crate) struct Ring {
    sq: SubmissionQueue,
    cq: CompletionQueue,
    page: ControlPage,
    layout: Layout,
    /// Wakes the hub's doorbell thread.
    kick: OwnedFd,
    /// Tail and head the hub knows.
    rung: (u16, u16),
}

impl Ring {
    pub(crate) fn new(memory: &Memory, layout: &Layout, kick: OwnedFd) -> Result<Self, RingError> {
        Ok(Self {
            sq: SubmissionQueue::new(memory, layout.sq_offset, layout.sq_log2)?,
            cq: CompletionQueue::new(memory, layout.cq_offset, layout.cq_log2)?,
            page: ControlPage::new(memory)?,
            layout: *layout,
            kick,
            rung: (0, 0),
        })
    }

    /// Whether another descriptor fits.
    pub(crate) fn has_room(&self) -> bool {
        self.sq.free() > 0
    }

    /// Puts a descriptor into the ring, without ringing.
    pub(crate) fn push(&mut self, descriptor: &Descriptor) -> Result<(), RingError> {
        self.sq.push(descriptor).map(drop)
    }

    /// The next completion, if there is one.
    pub(crate) fn pop(&mut self) -> Result<Option<Completion>, RingError> {
        let completion = self.cq.pop();
        if let Some(completion) = &completion {
            self.sq.set_head(completion.sq_head)?;
        }
        Ok(completion)
    }

    /// Tells the hub about what was pushed and popped since.
    pub(crate) fn ring(&mut self) -> io::Result<()> {
        let (tail, head) = (self.sq.tail(), self.cq.head());
        let (known_tail, known_head) = self.rung;
        let mut kick = head != known_head
            && self.page.ring_cq(head)
            && self.layout.head_is_due(known_head.into(), head.into());
        kick |= tail != known_tail && self.page.ring_sq(tail);
        self.rung = (tail, head);
        if kick {
            match send(&self.kick, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                // Full: the hub has kicks enough to wake from.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn page(&self) -> &ControlPage {
        &self.page
    }
}

/// What wakes a waiting worker: its completion eventfd, and the end of the hub.
pub(crate) struct Waker {
    pub(crate) event: EventFd,
    /// A second descriptor of the control connection.
    pub(crate) hub: OwnedFd,
}

impl Waker {
    /// Waits for `timeout` at most. Returns whether the hub has closed the connection.
    pub(crate) fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let timeout =
            Timespec::try_from(timeout.min(Duration::from_secs(3600))).map_err(io::Error::other)?;
        let mut fds = [
            PollFd::new(&self.event, PollFlags::IN),
            PollFd::new(&self.hub, PollFlags::RDHUP),
        ];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let closed = fds[1]
            .revents()
            .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR);
        self.event.drain()?;
        Ok(closed)
    }
}
