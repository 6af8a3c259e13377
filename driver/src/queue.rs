// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Queue pairs: a worker's rings and memory, given to the card and taken back.

use std::sync::Arc;

use phub_abi::regs::*;
use phub_abi::{COMPLETION_BYTES, DESCRIPTOR_BYTES, PAGE, RING_LOG2};
use phub_pci::RegisterIoExt;
use phub_sys::{EventFd, Memory};
use serde::Serialize;

use crate::device::{Admin, Card};
use crate::{CardErrorCode, Command, Device, Error, Result, TenantId};

/// A queue pair to be created.
#[derive(Debug)]
pub struct QueueConfig {
    /// Tenant it speaks for.
    pub tenant: TenantId,
    /// Worker it speaks for.
    pub worker: u32,
    /// All memory the card may touch for it: rings and buffers, in whole pages.
    pub memory: Memory,
    /// Place of the submission ring in the memory, in bytes, a multiple of 4096.
    pub sq_offset: u64,
    /// log2 of its entries, 1 to 12.
    pub sq_log2: u8,
    /// Place of the completion ring in the memory, in bytes, a multiple of 4096.
    pub cq_offset: u64,
    /// log2 of its entries, 1 to 12.
    pub cq_log2: u8,
    /// Signalled by completions that ask for an interrupt, and now and then without any.
    pub event: Option<EventFd>,
}

/// A queue pair the card serves. Dropping it takes the memory back from the card.
pub struct Queue {
    card: Arc<Card>,
    index: u32,
    iova: u64,
    memory: Memory,
    open: bool,
}

/// What the card says of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct QueueState {
    /// Why the card stopped it, if it has.
    pub error: Option<CardErrorCode>,
    /// Next submission entry the card will fetch.
    pub sq_head: u16,
    /// Next completion entry the card will write.
    pub cq_tail: u16,
}

impl QueueConfig {
    /// Whether the rings lie in the memory, apart from each other.
    fn check(&self) -> Result<()> {
        let bad = |what: String| Err(Error::BadConfig { what });
        let whole = |n: u64| n.is_multiple_of(PAGE);
        if !whole(self.memory.len()) || !whole(self.memory.fd_offset()) {
            return bad("a queue's memory must be whole pages".into());
        }
        for log2 in [self.sq_log2, self.cq_log2] {
            if !RING_LOG2.contains(&log2) {
                return bad(format!(
                    "a ring of 2^{log2} entries; 2^1 to 2^12 are possible"
                ));
            }
        }
        let (sq, cq) = (self.sq_offset, self.cq_offset);
        let end = |offset: u64, bytes: usize, log2: u8| offset.checked_add((bytes as u64) << log2);
        let fits = |end: Option<u64>| end.filter(|end| *end <= self.memory.len());
        let sq_end = fits(end(sq, DESCRIPTOR_BYTES, self.sq_log2));
        let cq_end = fits(end(cq, COMPLETION_BYTES, self.cq_log2));
        match (sq_end, cq_end) {
            _ if !whole(sq) || !whole(cq) => bad("rings begin at multiples of 4096 bytes".into()),
            (Some(sq_end), Some(cq_end)) if sq_end <= cq || cq_end <= sq => Ok(()),
            (Some(_), Some(_)) => bad("submission and completion ring overlap".into()),
            _ => bad("a ring leaves the queue's memory".into()),
        }
    }
}

impl Device {
    /// Gives a worker's memory to the card and enables a queue pair on it. The completion ring is zeroed.
    ///
    /// # Errors
    /// [`Error::NoSuchTenant`], [`Error::NoFreeQueue`], [`Error::NoFreeIova`], [`Error::BadConfig`],
    /// [`Error::QueueError`] if the card refuses it, [`Error::Pci`] if its memory cannot be mapped, those of a register
    /// access, and [`Error::CardFailed`].
    pub fn create_queue(&self, mut config: QueueConfig) -> Result<Queue> {
        config.check()?;
        let admin = self.card.admin()?;
        let queue = self.take_queue(&config)?;
        let result = queue.set_up(&admin, &mut config);
        // The queue takes the lock itself when it is dropped after a failure.
        drop(admin);
        result?;
        tracing::debug!(
            queue = queue.index,
            iova = queue.iova,
            tenant = config.tenant.index,
            "queue created"
        );
        Ok(queue)
    }

    /// A free queue pair with the memory mapped.
    fn take_queue(&self, config: &QueueConfig) -> Result<Queue> {
        let bytes = config.memory.len();
        let (index, iova) = self.card.reserve(config, bytes)?;
        if let Err(error) = self.card.pci.dma_map(iova, &config.memory, 0, bytes) {
            self.card.unreserve(index, iova);
            return Err(error.into());
        }
        Ok(Queue {
            card: self.card.clone(),
            index,
            iova,
            memory: config.memory.clone(),
            open: true,
        })
    }

    /// Tells the card that submission entries of `queue` before `tail` are valid.
    ///
    /// # Errors
    /// Those of [`Queue::ring_sq`].
    pub fn ring_sq(&self, queue: &Queue, tail: u16) -> Result<()> {
        queue.ring_sq(tail)
    }

    /// Tells the card that completion entries of `queue` before `head` have been read.
    ///
    /// # Errors
    /// Those of [`Queue::ring_cq`].
    pub fn ring_cq(&self, queue: &Queue, head: u16) -> Result<()> {
        queue.ring_cq(head)
    }
}

impl Card {
    /// A queue pair and addresses for `bytes` bytes.
    fn reserve(&self, config: &QueueConfig, bytes: u64) -> Result<(u32, u64)> {
        let mut tables = self.tables();
        let workers = tables.tenant(config.tenant)?.tenant.workers;
        if config.worker >= workers {
            let what = format!("worker {} of a tenant of {workers} workers", config.worker);
            return Err(Error::BadConfig { what });
        }
        let free = tables.queues.iter().position(Option::is_none);
        let index = free.ok_or(Error::NoFreeQueue {
            queues: self.identity.queues,
        })?;
        let iova = tables
            .iovas
            .allocate(bytes)
            .ok_or(Error::NoFreeIova { bytes })?;
        tables.queues[index] = Some(config.tenant.index);
        Ok((index as u32, iova))
    }

    fn unreserve(&self, index: u32, iova: u64) {
        let mut tables = self.tables();
        tables.iovas.release(iova);
        tables.queues[index as usize] = None;
    }
}

impl Queue {
    /// Its number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Where the card sees the first byte of the memory.
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Tells the card that submission entries before `tail` are valid. A value outside the ring stops the queue.
    ///
    /// # Errors
    /// [`Error::CardFailed`], and those of a register access.
    pub fn ring_sq(&self, tail: u16) -> Result<()> {
        self.ring(DoorbellsSqTail::default().with_value(tail.into()))
    }

    /// Tells the card that completion entries before `head` have been read. A value outside the ring, or past what the
    /// card has written, stops the queue.
    ///
    /// # Errors
    /// [`Error::CardFailed`], and those of a register access.
    pub fn ring_cq(&self, head: u16) -> Result<()> {
        self.ring(DoorbellsCqHead::default().with_value(head.into()))
    }

    /// The one place at which a doorbell is rung.
    ///
    /// Ring entries and payloads are stored before, by this thread or by one whose Release this thread has seen with
    /// Acquire. `bar_write` makes them visible to the card before the doorbell (see [`phub_pci::PciFunction`]), and
    /// hw/rtl/host/sq_fetch.sv reads entries only after it has taken the tail.
    fn ring<R: Register>(&self, doorbell: R) -> Result<()> {
        self.card.check()?;
        Ok(self.card.pci.set_at(self.index, doorbell)?)
    }

    /// How the card sees the queue.
    ///
    /// # Errors
    /// [`Error::CardGone`] and those of a register access.
    pub fn state(&self) -> Result<QueueState> {
        let status: QueueTableStatus = self.card.read(self.index)?;
        let pointers: QueueTablePointers = self.card.read(self.index)?;
        Ok(QueueState {
            error: status
                .error()
                .then(|| CardErrorCode::from_code(status.code())),
            sq_head: pointers.sq_head() as u16,
            cq_tail: pointers.cq_tail() as u16,
        })
    }

    /// Stops the queue and takes its memory back. On return the card does not touch it any more, or (after an error that
    /// says so) the memory stays allocated for good.
    ///
    /// # Errors
    /// What stopping it or taking the memory back met. The queue is closed all the same.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn set_up(&self, _admin: &Admin<'_>, config: &mut QueueConfig) -> Result<()> {
        let (card, index) = (&self.card, self.index);
        // The card's first completion has phase 1, so nothing that lies there may look like one.
        config.memory.fill_zero(
            config.cq_offset,
            (COMPLETION_BYTES as u64) << config.cq_log2,
        )?;
        card.interrupts()
            .set(&*card.pci, index, config.event.take())?;
        let (sq, cq) = (self.iova + config.sq_offset, self.iova + config.cq_offset);
        let bytes = config.memory.len();
        let pci = &card.pci;
        pci.set_at(index, QueueTableSqBaseLo::from_bits(sq as u32))?;
        pci.set_at(index, QueueTableSqBaseHi::from_bits((sq >> 32) as u32))?;
        pci.set_at(index, QueueTableCqBaseLo::from_bits(cq as u32))?;
        pci.set_at(index, QueueTableCqBaseHi::from_bits((cq >> 32) as u32))?;
        pci.set_at(index, QueueTableWinBaseLo::from_bits(self.iova as u32))?;
        pci.set_at(
            index,
            QueueTableWinBaseHi::from_bits((self.iova >> 32) as u32),
        )?;
        pci.set_at(index, QueueTableWinSizeLo::from_bits(bytes as u32))?;
        pci.set_at(index, QueueTableWinSizeHi::from_bits((bytes >> 32) as u32))?;
        pci.set_at(index, QueueTableVector::default().with_value(index + 1))?;
        let ctrl = QueueTableCtrl::default()
            .with_enable(true)
            .with_sq_log2(config.sq_log2.into())
            .with_cq_log2(config.cq_log2.into())
            .with_tenant(config.tenant.index)
            .with_worker(config.worker);
        pci.set_at(index, ctrl)?;
        match self.state()?.error {
            Some(code) => Err(Error::QueueError { queue: index, code }),
            None => Ok(()),
        }
    }

    fn shut(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.open, false) {
            return Ok(());
        }
        let card = self.card.clone();
        let admin = card.admin_anyway();
        let stopped = match card.given_up() {
            None => self.stop(&admin),
            Some(_) => Ok(()),
        };
        if let Err(error) = &stopped {
            card.give_up(&admin, error);
        }
        let unmapped = match card.given_up() {
            Some(false) => Err(Error::CardFailed {
                address: card.pci.address(),
                reason: "it cannot be reset".into(),
            }),
            _ => card
                .pci
                .dma_unmap(self.iova, self.memory.len())
                .map_err(Error::from),
        };
        if let Err(error) = &unmapped {
            tracing::error!(%error, queue = self.index, bytes = self.memory.len(), "memory is kept: the card may use it");
            // On purpose: the mapping in this process, and so the memory, outlives everything. Queue and addresses stay taken.
            std::mem::forget(self.memory.clone());
        } else {
            card.unreserve(self.index, self.iova);
        }
        stopped.and(unmapped)
    }

    /// The card lets go of the queue: it holds no descriptor, has no access in flight, and begins none.
    fn stop(&self, admin: &Admin<'_>) -> Result<()> {
        self.card.command(admin, Command::Stop(self.index))?;
        self.card
            .pci
            .set_at(self.index, QueueTableCtrl::default())?;
        if let Err(error) = self
            .card
            .interrupts()
            .set(&*self.card.pci, self.index, None)
        {
            // A signal more for who waits no longer does no harm.
            tracing::warn!(%error, queue = self.index, "its interrupt stays connected");
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Err(error) = self.shut() {
            tracing::warn!(%error, queue = self.index, "closing a queue");
        }
    }
}
