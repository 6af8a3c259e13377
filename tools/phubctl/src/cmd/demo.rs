// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phubctl demo`: trains a digit classifier across worker processes.

use crate::demo::{self, Options, Summary};
use crate::hub::CardChoice;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Train a digit classifier across worker processes, gradients summed by a card.
///
/// Starts a simulated card (the RTL under Verilator), phubd and the workers, trains, compares every step with a
/// single process, and ends all of it. Exit code: 0 if accuracy and sums are right, 1 if not, 130 on Ctrl-C.
#[derive(Args)]
pub(crate) struct Demo {
    /// Worker processes.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// Training steps.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Images a worker sees in a step.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Seed of the weights and of the order of the images.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The card: `sim` (the RTL), `model` (golden model), or an address as phubd takes it.
    #[arg(long, default_value = "sim")]
    card: CardChoice,
    /// Write the simulated card's waves to this file (FST).
    #[arg(long, value_name = "FILE.fst")]
    trace: Option<PathBuf>,
    /// Print one JSON object at the end instead of the table.
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, interrupted.clone())?;
        }
        let options = Options {
            card: self.card,
            workers: self.workers.into(),
            steps: self.steps as usize,
            batch: self.batch as usize,
            seed: self.seed,
            trace: self.trace,
        };
        let summary = match demo::run(&options, &interrupted) {
            Err(error) if error.is::<demo::Interrupted>() => {
                eprintln!("interrupted; everything is ended");
                return Ok(ExitCode::from(130));
            }
            other => other?,
        };
        if self.json {
            outln!("{}", serde_json::to_string(&summary)?);
        } else {
            print(&summary)?;
        }
        Ok(if summary.faults.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn print(summary: &Summary) -> Result<()> {
    let yes = |good| if good { "yes" } else { "NO" };
    let reference = match (summary.matches_reference, summary.workers) {
        (false, _) => "NO".to_owned(),
        (true, ..=2) => "yes, bit for bit".to_owned(),
        (true, _) => format!(
            "yes, worst rounding {:.0} % of its bound",
            summary.worst_rounding * 100.0
        ),
    };
    outln!(
        "\ntest accuracy             {:.2} %",
        summary.accuracy * 100.0
    );
    outln!(
        "weights bit-identical     {} ({} workers)",
        yes(summary.bit_identical),
        summary.workers
    );
    outln!("equals a single process   {reference}");
    outln!(
        "training                  {} steps in {:.1} s",
        summary.steps,
        summary.seconds
    );
    outln!(
        "gradients                 {:.2} MB/s",
        summary.gradient_mb_per_s
    );
    if let Some(cycles) = summary.cycles_per_beat {
        outln!(
            "card                      {cycles:.2} cycles a beat of {} bytes",
            summary.beat_bytes
        );
    }
    outln!("\ncounters of the tenant");
    for (name, value) in summary.counters.iter().filter(|(_, value)| **value != 0) {
        outln!("  {name:<22} {value:>12}");
    }
    for fault in &summary.faults {
        outln!("\nFAULT: {fault}");
    }
    Ok(())
}
