// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! One Verilated card and everything around it, run by whoever calls: clock, register access, DMA, interrupts.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use phub_abi::BAR0_BYTES;
use phub_model::Contribution;
use phub_pci::{
    Memory, PciError,
    config::{ConfigEffect, ConfigSpace},
};

use crate::{
    axi_host::{AxiConfig, AxiHost},
    failure::{Failure, SimError},
    ffi::{Build, In, Model, Out, Parameters},
};

/// Cycles a register access may take.
const ACCESS_LIMIT: u64 = 20_000;
/// Cycles of reset.
const RESET_CYCLES: u64 = 16;
/// Cycles without work after which the clock stops: a register write may take some to show in `busy_o`.
const SETTLE: u32 = 8;
/// Contributions kept until they are taken.
const CONTRIBUTIONS_MAX: usize = 1 << 20;

/// What a card is made of.
#[derive(Clone, Debug)]
pub struct CardConfig {
    /// Which Verilated build.
    pub build: Build,
    /// Where everything random comes from: memory contents at power-on, delays, order.
    pub seed: u64,
    /// How host memory behaves.
    pub axi: AxiConfig,
    /// Write waves.
    pub waves: Option<Waves>,
    /// Keep the order of contributions for [`crate::VerilatedCard::take_trace`].
    pub contributions: bool,
}

impl Default for CardConfig {
    fn default() -> Self {
        Self {
            build: Build::Standard,
            seed: 1,
            axi: AxiConfig::default(),
            waves: None,
            contributions: false,
        }
    }
}

/// Waves of all signals in a window of cycles, as an FST file.
#[derive(Clone, Debug)]
pub struct Waves {
    /// The file; it is replaced.
    pub path: PathBuf,
    /// First cycle.
    pub from: u64,
    /// First cycle that is not in it.
    pub to: u64,
}

/// One worker's part in one segment, in the order in which the card took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// When its first beat entered the adders, or the abstention was taken.
    pub cycle: u64,
    /// Slot of the segment.
    pub slot: u16,
    /// First contribution to the segment: stored, not added.
    pub first: bool,
    /// Whose part in what.
    pub what: Contribution,
}

/// A Verilated card with its clock in the caller's hand.
pub(crate) struct Card {
    model: Model,
    input: In,
    output: Out,
    axi: AxiHost,
    config: ConfigSpace,
    interrupts: Vec<OwnedFd>,
    seed: u64,
    cycle: u64,
    quiet: u32,
    waves: Option<Waves>,
    /// The next cycle at which the waves begin or end.
    waves_at: u64,
    contributions: Option<Vec<Taken>>,
    failure: Option<Failure>,
}

impl Card {
    pub(crate) fn new(config: CardConfig) -> Result<Self, SimError> {
        let feature = if config.build == Build::Tiny {
            "tiny"
        } else {
            "trace"
        };
        let parameters = config.build.parameters().ok_or(SimError::NotBuilt {
            build: config.build,
            feature,
        })?;
        if config.waves.is_some() && config.build != Build::Traced {
            return Err(SimError::NotBuilt {
                build: Build::Traced,
                feature: "trace",
            });
        }
        let model = Model::new(config.build, config.seed).ok_or(SimError::Memory)?;
        let mut card = Self {
            model,
            input: In::default(),
            output: Out::default(),
            axi: AxiHost::new(config.axi, 4 * parameters.lanes as usize, config.seed),
            config: ConfigSpace::new(parameters.queues as u16 + 1),
            interrupts: Vec::new(),
            seed: config.seed,
            cycle: 0,
            quiet: 0,
            waves_at: config.waves.as_ref().map_or(u64::MAX, |w| w.from),
            waves: config.waves,
            contributions: config.contributions.then(Vec::new),
            failure: None,
        };
        if let Some(waves) = &card.waves
            && std::fs::File::create(&waves.path).is_err()
        {
            return Err(SimError::Trace {
                path: waves.path.clone(),
            });
        }
        card.reset()?;
        Ok(card)
    }

    pub(crate) fn parameters(&self) -> Parameters {
        self.model.parameters()
    }

    pub(crate) fn cycle(&self) -> u64 {
        self.cycle
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    pub(crate) fn vectors(&self) -> usize {
        self.parameters().queues as usize + 1
    }

    /// The contributions taken since the last call; none are kept unless the configuration says so.
    pub(crate) fn take_trace(&mut self) -> Vec<Taken> {
        self.contributions
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Power-on state; DMA mappings and interrupts stay.
    pub(crate) fn reset(&mut self) -> Result<(), Failure> {
        self.config.reset();
        self.axi.bus_master = false;
        self.axi.reset();
        self.input = In {
            rst: 1,
            ..In::default()
        };
        for _ in 0..RESET_CYCLES {
            self.tick()?;
        }
        self.input.rst = 0;
        self.quiet = 0;
        Ok(())
    }

    /// Whether the card does nothing until a register is written.
    pub(crate) fn idle(&self) -> bool {
        self.quiet >= SETTLE
    }

    /// Runs the clock for `cycles`, or until there is nothing to do.
    pub(crate) fn run(&mut self, cycles: u32) -> Result<(), Failure> {
        for _ in 0..cycles {
            if self.idle() {
                break;
            }
            self.tick()?;
        }
        Ok(())
    }

    pub(crate) fn read(&mut self, offset: u32) -> Result<u32, Failure> {
        self.quiet = 0;
        (
            self.input.axil_arvalid,
            self.input.axil_araddr,
            self.input.axil_rready,
        ) = (1, offset, 1);
        for _ in 0..ACCESS_LIMIT {
            self.tick()?;
            if self.output.axil_arready & self.input.axil_arvalid != 0 {
                self.input.axil_arvalid = 0;
            }
            if self.output.axil_rvalid != 0 {
                self.input.axil_rready = 0;
                return Ok(self.output.axil_rdata);
            }
        }
        self.unresponsive("read", offset)
    }

    pub(crate) fn write(&mut self, offset: u32, value: u32) -> Result<(), Failure> {
        self.quiet = 0;
        (self.input.axil_awvalid, self.input.axil_awaddr) = (1, offset);
        (
            self.input.axil_wvalid,
            self.input.axil_wdata,
            self.input.axil_bready,
        ) = (1, value, 1);
        for _ in 0..ACCESS_LIMIT {
            self.tick()?;
            if self.output.axil_awready & self.input.axil_awvalid != 0 {
                self.input.axil_awvalid = 0;
            }
            if self.output.axil_wready & self.input.axil_wvalid != 0 {
                self.input.axil_wvalid = 0;
            }
            if self.output.axil_bvalid != 0 {
                self.input.axil_bready = 0;
                return Ok(());
            }
        }
        self.unresponsive("write", offset)
    }

    fn unresponsive<T>(&mut self, access: &'static str, offset: u32) -> Result<T, Failure> {
        let (cycle, seed) = (self.cycle, self.seed);
        Err(self.fail(Failure::Unresponsive {
            cycle,
            access,
            offset,
            limit: ACCESS_LIMIT,
            seed,
        }))
    }

    /// The first failure stays.
    fn fail(&mut self, failure: Failure) -> Failure {
        self.model.trace_close();
        self.failure.get_or_insert(failure).clone()
    }

    /// One clock cycle.
    fn tick(&mut self) -> Result<(), Failure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.cycle == self.waves_at {
            self.turn_waves();
        }
        let in_reset = self.input.rst != 0;
        if !in_reset {
            self.axi.drive(self.cycle, &mut self.input);
        }
        if let Err(message) = self.model.tick(&self.input, &mut self.output) {
            let (cycle, seed) = (self.cycle, self.seed);
            return Err(self.fail(Failure::Assertion {
                cycle,
                message,
                seed,
            }));
        }
        if !in_reset {
            if let Err((channel, rule)) = self.axi.moved(self.cycle, &mut self.input, &self.output)
            {
                let (cycle, seed) = (self.cycle, self.seed);
                return Err(self.fail(Failure::Protocol {
                    cycle,
                    channel,
                    rule,
                    seed,
                }));
            }
            self.events();
        }
        self.cycle += 1;
        Ok(())
    }

    /// Interrupts, contributions, and whether anything is going on.
    fn events(&mut self) {
        let out = &self.output;
        if out.irq_valid & self.input.irq_ready != 0
            && self.axi.bus_master
            && let Some(eventfd) = self.interrupts.get(usize::from(out.irq_vector))
        {
            // A counter at its maximum is readable already, and a closed one is its owner's affair.
            let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
        }
        if out.trace_valid != 0
            && let Some(list) = &mut self.contributions
            && list.len() < CONTRIBUTIONS_MAX
        {
            let what = Contribution {
                tenant: out.trace_tenant,
                worker: out.trace_worker,
                seq: out.trace_seq,
                abstain: out.trace_abstain != 0,
            };
            let (slot, first) = (out.trace_slot, out.trace_first != 0);
            list.push(Taken {
                cycle: self.cycle,
                slot,
                first,
                what,
            });
        }
        let active = out.busy | out.irq_valid | out.axi_arvalid | out.axi_awvalid | out.axi_wvalid;
        self.quiet = if active == 0 && self.axi.idle() {
            self.quiet.saturating_add(1)
        } else {
            0
        };
    }

    /// Begins or ends the waves.
    fn turn_waves(&mut self) {
        let Some(waves) = &self.waves else { return };
        if self.cycle >= waves.to {
            self.model.trace_close();
            self.waves_at = u64::MAX;
        } else {
            if !self.model.trace_open(&waves.path) {
                tracing::error!(path = %waves.path.display(), "cannot write waves");
            }
            self.waves_at = waves.to;
        }
    }

    pub(crate) fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<(), PciError> {
        self.config.read(offset, data)
    }

    pub(crate) fn config_write(&mut self, offset: u16, data: &[u8]) -> Result<(), PciError> {
        let effect = self.config.write(offset, data)?;
        self.axi.bus_master = self.config.bus_master();
        match effect {
            ConfigEffect::None => Ok(()),
            ConfigEffect::Reset => self.reset().map_err(gone),
        }
    }

    pub(crate) fn set_interrupts(&mut self, eventfds: &[BorrowedFd<'_>]) -> Result<(), PciError> {
        self.interrupts = duplicate(eventfds, self.vectors())?;
        Ok(())
    }

    pub(crate) fn connect_interrupts(&mut self, eventfds: Vec<OwnedFd>) {
        self.interrupts = eventfds;
    }

    pub(crate) fn map(
        &mut self,
        iova: u64,
        memory: &Memory,
        offset: u64,
        len: u64,
    ) -> Result<(), PciError> {
        self.axi.dma.map(iova, memory, offset, len)
    }

    pub(crate) fn unmap(&mut self, iova: u64, len: u64) -> Result<(), PciError> {
        self.axi.dma.unmap(iova, len)
    }
}

/// Own descriptors for the caller's eventfds.
pub(crate) fn duplicate(
    eventfds: &[BorrowedFd<'_>],
    vectors: usize,
) -> Result<Vec<OwnedFd>, PciError> {
    if eventfds.len() > vectors {
        return Err(PciError::Vectors {
            wanted: eventfds.len(),
            available: vectors,
        });
    }
    eventfds
        .iter()
        .map(|fd| fd.as_fd().try_clone_to_owned())
        .collect::<Result<_, _>>()
        .map_err(|source| PciError::System {
            what: "duplicating an eventfd".into(),
            source,
        })
}

/// An offset that names a dword of BAR0.
pub(crate) fn check_bar(offset: u32) -> Result<(), PciError> {
    if offset < BAR0_BYTES && offset.is_multiple_of(4) {
        return Ok(());
    }
    Err(PciError::OutOfRange {
        region: "BAR0",
        offset: offset.into(),
        len: 4,
    })
}

/// What a driver is told of a card that failed.
pub(crate) fn gone(failure: Failure) -> PciError {
    PciError::Gone {
        address: "this process (simulated)".into(),
        reason: failure.to_string(),
    }
}
