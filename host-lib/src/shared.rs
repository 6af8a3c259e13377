// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What a worker and its handles share: the engine behind a lock, and waiting for it.
//!
//! There is no thread of the library's own: who waits moves everything. One waiting thread at a time sleeps on the eventfd,
//! the others on a condition variable; whoever finishes operations of others wakes them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::engine::Engine;
use crate::handle::Done;
use crate::proto::OpId;
use crate::transport::Waker;
use crate::{Error, Result};

/// Looks at the completion ring this often before sleeping: a card answers small operations within microseconds.
const SPINS: u32 = 64;

pub(crate) struct Shared {
    engine: Mutex<Engine>,
    moved: Condvar,
    waker: Waker,
    pub(crate) arena: Arc<Arena>,
}

impl Shared {
    pub(crate) fn new(engine: Engine, waker: Waker, arena: Arc<Arena>) -> Arc<Self> {
        Arc::new(Self {
            engine: Mutex::new(engine),
            moved: Condvar::new(),
            waker,
            arena,
        })
    }

    /// A panic of another thread leaves the engine whole enough to end in errors: its invariants are checked at each completion.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an operation, until it is done, has failed, or `until` has come (`None`).
    pub(crate) fn wait(&self, id: OpId, until: Option<Instant>) -> Result<Option<Done>> {
        self.wait_for(until, |engine| engine.take(id))
            .and_then(Option::transpose)
    }

    /// Waits until nothing is in flight.
    pub(crate) fn drain(&self) -> Result<()> {
        let idle = |engine: &mut Engine| match engine.check() {
            Ok(()) => engine.is_idle().then_some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        self.wait_for(None, idle)?.unwrap_or(Ok(()))
    }

    pub(crate) fn abandon(&self, id: OpId) {
        self.lock().abandon(id);
    }

    fn wait_for<T>(
        &self,
        until: Option<Instant>,
        mut ready: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Result<Option<T>> {
        let start = Instant::now();
        let mut engine = self.lock();
        for spin in 0.. {
            if engine.poll() {
                self.wake_others(&engine)?;
            }
            if let Some(value) = ready(&mut engine) {
                return Ok(Some(value));
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Ok(None);
            }
            let deadline = engine.deadline(start);
            if now >= deadline {
                engine.expire(start);
                self.wake_others(&engine)?;
                continue;
            }
            if spin < SPINS {
                drop(engine);
                std::thread::yield_now();
                engine = self.lock();
                continue;
            }
            let timeout = until.map_or(deadline, |until| until.min(deadline)) - now;
            engine = self.sleep(engine, timeout)?;
        }
        Ok(None)
    }

    fn sleep<'a>(
        &'a self,
        mut engine: MutexGuard<'a, Engine>,
        timeout: Duration,
    ) -> Result<MutexGuard<'a, Engine>> {
        if engine.sleeping {
            let woken = self
                .moved
                .wait_timeout(engine, timeout)
                .unwrap_or_else(PoisonError::into_inner);
            return Ok(woken.0);
        }
        engine.sleeping = true;
        drop(engine);
        let closed = self.waker.wait(timeout);
        let mut engine = self.lock();
        engine.sleeping = false;
        if closed.map_err(|e| system("wait for the card", &e))? {
            engine.hub_closed();
        }
        // Somebody else may have to take over the eventfd.
        self.moved.notify_all();
        Ok(engine)
    }

    /// Operations have finished, perhaps of other threads.
    fn wake_others(&self, engine: &Engine) -> Result<()> {
        self.moved.notify_all();
        if engine.sleeping {
            self.waker
                .event
                .signal()
                .map_err(|e| system("wake a waiting thread", &e))?;
        }
        Ok(())
    }
}

pub(crate) fn system(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::System {
        what: what.to_owned(),
        reason: error.to_string(),
    }
}
