// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Eventfds: how a card's interrupts, and other processes, wake us.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A non-blocking eventfd.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, not signalled.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// One that another process made. Anything but an eventfd fails at first use.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self(fd))
    }

    /// A second handle on the same eventfd.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Wakes who waits, now or later. Signals before it waits count as one.
    ///
    /// Whoever shares the eventfd can make it blocking and fill it: so it is written only when it has room.
    pub fn signal(&self) -> io::Result<()> {
        let mut room = [PollFd::new(&self.0, PollFlags::OUT)];
        if poll(&mut room, Some(&Timespec::default()))? == 0 {
            // Full is signalled.
            return Ok(());
        }
        match write(&self.0, &1u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the signals so far; whether there was one.
    pub fn drain(&self) -> io::Result<bool> {
        match read(&self.0, &mut [0; 8]) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a signal until `timeout` is over and takes it; whether there was one.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        loop {
            if self.drain()? {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let left = Timespec::try_from(left).map_err(|_| io::Error::from(Errno::INVAL))?;
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_taken_once() {
        let event = EventFd::new().unwrap();
        assert!(!event.drain().unwrap());
        event.signal().unwrap();
        event.try_clone().unwrap().signal().unwrap();
        assert!(event.wait(Duration::ZERO).unwrap());
        assert!(!event.drain().unwrap());
    }

    #[test]
    fn waiting_ends() {
        let event = EventFd::new().unwrap();
        let start = Instant::now();
        assert!(!event.wait(Duration::from_millis(20)).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_full_and_blocking_one_holds_nobody_up() {
        let event = EventFd::new().unwrap();
        rustix::io::ioctl_fionbio(&event, false).unwrap();
        write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        event.signal().unwrap();
        assert!(event.wait(Duration::ZERO).unwrap());
    }

    #[test]
    fn a_waiter_is_woken() {
        let event = EventFd::new().unwrap();
        let other = event.try_clone().unwrap();
        let waker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            other.signal()
        });
        assert!(event.wait(Duration::from_secs(5)).unwrap());
        waker.join().unwrap().unwrap();
    }
}
