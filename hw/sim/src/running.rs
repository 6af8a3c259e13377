// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The Verilated card with a clock of its own: a thread that owns the card and sleeps while it is idle.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use phub_abi::BAR0_BYTES;
use phub_pci::{Memory, PciError, PciFunction};

use crate::{
    card::{Card, CardConfig, check_bar, duplicate, gone},
    failure::{Failure, SimError},
};

/// Cycles between two looks at the mailbox.
const SLICE: u32 = 64;
/// Requests that may wait; more make the caller wait.
const MAILBOX: usize = 1024;
/// Longest time to wait for the clock thread, which answers between two slices.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to do when the card fails: called once, on the clock's thread.
pub type OnFailure = Box<dyn FnOnce(&Failure) + Send>;

/// A Verilated card that runs on a thread of its own until it is dropped. An idle one uses no processor time.
pub struct RunningCard {
    mailbox: SyncSender<Request>,
    failure: Arc<OnceLock<Failure>>,
    clock: Option<JoinHandle<()>>,
    vectors: usize,
}

type Reply<T> = SyncSender<Result<T, PciError>>;

enum Request {
    Read(u32, Reply<u32>),
    /// Posted, as on PCI.
    Write(u32, u32),
    ConfigRead(u16, usize, Reply<[u8; 4]>),
    ConfigWrite(u16, [u8; 4], usize, Reply<()>),
    Map(u64, Memory, u64, u64, Reply<()>),
    Unmap(u64, u64, Reply<()>),
    Interrupts(Vec<OwnedFd>, Reply<()>),
    Reset(Reply<()>),
    End,
}

impl RunningCard {
    /// Powers a card on. `on_failure` is told if it ever breaks a rule.
    pub fn start(config: CardConfig, on_failure: OnFailure) -> Result<Self, SimError> {
        let card = Card::new(config)?;
        let vectors = card.vectors();
        let (mailbox, requests) = sync_channel(MAILBOX);
        let failure = Arc::new(OnceLock::new());
        let shared = failure.clone();
        let clock = std::thread::Builder::new()
            .name("card clock".into())
            .spawn(move || run(card, &requests, &shared, on_failure))
            .map_err(SimError::Thread)?;
        Ok(Self {
            mailbox,
            failure,
            clock: Some(clock),
            vectors,
        })
    }

    /// Why the card stopped for good, if it has.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    fn post(&self, request: Request) -> Result<(), PciError> {
        if let Some(failure) = self.failure.get() {
            return Err(gone(failure.clone()));
        }
        self.mailbox.send(request).map_err(|_| self.ended())
    }

    fn ask<T>(
        &self,
        what: &'static str,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, PciError> {
        let (reply, answer) = sync_channel(1);
        self.post(request(reply))?;
        answer.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                let millis = PATIENCE.as_millis() as u64;
                PciError::Timeout {
                    address: self.address(),
                    what,
                    millis,
                }
            }
            RecvTimeoutError::Disconnected => self.ended(),
        })?
    }

    fn ended(&self) -> PciError {
        PciError::Gone {
            address: self.address(),
            reason: "its clock thread has ended".into(),
        }
    }
}

/// The clock thread.
fn run(
    mut card: Card,
    requests: &Receiver<Request>,
    shared: &OnceLock<Failure>,
    on_failure: OnFailure,
) {
    let mut on_failure = Some(on_failure);
    loop {
        // A failed card has no clock left to run, and tells everybody so.
        let asleep = card.idle() || card.failure().is_some();
        let mut next = if asleep {
            requests.recv().ok()
        } else {
            requests.try_recv().ok()
        };
        if asleep && next.is_none() {
            return;
        }
        while let Some(request) = next {
            if let Request::End = request {
                return;
            }
            serve(&mut card, request);
            next = requests.try_recv().ok();
        }
        // Reported below, as any failure is.
        let _ = card.run(SLICE);
        if let Some(failure) = card.failure()
            && let Some(tell) = on_failure.take()
        {
            tracing::error!(%failure, "the card failed");
            let _ = shared.set(failure.clone());
            tell(failure);
        }
    }
}

fn serve(card: &mut Card, request: Request) {
    // Whoever asked may have given up; then nobody takes the answer.
    match request {
        Request::Read(offset, reply) => drop(reply.send(card.read(offset).map_err(gone))),
        Request::Write(offset, value) => drop(card.write(offset, value)),
        Request::ConfigRead(offset, len, reply) => {
            let mut data = [0; 4];
            let read = card.config_read(offset, &mut data[..len]);
            drop(reply.send(read.map(|()| data)));
        }
        Request::ConfigWrite(offset, data, len, reply) => {
            drop(reply.send(card.config_write(offset, &data[..len])));
        }
        Request::Map(iova, memory, offset, len, reply) => {
            drop(reply.send(card.map(iova, &memory, offset, len)));
        }
        Request::Unmap(iova, len, reply) => drop(reply.send(card.unmap(iova, len))),
        Request::Interrupts(eventfds, reply) => {
            card.connect_interrupts(eventfds);
            drop(reply.send(Ok(())));
        }
        Request::Reset(reply) => drop(reply.send(card.reset().map_err(gone))),
        Request::End => {}
    }
}

impl Drop for RunningCard {
    fn drop(&mut self) {
        let _ = self.mailbox.send(Request::End);
        if let Some(clock) = self.clock.take() {
            let _ = clock.join();
        }
    }
}

impl PciFunction for RunningCard {
    fn address(&self) -> String {
        "this process (simulated)".into()
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<(), PciError> {
        let len = check_config(offset, data.len())?;
        let read = self.ask("a configuration read", |r| {
            Request::ConfigRead(offset, len, r)
        })?;
        data.copy_from_slice(&read[..len]);
        Ok(())
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<(), PciError> {
        let len = check_config(offset, data.len())?;
        let mut bytes = [0; 4];
        bytes[..len].copy_from_slice(data);
        self.ask("a configuration write", |r| {
            Request::ConfigWrite(offset, bytes, len, r)
        })
    }

    fn bar_bytes(&self) -> u32 {
        BAR0_BYTES
    }

    fn bar_read(&self, offset: u32) -> Result<u32, PciError> {
        check_bar(offset)?;
        self.ask("a register read", |reply| Request::Read(offset, reply))
    }

    /// Posted: it has taken effect before the next read returns.
    fn bar_write(&self, offset: u32, value: u32) -> Result<(), PciError> {
        check_bar(offset)?;
        self.post(Request::Write(offset, value))
    }

    fn dma_map(&self, iova: u64, memory: &Memory, offset: u64, len: u64) -> Result<(), PciError> {
        let memory = memory.clone();
        self.ask("a DMA mapping", |reply| {
            Request::Map(iova, memory, offset, len, reply)
        })
    }

    fn dma_unmap(&self, iova: u64, len: u64) -> Result<(), PciError> {
        self.ask("a DMA unmapping", |reply| Request::Unmap(iova, len, reply))
    }

    fn vectors(&self) -> usize {
        self.vectors
    }

    fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> Result<(), PciError> {
        let eventfds = duplicate(eventfds, self.vectors)?;
        self.ask("interrupt set-up", |reply| {
            Request::Interrupts(eventfds, reply)
        })
    }

    fn reset(&self) -> Result<(), PciError> {
        self.ask("a reset", Request::Reset)
    }
}

fn check_config(offset: u16, len: usize) -> Result<usize, PciError> {
    if len <= 4 {
        return Ok(len);
    }
    Err(PciError::OutOfRange {
        region: "config",
        offset: offset.into(),
        len: len as u64,
    })
}
