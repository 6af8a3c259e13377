// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Looking into a running card: counters, open slots, errors.

use phub_abi::regs::*;
use phub_pci::RegisterIoExt;
use serde::Serialize;

use crate::device::{Card, millis, wait};
use crate::{CardErrorCode, Device, Error, Result, TenantId};

/// Declares a struct of 64-bit counters and how it is read from its pairs of registers.
macro_rules! counters {
    (
        $(#[$doc:meta])* $name:ident by $read:ident {
            $($(#[$field_doc:meta])* $field:ident: $lo:ident, $hi:ident;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $name { $($(#[$field_doc])* pub $field: u64,)* }

        impl $name {
            /// How much each has grown since `before`.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self { $($field: self.$field.wrapping_sub(before.$field),)* }
            }
        }

        pub(crate) fn $read(card: &Card, index: u32) -> Result<$name> {
            Ok($name { $($field: read64::<$lo, $hi>(card, index)?,)* })
        }
    };
}

counters! {
    /// What a tenant did since it was created.
    Counters by read_counters {
        /// Segments added.
        segments_in: CountersSegmentsInLo, CountersSegmentsInHi;
        /// Their bytes.
        bytes_in: CountersBytesInLo, CountersBytesInHi;
        /// Result segments written.
        segments_out: CountersSegmentsOutLo, CountersSegmentsOutHi;
        /// Their bytes.
        bytes_out: CountersBytesOutLo, CountersBytesOutHi;
        /// Rounds that became complete.
        slots_complete: CountersSlotsCompleteLo, CountersSlotsCompleteHi;
        /// Contributions refused because the worker had contributed already.
        duplicates: CountersDuplicatesLo, CountersDuplicatesHi;
        /// Segments refused because key or length differed from the others'.
        mismatches: CountersMismatchesLo, CountersMismatchesHi;
        /// Segments refused because their slot had moved on.
        stale: CountersStaleLo, CountersStaleHi;
        /// Segments refused because their payload was corrupted.
        crc_errors: CountersCrcErrorsLo, CountersCrcErrorsHi;
        /// Reads and writes the host's memory system refused.
        dma_errors: CountersDmaErrorsLo, CountersDmaErrorsHi;
        /// Descriptors refused before anything of them was read.
        refused: CountersRefusedLo, CountersRefusedHi;
        /// Result segments with a NaN or an infinity.
        non_finite: CountersNonFiniteLo, CountersNonFiniteHi;
        /// Segments a worker took without contributing.
        abstains: CountersAbstainsLo, CountersAbstainsHi;
        /// Segments that had to wait for their slot.
        slot_waits: CountersSlotWaitsLo, CountersSlotWaitsHi;
        /// Epochs aborted.
        aborts: CountersAbortsLo, CountersAbortsHi;
        /// Completions written.
        completions: CountersCompletionsLo, CountersCompletionsHi;
    }
}

counters! {
    /// What the card's clock cycles went into, since it was enabled.
    Perf by read_perf {
        /// Cycles with work in flight.
        busy: PerfBusyLo, PerfBusyHi;
        /// Beats into the adders.
        beats_in: PerfBeatsInLo, PerfBeatsInHi;
        /// Result beats written.
        beats_out: PerfBeatsOutLo, PerfBeatsOutHi;
        /// Cycles the adders waited for the same slot in their pipeline.
        stall_hazard: PerfStallHazardLo, PerfStallHazardHi;
        /// Cycles in which all queued work waited for a slot.
        stall_slot: PerfStallSlotLo, PerfStallSlotHi;
        /// Cycles in which reads of host memory were outstanding and no data came.
        stall_read: PerfStallReadLo, PerfStallReadHi;
        /// Cycles in which results waited for the host's write channel.
        stall_write: PerfStallWriteLo, PerfStallWriteHi;
    }
}

/// A slot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OpenSlot {
    /// Its number.
    pub slot: u32,
    /// Number of the tenant.
    pub tenant: u32,
    /// World size.
    pub workers: u32,
    /// Sequence number of the segment.
    pub seq: u32,
    /// Key of its chunk.
    pub key: u32,
    /// Bytes of the segment.
    pub bytes: u32,
    /// All have joined, and some have not taken the result.
    pub complete: bool,
    /// Workers that joined, one bit each.
    pub joined: u64,
    /// Workers that contributed, one bit each.
    pub contributed: u64,
    /// Workers that left, one bit each.
    pub left: u64,
    /// Card cycle at which it was opened.
    pub since: u64,
}

/// An error the card reports of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CardError {
    /// Queue it is about; the card has stopped it.
    pub queue: u32,
    /// What it is.
    pub code: CardErrorCode,
    /// Errors before this one were lost: look at every queue's state.
    pub overflow: bool,
}

impl Device {
    /// What a tenant did since it was created.
    ///
    /// # Errors
    /// [`Error::NoSuchTenant`] and those of a register access.
    pub fn counters(&self, id: TenantId) -> Result<Counters> {
        let before = self.card.tables().tenant(id)?.before;
        Ok(read_counters(&self.card, id.index)?.since(&before))
    }

    /// What the card's cycles went into.
    ///
    /// # Errors
    /// Those of a register access.
    pub fn perf(&self) -> Result<Perf> {
        read_perf(&self.card, 0)
    }

    /// The card's clock, in cycles since it was reset.
    ///
    /// # Errors
    /// Those of a register access.
    pub fn cycles(&self) -> Result<u64> {
        let _latch = self.card.windows();
        let low: CycleLo = self.card.pci.get()?;
        let high: CycleHi = self.card.pci.get()?;
        Ok(u64::from(high.value()) << 32 | u64::from(low.value()))
    }

    /// The slots of living tenants that are in use, each as it was at one moment.
    ///
    /// # Errors
    /// [`Error::SlotUnread`] if the card does not answer in time, and those of a register access.
    pub fn slots(&self) -> Result<Vec<OpenSlot>> {
        let ranges: Vec<_> = {
            let tables = self.card.tables();
            let tenants = tables.tenants.iter().flatten().map(|entry| entry.tenant);
            tenants
                .map(|t| t.slot_base..t.slot_base + (1 << t.slots_log2))
                .collect()
        };
        let mut open = Vec::new();
        for slot in ranges.into_iter().flatten() {
            open.extend(self.slot(slot)?);
        }
        Ok(open)
    }

    /// A slot, if it is in use.
    fn slot(&self, slot: u32) -> Result<Option<OpenSlot>> {
        let card = &self.card;
        let _window = card.windows();
        card.pci.set(DebugSlot::default().with_index(slot))?;
        let state = wait(&*card.pci, card.deadline(), || {
            let state: DebugState = card.read(0)?;
            Ok(state.valid().then_some(state))
        })?;
        let Some(state) = state else {
            let millis = millis(card.deadline());
            return Err(Error::SlotUnread {
                address: card.pci.address(),
                slot,
                millis,
            });
        };
        if !state.open() {
            return Ok(None);
        }
        // The snapshot does not change, so the halves belong together.
        let pci = &card.pci;
        let wide = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        Ok(Some(OpenSlot {
            slot,
            tenant: state.tenant(),
            workers: state.workers(),
            seq: pci.get::<DebugSeq>()?.value(),
            key: pci.get::<DebugKey>()?.value(),
            bytes: pci.get::<DebugBytes>()?.value(),
            complete: state.complete(),
            joined: wide(
                pci.get::<DebugJoinedLo>()?.value(),
                pci.get::<DebugJoinedHi>()?.value(),
            ),
            contributed: wide(
                pci.get::<DebugContributedLo>()?.value(),
                pci.get::<DebugContributedHi>()?.value(),
            ),
            left: wide(
                pci.get::<DebugLeftLo>()?.value(),
                pci.get::<DebugLeftHi>()?.value(),
            ),
            since: wide(
                pci.get::<DebugSinceLo>()?.value(),
                pci.get::<DebugSinceHi>()?.value(),
            ),
        }))
    }

    /// Takes the errors the card has reported since the last call.
    ///
    /// # Errors
    /// [`Error::CardGone`] and those of a register access.
    pub fn take_errors(&self) -> Result<Vec<CardError>> {
        // Each queue stops at its first error, so more than a few per queue make no sense.
        let most = 4 * self.card.identity.queues;
        let mut errors = Vec::new();
        for _ in 0..most {
            let entry: ErrorFifo = self.card.read(0)?;
            if !entry.valid() {
                break;
            }
            errors.push(CardError {
                queue: entry.queue(),
                code: CardErrorCode::from_code(entry.code()),
                overflow: entry.overflow(),
            });
        }
        Ok(errors)
    }
}

/// A 64-bit value that may change while its halves are read.
fn read64<Lo: Register, Hi: Register>(card: &Card, index: u32) -> Result<u64> {
    let pci = &card.pci;
    let mut high = pci.get_at::<Hi>(index)?.bits();
    // It changes once in 2^32 counts, so the second try fits; a card that answers nonsense does not keep us.
    for _ in 0..3 {
        let low = pci.get_at::<Lo>(index)?.bits();
        let again = pci.get_at::<Hi>(index)?.bits();
        if again == high {
            return Ok(u64::from(high) << 32 | u64::from(low));
        }
        high = again;
    }
    let reason = "its counters run at an impossible speed".into();
    Err(Error::CardGone {
        address: pci.address(),
        reason,
    })
}
