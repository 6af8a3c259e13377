// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Host memory behind the card's AXI4 master: a slave with latency, back-pressure, reordering and interleaving.
//!
//! It answers as a PCIe bridge would (reads of different tags out of order and cut into pieces, if asked to) and checks
//! that the master keeps the rules. Everything random comes from one seed.

use std::collections::VecDeque;

use phub_pci::dma::DmaMap;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::ffi::{Beat, In, Out};

const OKAY: u8 = 0;
const DECERR: u8 = 3;
const INCR: u8 = 1;
const PAGE: u64 = phub_abi::PAGE;
/// Write data accepted before its address.
const EARLY_BEATS: usize = 32;
/// Addresses accepted ahead in each direction.
const BURSTS: usize = 128;

/// How host memory behaves.
#[derive(Clone, Copy, Debug)]
pub struct AxiConfig {
    /// Cycles from a read's address to its first beat, at least.
    pub read_latency: u32,
    /// Cycles from a write's last beat to its response, at least.
    pub write_latency: u32,
    /// Probability, 0 to 1, that a channel stalls in a cycle.
    pub backpressure: f32,
    /// Reads of different tags are answered in random order, after up to twice the latency.
    pub reorder: bool,
    /// Beats of different reads are mixed.
    pub interleave: bool,
}

impl Default for AxiConfig {
    fn default() -> Self {
        Self {
            read_latency: 40,
            write_latency: 10,
            backpressure: 0.0,
            reorder: false,
            interleave: false,
        }
    }
}

impl AxiConfig {
    /// Everything at once: for tests.
    pub fn hostile() -> Self {
        Self {
            read_latency: 20,
            write_latency: 10,
            backpressure: 0.3,
            reorder: true,
            interleave: true,
        }
    }
}

/// A broken rule: channel and rule.
pub(crate) type Broken = (&'static str, String);

struct Burst {
    id: u8,
    addr: u64,
    /// Beats not yet moved.
    beats: u16,
    ready_at: u64,
    resp: u8,
}

/// Address or data of a channel that was offered and not yet taken: it must stay.
#[derive(Clone, Default, PartialEq)]
struct Offers {
    ar: Option<(u8, u64, u8)>,
    aw: Option<(u8, u64, u8)>,
    w: Option<(Beat, u64, u8)>,
}

pub(crate) struct AxiHost {
    config: AxiConfig,
    pub(crate) dma: DmaMap,
    /// While clear, the card may not master the bus: every access is refused.
    pub(crate) bus_master: bool,
    beat_bytes: usize,
    rng: ChaCha8Rng,
    /// In order of arrival.
    reads: VecDeque<Burst>,
    /// Index in `reads` of the burst whose beat is offered.
    offered: Option<usize>,
    writes: VecDeque<Burst>,
    early: VecDeque<(Beat, u64, bool)>,
    responses: VecDeque<Burst>,
    held: Offers,
}

impl AxiHost {
    pub(crate) fn new(config: AxiConfig, beat_bytes: usize, seed: u64) -> Self {
        Self {
            config,
            dma: DmaMap::default(),
            bus_master: false,
            beat_bytes,
            rng: ChaCha8Rng::seed_from_u64(seed),
            reads: VecDeque::new(),
            offered: None,
            writes: VecDeque::new(),
            early: VecDeque::new(),
            responses: VecDeque::new(),
            held: Offers::default(),
        }
    }

    /// Forgets all that is in flight; for a reset of the card.
    pub(crate) fn reset(&mut self) {
        self.reads.clear();
        self.offered = None;
        self.writes.clear();
        self.early.clear();
        self.responses.clear();
        self.held = Offers::default();
    }

    /// Nothing is in flight.
    pub(crate) fn idle(&self) -> bool {
        self.reads.is_empty()
            && self.writes.is_empty()
            && self.early.is_empty()
            && self.responses.is_empty()
    }

    /// Decides what the host drives in this cycle.
    pub(crate) fn drive(&mut self, cycle: u64, input: &mut In) {
        let stall = self.stalls();
        let ready = |channel: u32, room: bool| u8::from(room && stall & 1 << channel == 0);
        input.axi_arready = ready(0, self.reads.len() < BURSTS);
        input.axi_awready = ready(1, self.writes.len() < BURSTS);
        input.axi_wready = ready(2, self.early.len() < EARLY_BEATS);
        input.irq_ready = ready(3, true);
        // A response once offered stays until it is taken.
        if input.axi_bvalid == 0
            && ready(4, true) == 1
            && let Some(b) = self.responses.front().filter(|b| b.ready_at <= cycle)
        {
            (input.axi_bvalid, input.axi_bid, input.axi_bresp) = (1, b.id, b.resp);
        }
        if input.axi_rvalid == 0 && ready(5, true) == 1 {
            self.offer_beat(cycle, input);
        }
    }

    /// One bit a channel that stalls.
    fn stalls(&mut self) -> u8 {
        if self.config.backpressure <= 0.0 {
            return 0;
        }
        let limit = (self.config.backpressure.min(1.0) * 255.0) as u8;
        let dice = self.rng.next_u64().to_le_bytes();
        dice.iter()
            .enumerate()
            .fold(0, |bits, (i, die)| bits | u8::from(*die < limit) << i)
    }

    fn offer_beat(&mut self, cycle: u64, input: &mut In) {
        let Some(index) = self.choose_read(cycle) else {
            return;
        };
        let burst = &mut self.reads[index];
        let data = &mut input.axi_rdata.0[..self.beat_bytes];
        if !(self.bus_master && self.dma.read(burst.addr, data)) {
            burst.resp = DECERR;
            self.rng.fill_bytes(data);
        }
        (input.axi_rvalid, input.axi_rid, input.axi_rresp) = (1, burst.id, burst.resp);
        input.axi_rlast = u8::from(burst.beats == 1);
        self.offered = Some(index);
    }

    /// Which burst the next beat is of. Bursts of one tag stay in order.
    fn choose_read(&mut self, cycle: u64) -> Option<usize> {
        // `offered` stays at a burst that has begun and is not complete.
        if let Some(current) = self.offered
            && !(self.config.interleave && self.rng.random_ratio(1, 4))
        {
            return Some(current);
        }
        if !self.config.reorder {
            return self
                .reads
                .front()
                .filter(|r| r.ready_at <= cycle)
                .map(|_| 0);
        }
        let first_of_tag = |i: usize| self.reads.iter().take(i).all(|r| r.id != self.reads[i].id);
        let ready: Vec<usize> = (0..self.reads.len())
            .filter(|&i| self.reads[i].ready_at <= cycle && first_of_tag(i))
            .collect();
        if ready.is_empty() {
            None
        } else {
            Some(ready[self.rng.random_range(0..ready.len())])
        }
    }

    /// Takes note of what moved in the cycle that has just ended, `input` and `out` being its signals.
    pub(crate) fn moved(&mut self, cycle: u64, input: &mut In, out: &Out) -> Result<(), Broken> {
        self.check_held(input, out)?;
        if out.axi_arvalid & input.axi_arready != 0 {
            self.check_burst(
                "AR",
                out.axi_araddr,
                out.axi_arlen,
                out.axi_arsize,
                out.axi_arburst,
            )?;
            let extra = if self.config.reorder {
                self.rng.random_range(0..=self.config.read_latency)
            } else {
                0
            };
            self.reads.push_back(Burst {
                id: out.axi_arid,
                addr: out.axi_araddr,
                beats: u16::from(out.axi_arlen) + 1,
                ready_at: cycle + u64::from(self.config.read_latency + extra),
                resp: OKAY,
            });
        }
        if input.axi_rvalid & out.axi_rready != 0 {
            input.axi_rvalid = 0;
            self.beat_taken();
        }
        if out.axi_awvalid & input.axi_awready != 0 {
            self.check_burst(
                "AW",
                out.axi_awaddr,
                out.axi_awlen,
                out.axi_awsize,
                out.axi_awburst,
            )?;
            let beats = u16::from(out.axi_awlen) + 1;
            self.writes.push_back(Burst {
                id: out.axi_awid,
                addr: out.axi_awaddr,
                beats,
                ready_at: 0,
                resp: OKAY,
            });
        }
        if out.axi_wvalid & input.axi_wready != 0 {
            self.early
                .push_back((out.axi_wdata, out.axi_wstrb, out.axi_wlast != 0));
        }
        if !self.early.is_empty() && !self.writes.is_empty() {
            self.write(cycle)?;
        }
        if input.axi_bvalid & out.axi_bready != 0 {
            input.axi_bvalid = 0;
            self.responses.pop_front();
        }
        Ok(())
    }

    fn beat_taken(&mut self) {
        let Some(index) = self.offered else { return };
        let burst = &mut self.reads[index];
        burst.addr += self.beat_bytes as u64;
        burst.beats -= 1;
        if burst.beats == 0 {
            self.reads.remove(index);
            self.offered = None;
        }
    }

    /// Writes the data that has both come and has an address.
    fn write(&mut self, cycle: u64) -> Result<(), Broken> {
        while let Some(burst) = self.writes.front_mut()
            && let Some((data, strobes, last)) = self.early.pop_front()
        {
            if last != (burst.beats == 1) {
                return Err((
                    "W",
                    format!("WLAST is {last} with {} beats to go", burst.beats),
                ));
            }
            // The card writes the bytes from the start of a beat up to an end.
            let bytes = strobes.trailing_ones() as usize;
            if strobes.checked_shr(bytes as u32).unwrap_or(0) != 0 || bytes > self.beat_bytes {
                return Err(("W", format!("strobes {strobes:#x} have a hole")));
            }
            if bytes > 0 && !(self.bus_master && self.dma.write(burst.addr, &data.0[..bytes])) {
                burst.resp = DECERR;
            }
            burst.addr += self.beat_bytes as u64;
            burst.beats -= 1;
            if burst.beats == 0 {
                burst.ready_at = cycle + u64::from(self.config.write_latency);
                self.responses.extend(self.writes.pop_front());
            }
        }
        Ok(())
    }

    fn check_burst(
        &self,
        channel: &'static str,
        addr: u64,
        len: u8,
        size: u8,
        burst: u8,
    ) -> Result<(), Broken> {
        let bytes = (u64::from(len) + 1) * self.beat_bytes as u64;
        let rule = if burst != INCR {
            format!("burst type {burst} is not INCR")
        } else if 1usize.checked_shl(size.into()) != Some(self.beat_bytes) {
            format!("size {size} is not the width of the bus")
        } else if !addr.is_multiple_of(self.beat_bytes as u64) {
            format!("address {addr:#x} is not aligned to a beat")
        } else if addr % PAGE + bytes > PAGE {
            format!("{bytes} bytes at {addr:#x} cross a 4 KiB boundary")
        } else {
            return Ok(());
        };
        Err((channel, rule))
    }

    /// What was offered in the last cycle and not taken must be offered again, unchanged.
    fn check_held(&mut self, input: &In, out: &Out) -> Result<(), Broken> {
        let ar = (out.axi_arvalid != 0).then_some((out.axi_arid, out.axi_araddr, out.axi_arlen));
        let aw = (out.axi_awvalid != 0).then_some((out.axi_awid, out.axi_awaddr, out.axi_awlen));
        if self.held.ar.is_some() && self.held.ar != ar {
            return Err((
                "AR",
                "address changed or was withdrawn before it was taken".into(),
            ));
        }
        if self.held.aw.is_some() && self.held.aw != aw {
            return Err((
                "AW",
                "address changed or was withdrawn before it was taken".into(),
            ));
        }
        if let Some(held) = &self.held.w
            && (out.axi_wvalid == 0 || *held != (out.axi_wdata, out.axi_wstrb, out.axi_wlast))
        {
            return Err((
                "W",
                "data changed or was withdrawn before it was taken".into(),
            ));
        }
        self.held.ar = ar.filter(|_| input.axi_arready == 0);
        self.held.aw = aw.filter(|_| input.axi_awready == 0);
        self.held.w = (out.axi_wvalid != 0 && input.axi_wready == 0).then_some((
            out.axi_wdata,
            out.axi_wstrb,
            out.axi_wlast,
        ));
        Ok(())
    }
}
