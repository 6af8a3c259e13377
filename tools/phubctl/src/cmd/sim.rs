// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phubctl sim`: a hub on a simulated card, to be joined by workers, until Ctrl-C.

use crate::hub::{CardChoice, Hub};
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Run a simulated card with phubd until Ctrl-C; workers can join as on a real one.
#[derive(Args)]
pub(crate) struct Sim {
    /// `sim` (the RTL) or `model` (golden model).
    #[arg(long, default_value = "sim")]
    card: CardChoice,
    /// Write the card's waves to this file (FST).
    #[arg(long, value_name = "FILE.fst")]
    trace: Option<PathBuf>,
}

impl Sim {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, interrupted.clone())?;
        }
        let hub = Hub::start(&self.card, self.trace.as_deref())?;
        eprintln!("card: {}", hub.describe()?);
        outln!("unix:{}", hub.socket().display());
        while !interrupted.load(Ordering::Relaxed) {
            hub.check_alive()?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(ExitCode::SUCCESS)
    }
}
