// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! BAR0: what the host's register accesses do to the hub.

use phub_abi::regs::*;
use phub_abi::{ABI_MAJOR, ABI_MINOR, MAGIC};

use crate::Params;
use crate::hub::{COUNTERS, Host, Hub, Tenant};
use crate::order::Order;
use crate::rings::{QueueConfig, QueueError};
use crate::slots::Slot;

const COMMAND_ABORT: u32 = 1;
const COMMAND_STOP: u32 = 2;

/// The hub and the registers in front of it.
#[derive(Clone, Debug)]
pub struct Csr {
    /// What the registers control.
    pub hub: Hub,
    ctrl: Ctrl,
    cmd: Cmd,
    refused: bool,
    cycle_hi: u32,
    coalesce: IrqCoalesce,
    scratch: u32,
    debug_index: u32,
    debug: Option<Slot>,
}

impl Csr {
    /// Registers after power-on.
    pub fn new(params: Params, order: Order) -> Self {
        Self {
            hub: Hub::new(params, order),
            ctrl: Ctrl::default(),
            cmd: Cmd::default(),
            refused: false,
            cycle_hi: 0,
            coalesce: IrqCoalesce::default().with_count(1).with_timeout(1000),
            scratch: 0,
            debug_index: 0,
            debug: None,
        }
    }

    /// Reads the dword at `offset`; 0 where there is no register.
    pub fn read(&mut self, offset: u32) -> u32 {
        if let Some((entry, field)) = locate::<QueueTableCtrl>(offset) {
            return self.read_queue(entry, field);
        }
        if let Some((entry, field)) = locate::<TenantTableCtrl>(offset) {
            return self.read_tenant(entry, field);
        }
        if let Some((entry, field)) = locate::<CountersSegmentsInLo>(offset) {
            let index = (field - CountersSegmentsInLo::OFFSET) as usize / 4;
            let value = self
                .hub
                .counters
                .get(entry)
                .filter(|_| index < 2 * COUNTERS)
                .map_or(0, |c| c[index / 2]);
            return half(value, index % 2 == 1);
        }
        self.read_global(offset)
    }

    fn read_global(&mut self, offset: u32) -> u32 {
        let p = self.hub.params;
        match offset {
            Magic::OFFSET => MAGIC,
            AbiVersion::OFFSET => AbiVersion::default()
                .with_major(ABI_MAJOR.into())
                .with_minor(ABI_MINOR.into())
                .bits(),
            Caps::OFFSET => Caps::default()
                .with_fp32_sum(true)
                .with_fp32_mean(true)
                .with_crc(true)
                .bits(),
            ParamDatapath::OFFSET => ParamDatapath::default()
                .with_lanes(p.lanes)
                .with_seg_log2(p.seg_bytes.ilog2())
                .with_vectors(p.vectors())
                .bits(),
            ParamSlots::OFFSET => p.slots,
            ParamTenants::OFFSET => ParamTenants::default()
                .with_tenants(p.tenants)
                .with_workers(p.workers)
                .bits(),
            ParamQueues::OFFSET => ParamQueues::default()
                .with_queues(p.queues)
                .with_desc_depth(p.desc_depth)
                .bits(),
            Ctrl::OFFSET => self.ctrl.bits(),
            Status::OFFSET => Status::default().with_ready(self.hub.ready).bits(),
            ErrorFifo::OFFSET => self
                .hub
                .errors
                .pop_front()
                .map_or(0, |(queue, error, lost)| {
                    ErrorFifo::default()
                        .with_code(error as u32)
                        .with_queue(queue.into())
                        .with_overflow(lost)
                        .with_valid(true)
                        .bits()
                }),
            Cmd::OFFSET => self.cmd.bits(),
            CmdStatus::OFFSET => CmdStatus::default().with_refused(self.refused).bits(),
            CycleLo::OFFSET => {
                self.cycle_hi = half(self.hub.now(), true);
                half(self.hub.now(), false)
            }
            CycleHi::OFFSET => self.cycle_hi,
            IrqCoalesce::OFFSET => self.coalesce.bits(),
            Scratch::OFFSET => self.scratch,
            PerfBeatsInLo::OFFSET => half(self.hub.beats[0], false),
            PerfBeatsInHi::OFFSET => half(self.hub.beats[0], true),
            PerfBeatsOutLo::OFFSET => half(self.hub.beats[1], false),
            PerfBeatsOutHi::OFFSET => half(self.hub.beats[1], true),
            DebugSlot::OFFSET => self.debug_index,
            _ => self
                .debug
                .as_ref()
                .map_or(0, |slot| read_debug(slot, offset)),
        }
    }

    fn read_queue(&self, entry: usize, field: u32) -> u32 {
        let Some(queue) = self.hub.queues.get(entry) else {
            return 0;
        };
        let c = &queue.config;
        match field {
            QueueTableCtrl::OFFSET => QueueTableCtrl::default()
                .with_enable(c.enable)
                .with_sq_log2(c.sq_log2.into())
                .with_cq_log2(c.cq_log2.into())
                .with_tenant(c.tenant.into())
                .with_worker(c.worker.into())
                .bits(),
            QueueTableStatus::OFFSET => QueueTableStatus::default()
                .with_error(queue.error.is_some())
                .with_code(queue.error.map_or(0, |e| e as u32))
                .bits(),
            QueueTableSqBaseLo::OFFSET => half(c.sq_base, false),
            QueueTableSqBaseHi::OFFSET => half(c.sq_base, true),
            QueueTableCqBaseLo::OFFSET => half(c.cq_base, false),
            QueueTableCqBaseHi::OFFSET => half(c.cq_base, true),
            QueueTableWinBaseLo::OFFSET => half(c.win_base, false),
            QueueTableWinBaseHi::OFFSET => half(c.win_base, true),
            QueueTableWinSizeLo::OFFSET => half(c.win_size, false),
            QueueTableWinSizeHi::OFFSET => half(c.win_size, true),
            QueueTableVector::OFFSET => c.vector.into(),
            QueueTablePointers::OFFSET => QueueTablePointers::default()
                .with_sq_head(queue.sq_head.into())
                .with_cq_tail(queue.cq_tail.into())
                .bits(),
            _ => 0,
        }
    }

    fn read_tenant(&self, entry: usize, field: u32) -> u32 {
        let Some(t) = self.hub.tenants.get(entry) else {
            return 0;
        };
        match field {
            TenantTableCtrl::OFFSET => TenantTableCtrl::default()
                .with_enable(t.enable)
                .with_workers(t.workers.into())
                .bits(),
            TenantTableSlots::OFFSET => TenantTableSlots::default()
                .with_base(t.slot_base.into())
                .with_log2(t.slot_log2.into())
                .bits(),
            TenantTableTokenLo::OFFSET => half(t.token, false),
            TenantTableTokenHi::OFFSET => half(t.token, true),
            TenantTableEpoch::OFFSET => t.epoch,
            _ => 0,
        }
    }

    /// Writes the dword at `offset`, then lets the hub work until nothing can move. Ignored where there is no register.
    pub fn write(&mut self, offset: u32, value: u32, host: &dyn Host) {
        if let Some((entry, field)) = locate::<DoorbellsSqTail>(offset) {
            self.ring(entry, field, value as u16);
        } else if let Some((entry, field)) = locate::<QueueTableCtrl>(offset) {
            self.write_queue(entry, field, value);
        } else if let Some((entry, field)) = locate::<TenantTableCtrl>(offset) {
            if let Some(tenant) = self.hub.tenants.get_mut(entry) {
                write_tenant(tenant, field, value);
            }
        } else {
            self.write_global(offset, value, host);
        }
        self.hub.run(host);
    }

    fn write_global(&mut self, offset: u32, value: u32, host: &dyn Host) {
        match offset {
            Ctrl::OFFSET => {
                self.ctrl = Ctrl::default().with_enable(Ctrl::from_bits(value).enable());
                self.hub.enable(self.ctrl.enable());
            }
            Cmd::OFFSET => {
                let cmd = Cmd::from_bits(value);
                self.cmd = Cmd::default().with_op(cmd.op()).with_index(cmd.index());
                self.command(cmd.op(), cmd.index() as usize, host);
            }
            IrqCoalesce::OFFSET => {
                self.coalesce = IrqCoalesce::from_bits(value);
                self.hub.coalesce = self.coalesce.count() as u8;
            }
            Scratch::OFFSET => self.scratch = value,
            DebugSlot::OFFSET => {
                self.debug_index = value & 0xffff;
                self.debug = self.hub.slots.get(self.debug_index as usize).cloned();
            }
            _ => {}
        }
    }

    fn command(&mut self, op: u32, index: usize, host: &dyn Host) {
        self.refused = false;
        match op {
            _ if !self.hub.ready => self.refused = true,
            COMMAND_ABORT if index < self.hub.tenants.len() => self.hub.abort(index, host),
            COMMAND_STOP if index < self.hub.queues.len() => self.hub.stop(index),
            _ => self.refused = true,
        }
    }

    fn ring(&mut self, entry: usize, field: u32, value: u16) {
        let Some(queue) = self.hub.queues.get_mut(entry) else {
            return;
        };
        if !queue.config.enable || queue.error.is_some() {
            return;
        }
        let rung = match field {
            DoorbellsSqTail::OFFSET => queue.ring_sq(value),
            DoorbellsCqHead::OFFSET => queue.ring_cq(value),
            _ => Ok(()),
        };
        if rung.is_err() {
            self.hub.stop_for(entry, QueueError::Doorbell);
        }
    }

    fn write_queue(&mut self, entry: usize, field: u32, value: u32) {
        let Some(queue) = self.hub.queues.get_mut(entry) else {
            return;
        };
        let c = &mut queue.config;
        match field {
            QueueTableCtrl::OFFSET => {
                let ctrl = QueueTableCtrl::from_bits(value);
                let config = QueueConfig {
                    enable: ctrl.enable(),
                    sq_log2: ctrl.sq_log2() as u8,
                    cq_log2: ctrl.cq_log2() as u8,
                    tenant: ctrl.tenant() as u8,
                    worker: ctrl.worker() as u8,
                    ..*c
                };
                self.hub.configure_queue(entry, config);
            }
            QueueTableSqBaseLo::OFFSET => set_half(&mut c.sq_base, false, value),
            QueueTableSqBaseHi::OFFSET => set_half(&mut c.sq_base, true, value),
            QueueTableCqBaseLo::OFFSET => set_half(&mut c.cq_base, false, value),
            QueueTableCqBaseHi::OFFSET => set_half(&mut c.cq_base, true, value),
            QueueTableWinBaseLo::OFFSET => set_half(&mut c.win_base, false, value),
            QueueTableWinBaseHi::OFFSET => set_half(&mut c.win_base, true, value),
            QueueTableWinSizeLo::OFFSET => set_half(&mut c.win_size, false, value),
            QueueTableWinSizeHi::OFFSET => set_half(&mut c.win_size, true, value),
            QueueTableVector::OFFSET => c.vector = QueueTableVector::from_bits(value).value() as u8,
            _ => {}
        }
    }
}

fn write_tenant(tenant: &mut Tenant, field: u32, value: u32) {
    match field {
        TenantTableCtrl::OFFSET => {
            let ctrl = TenantTableCtrl::from_bits(value);
            (tenant.enable, tenant.workers) = (ctrl.enable(), ctrl.workers() as u8);
        }
        TenantTableSlots::OFFSET => {
            let slots = TenantTableSlots::from_bits(value);
            (tenant.slot_base, tenant.slot_log2) = (slots.base() as u16, slots.log2() as u8);
        }
        TenantTableTokenLo::OFFSET => set_half(&mut tenant.token, false, value),
        TenantTableTokenHi::OFFSET => set_half(&mut tenant.token, true, value),
        TenantTableEpoch::OFFSET => tenant.epoch = value,
        _ => {}
    }
}

fn read_debug(slot: &Slot, offset: u32) -> u32 {
    match offset {
        DebugState::OFFSET => DebugState::default()
            .with_valid(true)
            .with_open(slot.open)
            .with_complete(slot.complete())
            .with_fresh(slot.fresh)
            .with_tenant(slot.tenant.into())
            .with_workers(slot.workers.into())
            .bits(),
        DebugSeq::OFFSET => slot.seq,
        DebugKey::OFFSET => slot.key,
        DebugBytes::OFFSET => slot.bytes,
        DebugJoinedLo::OFFSET => half(slot.joined, false),
        DebugJoinedHi::OFFSET => half(slot.joined, true),
        DebugContributedLo::OFFSET => half(slot.contributed, false),
        DebugContributedHi::OFFSET => half(slot.contributed, true),
        DebugLeftLo::OFFSET => half(slot.left, false),
        DebugLeftHi::OFFSET => half(slot.left, true),
        DebugSinceLo::OFFSET => half(slot.since, false),
        DebugSinceHi::OFFSET => half(slot.since, true),
        _ => 0,
    }
}

/// Which entry of a table an offset lies in, and the offset of the same register in entry 0. `R` is the table's first.
fn locate<R: Register>(offset: u32) -> Option<(usize, u32)> {
    let inside = offset
        .checked_sub(R::OFFSET)
        .filter(|i| *i < R::COUNT * R::STRIDE)?;
    Some((
        (inside / R::STRIDE) as usize,
        R::OFFSET + inside % R::STRIDE,
    ))
}

fn half(value: u64, high: bool) -> u32 {
    (if high { value >> 32 } else { value }) as u32
}

fn set_half(value: &mut u64, high: bool, half: u32) {
    let shift = if high { 32 } else { 0 };
    *value = *value & !(u64::from(u32::MAX) << shift) | u64::from(half) << shift;
}
