// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A card that runs on its own, for a hub to serve.

use std::sync::Arc;

use phub_model::{GoldenCard, Params};
use phub_pci::PciFunction;
use phub_sim::{CardConfig, RunningCard};

/// `model`: the golden model. `sim`: the Verilated card, on a thread of its own.
pub fn card(kind: &str) -> Result<Arc<dyn PciFunction>, Box<dyn std::error::Error>> {
    match kind {
        "model" => Ok(Arc::new(GoldenCard::new(Params::default()))),
        "sim" => {
            let on_failure =
                Box::new(|failure: &phub_sim::Failure| eprintln!("the card failed: {failure}"));
            Ok(Arc::new(RunningCard::start(
                CardConfig::default(),
                on_failure,
            )?))
        }
        _ => Err(format!("no card `{kind}`: model, sim").into()),
    }
}
