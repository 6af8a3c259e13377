// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A card that runs on its own, for a hub to serve.

use std::sync::Arc;

use phub_model::{GoldenCard, Params};
use phub_pci::PciFunction;
use phub_sim::{CardConfig, RunningCard};

/// Which card runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardKind {
    /// The golden model.
    Golden,
    /// The Verilated card, on a thread of its own.
    Verilated,
}

impl CardKind {
    const ALL: [Self; 2] = [Self::Golden, Self::Verilated];

    /// As it is called on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Golden => "golden",
            Self::Verilated => "verilated",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A card of this kind, running.
pub fn card(kind: CardKind) -> Result<Arc<dyn PciFunction>, Box<dyn std::error::Error>> {
    match kind {
        CardKind::Golden => Ok(Arc::new(GoldenCard::new(Params::default()))),
        CardKind::Verilated => {
            let on_failure =
                Box::new(|failure: &phub_sim::Failure| eprintln!("the card failed: {failure}"));
            Ok(Arc::new(RunningCard::start(
                CardConfig::default(),
                on_failure,
            )?))
        }
    }
}
