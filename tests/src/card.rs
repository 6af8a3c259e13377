// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A card in this process: the golden model, or the Verilated RTL.

use std::sync::Arc;

use phub_model::{Contribution, GoldenCard, Order, Params};
use phub_pci::PciFunction;

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

    /// What has joined since the last call, in order.
    pub fn take_trace(&self) -> Vec<Contribution> {
        match &self.kind {
            Kind::Golden(card) => card.take_trace(),
        }
    }

    /// Contributions of a recorded order that this card has not repeated.
    pub fn unplayed(&self) -> usize {
        match &self.kind {
            Kind::Golden(card) => card.unplayed(),
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
    };
}
