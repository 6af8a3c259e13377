// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Asks a server to end, from any thread.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::event::{EventfdFlags, eventfd};

/// A flag that wakes whoever polls it; once raised it stays so.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// A flag that is not raised.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?)))
    }

    /// Raises the flag.
    pub fn stop(&self) {
        // Only a counter at its maximum can refuse, and then the flag is up already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
