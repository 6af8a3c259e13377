// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A card in this process: the golden model, or the Verilated RTL.

use std::sync::Arc;

use phub_model::{Contribution, GoldenCard, Order, Params};
use phub_pci::PciFunction;
use phub_sim::{AxiConfig, Build, CardConfig, VerilatedCard};

/// A card and what a test wants to know of it beyond the PCI function.
#[derive(Clone)]
pub struct Card {
    /// The card.
    pub pci: Arc<dyn PciFunction>,
    /// How large it is.
    pub params: Params,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Golden(Arc<GoldenCard>),
    Verilated(Arc<VerilatedCard>),
}

/// The small build of the RTL: everything is scarce, so that everything has to wait.
pub const TINY: Params = Params {
    lanes: 2,
    seg_bytes: 64,
    slots: 4,
    tenants: 2,
    workers: 4,
    queues: 4,
    desc_depth: 2,
};

impl Card {
    /// The golden model of the usual size, serving its queues in turn.
    pub fn golden() -> Self {
        Self::model(Params::default(), Order::RoundRobin)
    }

    /// The golden model.
    pub fn model(params: Params, order: Order) -> Self {
        let card = Arc::new(GoldenCard::with_order(params, order));
        let _ = card.take_trace();
        Self {
            pci: card.clone(),
            params,
            kind: Kind::Golden(card),
        }
    }

    /// The Verilated card with host memory that is late, out of order and often busy.
    pub fn verilated() -> Self {
        Self::rtl(Build::Standard, 1, AxiConfig::hostile())
    }

    /// The Verilated card.
    pub fn rtl(build: Build, seed: u64, axi: AxiConfig) -> Self {
        let config = CardConfig {
            build,
            seed,
            axi,
            contributions: true,
            ..CardConfig::default()
        };
        let card = Arc::new(VerilatedCard::new(config).unwrap());
        let p = card.parameters();
        let params = Params {
            lanes: p.lanes,
            seg_bytes: p.seg_bytes,
            slots: p.slots,
            tenants: p.tenants,
            workers: p.workers,
            queues: p.queues,
            desc_depth: p.desc_depth,
        };
        Self {
            pci: card.clone(),
            params,
            kind: Kind::Verilated(card),
        }
    }

    /// What has joined since the last call, in order.
    pub fn take_trace(&self) -> Vec<Contribution> {
        match &self.kind {
            Kind::Golden(card) => card.take_trace(),
            Kind::Verilated(card) => card
                .take_trace()
                .into_iter()
                .map(|taken| taken.what)
                .collect(),
        }
    }

    /// Contributions of a recorded order that this card has not repeated.
    pub fn unplayed(&self) -> usize {
        match &self.kind {
            Kind::Golden(card) => card.unplayed(),
            Kind::Verilated(_) => 0,
        }
    }

    /// Lets time pass; every wait of a test goes through here.
    ///
    /// # Panics
    /// If an assertion of the RTL or a rule of the bus is broken.
    #[track_caller]
    pub fn relax(&self) {
        self.pci.relax();
        if let Kind::Verilated(card) = &self.kind
            && let Some(failure) = card.failure()
        {
            panic!("the card failed in cycle {}: {failure}", card.cycle());
        }
    }
}

/// Runs each test, a function of a [`Card`], on the golden model and on the Verilated card.
#[macro_export]
macro_rules! on_every_card {
    ($($test:ident),* $(,)?) => {
        mod golden {
            $(#[test] fn $test() { super::$test($crate::card::Card::golden()); })*
        }
        mod verilated {
            $(#[test] fn $test() { super::$test($crate::card::Card::verilated()); })*
        }
    };
}
