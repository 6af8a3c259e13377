// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! One worker process of the demo: what a user's training script would be.

use super::mlp::{Batches, Mlp, Score, TENSORS, Tensors};
use super::report::{self, Report};
use super::{digits, run::Options};
use crate::hub::explain;
use anyhow::{Context, Result};
use clap::Args;
use phub::{Hub, JoinOptions, Reduce};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Name of the hidden subcommand.
pub(crate) const COMMAND: &str = "demo-worker";

/// A worker of the demo; started by it.
#[derive(Args)]
pub(crate) struct Worker {
    #[arg(long)]
    socket: PathBuf,
    #[arg(long)]
    tenant: String,
    #[arg(long)]
    token: u64,
    #[arg(long)]
    rank: usize,
    #[arg(long)]
    world: usize,
    #[arg(long)]
    steps: usize,
    #[arg(long)]
    batch: usize,
    #[arg(long)]
    seed: u64,
}

impl Worker {
    /// The command line of worker `rank`, after [`COMMAND`].
    pub(crate) fn arguments(
        options: &Options,
        socket: &Path,
        tenant: &str,
        token: u64,
        rank: usize,
    ) -> Vec<OsString> {
        let mut arguments = vec![
            "--socket".into(),
            socket.into(),
            "--tenant".into(),
            tenant.into(),
        ];
        for (name, value) in [
            ("--token", token),
            ("--rank", rank as u64),
            ("--world", options.workers as u64),
            ("--steps", options.steps as u64),
            ("--batch", options.batch as u64),
            ("--seed", options.seed),
        ] {
            arguments.extend([name.into(), value.to_string().into()]);
        }
        arguments
    }

    /// Trains, and reports on standard output.
    pub(crate) fn run(self) -> Result<ExitCode> {
        // A demo that was killed leaves no worker behind.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let mut out = std::io::stdout().lock();
        match self.train(&mut out) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => {
                report::send(
                    &mut out,
                    &Report::Failed {
                        error: format!("{error:#}"),
                    },
                    &[],
                )?;
                Ok(ExitCode::FAILURE)
            }
        }
    }

    fn train(&self, out: &mut impl Write) -> Result<()> {
        let (train, test) = digits::load();
        let shard = digits::shard(&train, self.rank, self.world);
        let mut batches = Batches::new(shard, self.batch, self.seed, self.rank);
        let mut model = Mlp::new(self.seed);

        let address = self
            .socket
            .to_str()
            .context("the socket's path is not UTF-8")?;
        let (rank, world) = (u32::try_from(self.rank)?, u32::try_from(self.world)?);
        let hub = Hub::connect(address).map_err(explain)?;
        // Room for the tensors, each of which begins on a boundary of its own.
        let options = JoinOptions {
            arena_bytes: 1 << 20,
            ..JoinOptions::default()
        };
        let worker = hub
            .join(&self.tenant, rank, world, self.token, options)
            .map_err(explain)?;
        // Card-visible memory, one buffer a tensor for the whole training.
        let mut buffers = TENSORS
            .iter()
            .map(|(name, len)| worker.alloc(name, *len).map(Some))
            .collect::<phub::Result<Vec<_>>>()
            .map_err(explain)?;

        for _ in 0..self.steps {
            let mut handles = Vec::with_capacity(TENSORS.len());
            let score = model.gradient(batches.next_batch(), |tensor, values| {
                let mut buffer = buffers[tensor]
                    .take()
                    .context("a tensor's gradient came twice")?;
                buffer.write_from(&values).map_err(explain)?;
                handles.push(
                    worker
                        .push_pull_async(buffer, Reduce::Mean)
                        .map_err(explain)?,
                );
                anyhow::Ok(())
            })?;
            let mut mean: Tensors = Default::default();
            for (tensor, handle) in handles.into_iter().enumerate() {
                let done = handle.wait().map_err(explain)?;
                mean[tensor] = done.tensor.to_vec().map_err(explain)?;
                buffers[tensor] = Some(done.tensor);
            }
            model.step(&mean);
            let Score {
                loss,
                correct,
                images,
            } = score;
            let values = if self.rank == 0 {
                mean.concat()
            } else {
                Vec::new()
            };
            report::send(
                out,
                &Report::Step {
                    loss,
                    correct,
                    images,
                },
                &values,
            )?;
        }
        let accuracy = model.accuracy(&test);
        report::send(out, &Report::Done { accuracy }, &model.weights.concat())?;
        worker.leave().map_err(explain)
    }
}
