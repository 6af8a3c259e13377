// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What the demo shows: a live bar on the terminal, a line now and then elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Time between lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Figures of the training so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    /// Mean cross entropy of the last step, in nats.
    pub loss: f64,
    /// Share of the last steps' training images that were right, 0 to 1.
    pub accuracy: f64,
    pub steps_per_s: f64,
    pub megabytes_per_s: f64,
    /// Cycles the card was busy, for each beat its adders took; 0 if not known yet.
    pub cycles_per_beat: f64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            loss,
            accuracy,
            steps_per_s,
            megabytes_per_s,
            cycles_per_beat,
        } = self;
        write!(
            f,
            "loss {loss:.4}  train acc {:5.1} %  {steps_per_s:5.1} steps/s  {megabytes_per_s:5.2} MB/s",
            accuracy * 100.0
        )?;
        if *cycles_per_beat > 0.0 {
            write!(f, "  {cycles_per_beat:.2} cycles/beat")
        } else {
            Ok(())
        }
    }
}

/// The bar, or lines.
pub(crate) struct Screen {
    bar: Option<ProgressBar>,
    steps: usize,
    last_line: Instant,
}

impl Screen {
    pub(crate) fn new(steps: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(
                "{bar:24.cyan/blue} {pos:>4}/{len} {elapsed:>3}  {msg}",
            );
            ProgressBar::new(steps as u64)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self {
            bar,
            steps,
            last_line: Instant::now(),
        }
    }

    /// Says what goes on before or after the training.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Shows the figures after `done` steps.
    pub(crate) fn show(&mut self, done: usize, figures: &Figures) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(done as u64);
                bar.set_message(figures.to_string());
            }
            None if self.last_line.elapsed() >= LINE_EVERY || done == self.steps => {
                self.last_line = Instant::now();
                eprintln!("step {done:>4}/{}  {figures}", self.steps);
            }
            None => {}
        }
    }

    /// Leaves the last state of the bar on the terminal.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}
