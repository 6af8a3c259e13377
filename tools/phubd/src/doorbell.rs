// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The doorbell thread: passes the workers' shadow doorbells on to the card.
//!
//! It polls while something happens and for [`SPIN`] after; then it tells every worker that it sleeps, looks once more, and sleeps until one
//! kicks it. An idle hub uses no CPU.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use phub::control::{ControlPage, Layout};
use phub_driver::Queue;
use phub_sys::EventFd;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, recv};

/// How long it goes on polling after the last doorbell.
const SPIN: Duration = Duration::from_micros(50);

/// What the thread has to say.
#[derive(Clone, Debug)]
pub(crate) enum Report {
    /// A worker rang nonsense; its queue is not polled any more.
    Nonsense { queue: u32, what: String },
    /// The card did not take a doorbell.
    Card { what: String },
}

/// The doorbell thread and what it works on. Dropping it ends the thread.
pub(crate) struct Doorbells {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

struct Inner {
    queues: Mutex<Vec<Watched>>,
    reports: Mutex<Vec<Report>>,
    /// Something is in `reports`.
    reported: EventFd,
    /// `queues` or `stop` has changed.
    changed: EventFd,
    stop: AtomicBool,
    rung: AtomicU64,
    wakeups: AtomicU64,
}

/// A worker's shadow doorbells, and what the card was told of them.
struct Watched {
    queue: Arc<Queue>,
    page: ControlPage,
    /// Our end of the worker's kick socket.
    kick: Arc<OwnedFd>,
    layout: Layout,
    sq_tail: u32,
    cq_head: u32,
    nonsense: bool,
}

impl Doorbells {
    pub(crate) fn start() -> std::io::Result<Self> {
        let inner = Arc::new(Inner {
            queues: Mutex::default(),
            reports: Mutex::default(),
            reported: EventFd::new()?,
            changed: EventFd::new()?,
            stop: AtomicBool::new(false),
            rung: AtomicU64::new(0),
            wakeups: AtomicU64::new(0),
        });
        let thread = std::thread::Builder::new()
            .name("doorbells".into())
            .spawn({
                let inner = inner.clone();
                move || inner.run()
            })?;
        Ok(Self {
            inner,
            thread: Some(thread),
        })
    }

    /// Starts to poll a queue.
    pub(crate) fn watch(
        &self,
        queue: Arc<Queue>,
        page: ControlPage,
        layout: &Layout,
        kick: OwnedFd,
    ) {
        let watched = Watched {
            queue,
            page,
            kick: Arc::new(kick),
            layout: *layout,
            sq_tail: 0,
            cq_head: 0,
            nonsense: false,
        };
        self.inner.queues().push(watched);
        self.inner.wake();
    }

    /// Stops polling a queue. On return no doorbell of it is or will be rung, and the thread does not hold it.
    pub(crate) fn forget(&self, queue: u32) {
        self.inner
            .queues()
            .retain(|watched| watched.queue.index() != queue);
        self.inner.wake();
    }

    /// What has been reported since the last call.
    pub(crate) fn reports(&self) -> Vec<Report> {
        // An eventfd of our own: draining does not fail.
        let _ = self.inner.reported.drain();
        std::mem::take(
            &mut self
                .inner
                .reports
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Readable when there are reports.
    pub(crate) fn reported(&self) -> &EventFd {
        &self.inner.reported
    }

    /// Doorbells passed on, and wake-ups.
    pub(crate) fn counters(&self) -> (u64, u64) {
        (
            self.inner.rung.load(Ordering::Relaxed),
            self.inner.wakeups.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Doorbells {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Relaxed);
        self.inner.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the doorbell thread has panicked");
        }
    }
}

impl Inner {
    fn run(&self) {
        let mut last = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            if self.pass_on() {
                last = Instant::now();
            }
            if last.elapsed() < SPIN {
                // Lets the card's simulator, or a worker, have the core.
                std::thread::yield_now();
                continue;
            }
            self.sleep();
            last = Instant::now();
        }
    }

    /// Looks at all doorbells once. Whether any had been rung.
    fn pass_on(&self) -> bool {
        let mut any = false;
        for watched in self.queues().iter_mut().filter(|watched| !watched.nonsense) {
            match watched.pass_on() {
                Ok(rung) => {
                    self.rung.fetch_add(rung, Ordering::Relaxed);
                    any |= rung > 0;
                }
                Err(report) => {
                    watched.nonsense = true;
                    self.reports
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(report);
                    // It is non-blocking, and full is signalled.
                    let _ = self.reported.signal();
                }
            }
        }
        any
    }

    fn sleep(&self) {
        let kicks: Option<Vec<_>> = {
            let queues = self.queues();
            queues
                .iter()
                .for_each(|watched| watched.page.set_asleep(true));
            let quiet = !queues.iter().any(Watched::is_rung);
            // A closed kick socket would be readable for ever.
            quiet.then(|| {
                queues
                    .iter()
                    .filter(|watched| !watched.nonsense)
                    .map(|watched| watched.kick.clone())
                    .collect()
            })
        };
        if let Some(kicks) = kicks {
            let mut fds = vec![PollFd::new(&self.changed, PollFlags::IN)];
            fds.extend(kicks.iter().map(|kick| PollFd::new(kick, PollFlags::IN)));
            if let Err(error) = poll(&mut fds, None)
                && error != rustix::io::Errno::INTR
            {
                tracing::error!(%error, "the doorbell thread cannot sleep");
                std::thread::sleep(Duration::from_millis(1));
            }
            self.wakeups.fetch_add(1, Ordering::Relaxed);
        }
        // Both are ours, and non-blocking.
        let _ = self.changed.drain();
        for watched in self.queues().iter_mut() {
            watched.page.set_asleep(false);
            let mut bytes = [0; 64];
            if let Ok((0, _)) = recv(&watched.kick, &mut bytes, RecvFlags::DONTWAIT) {
                watched.nonsense = true;
            }
        }
    }

    fn queues(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It is non-blocking, and full is signalled.
        let _ = self.changed.signal();
    }
}

impl Watched {
    /// Whether a doorbell is due.
    fn is_rung(&self) -> bool {
        !self.nonsense
            && (self.page.sq_tail() != self.sq_tail
                || self.layout.head_is_due(self.cq_head, self.page.cq_head()))
    }

    /// Passes on what is new. How many doorbells that were.
    fn pass_on(&mut self) -> Result<u64, Report> {
        let mut rung = 0;
        // The head first: it makes room for the completions of what the tail brings.
        let head = self.page.cq_head();
        if self.layout.head_is_due(self.cq_head, head) {
            let head = self.check("completion head", head, self.layout.cq_log2)?;
            self.queue.ring_cq(head as u16).map_err(|e| card(&e))?;
            self.cq_head = head;
            rung += 1;
        }
        let tail = self.page.sq_tail();
        if tail != self.sq_tail {
            let tail = self.check("submission tail", tail, self.layout.sq_log2)?;
            self.queue.ring_sq(tail as u16).map_err(|e| card(&e))?;
            self.sq_tail = tail;
            rung += 1;
        }
        Ok(rung)
    }

    fn check(&self, what: &str, value: u32, log2: u8) -> Result<u32, Report> {
        let size = 1 << log2;
        if value < size {
            return Ok(value);
        }
        Err(Report::Nonsense {
            queue: self.queue.index(),
            what: format!("{what} {value} in a ring of {size}"),
        })
    }
}

fn card(error: &dyn std::fmt::Display) -> Report {
    Report::Card {
        what: error.to_string(),
    }
}
