// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phubctl replay`: exchanges the tensors of a real model without computing, which is Parameter Hub's "zero-compute" benchmark
//! (arXiv 1805.07891, section 4.1).

use crate::hub::{CardChoice, Hub, explain};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use phub::{JoinOptions, Reduce};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const TENANT: &str = "replay";
/// Clock of the datacentre card, in cycles a second.
const CLOCK: f64 = 250e6;
/// 100 Gb/s Ethernet, in bytes a second.
const ETHERNET: f64 = 12.5e9;
/// PCIe 3.0 x16, in bytes a second each way.
const PCIE: f64 = 15.75e9;
/// Bytes between two tensors of an arena, at most.
const ALIGN: u64 = 64;

/// Exchange the tensors of a model without computing: what the card and the software move at most.
///
/// Workers push and pull every tensor, all in flight at once, in the order in which a backward pass finishes them.
#[derive(Args)]
pub(crate) struct Replay {
    /// Tensors, a line each: name,elements. Lines that begin with # are passed over.
    #[arg(required_unless_present = "model", conflicts_with = "model")]
    file: Option<PathBuf>,
    /// A list that comes with phubctl.
    #[arg(long, value_enum)]
    model: Option<Model>,
    /// Workers, each a thread of this process.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// How often all tensors are exchanged.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Check payloads and results by CRC-32, as training does by default.
    #[arg(long)]
    crc: bool,
    /// The card: `sim` (the RTL), `model` (golden model), or an address as phubd takes it.
    #[arg(long, default_value = "sim")]
    card: CardChoice,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Model {
    Resnet50,
    BertBase,
    Gpt2Small,
    Dlrm,
}

impl Model {
    fn list(self) -> &'static str {
        match self {
            Self::Resnet50 => include_str!("../../data/replay/resnet50.csv"),
            Self::BertBase => include_str!("../../data/replay/bert-base.csv"),
            Self::Gpt2Small => include_str!("../../data/replay/gpt2-small.csv"),
            Self::Dlrm => include_str!("../../data/replay/dlrm.csv"),
        }
    }
}

/// A tensor of the list.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    elements: usize,
}

/// How it went; printed by `--json`.
#[derive(Serialize)]
struct Summary {
    tensors: usize,
    /// Gradient bytes of one worker in a step.
    bytes: u64,
    workers: u8,
    steps: u32,
    /// Seconds from the first push to the last result.
    seconds: f64,
    /// Gradient bytes of all workers over that time.
    gradient_mb_per_s: f64,
    /// Cycles the card was busy for each gradient byte its adders took; `null` if it has no clock.
    cycles_per_byte: Option<f64>,
    /// Gradient bytes a second those cycles would be at 250 MHz.
    bytes_per_s_at_250_mhz: Option<f64>,
    /// The same as a share of 100 Gb/s Ethernet.
    share_of_100_gbe: Option<f64>,
    /// The same as a share of PCIe 3.0 x16.
    share_of_pcie: Option<f64>,
}

impl Replay {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let text = match (&self.file, self.model) {
            (Some(file), _) => {
                std::fs::read_to_string(file).with_context(|| file.display().to_string())?
            }
            (None, Some(model)) => model.list().to_owned(),
            (None, None) => bail!("name a file or a --model"),
        };
        let entries = parse(&text)?;
        let hub = Hub::start(&self.card, None)?;
        eprintln!("card: {}", hub.describe()?);
        let token = hub.create_tenant(TENANT, self.workers.into())?;
        let before = hub.perf()?;
        let seconds = self.exchange(&hub, token, &entries)?.as_secs_f64();
        let after = hub.perf()?;
        let summary = self.summary(&entries, seconds, &before, &after, hub.beat_bytes()?);
        if self.json {
            outln!("{}", serde_json::to_string(&summary)?);
        } else {
            print(&summary)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Lets all workers exchange all tensors; how long that took the slowest.
    fn exchange(&self, hub: &Hub, token: u64, entries: &[Entry]) -> Result<Duration> {
        let address = hub
            .socket()
            .to_str()
            .context("the socket's path is not UTF-8")?;
        let world = self.workers.into();
        let options = JoinOptions {
            arena_bytes: entries.iter().map(|e| 4 * e.elements as u64 + ALIGN).sum(),
            crc: self.crc,
            ..JoinOptions::default()
        };
        let workers = (0..world)
            .map(|rank| {
                phub::Hub::connect(address)
                    .and_then(|hub| hub.join(TENANT, rank, world, token, options.clone()))
                    .map_err(explain)
            })
            .collect::<Result<Vec<_>>>()?;
        // All have filled their tensors before one begins.
        let ready = std::sync::Barrier::new(workers.len());
        std::thread::scope(|scope| {
            let workers: Vec<_> = workers
                .iter()
                .map(|worker| scope.spawn(|| replay(worker, entries, self.steps, &ready)))
                .collect();
            let mut longest = Duration::ZERO;
            for worker in workers {
                match worker.join() {
                    Ok(took) => longest = longest.max(took?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(longest)
        })
    }

    fn summary(
        &self,
        entries: &[Entry],
        seconds: f64,
        before: &BTreeMap<String, u64>,
        after: &BTreeMap<String, u64>,
        beat_bytes: u64,
    ) -> Summary {
        let counted = |key: &str| {
            let of = |perf: &BTreeMap<String, u64>| perf.get(key).copied().unwrap_or(0);
            of(after).saturating_sub(of(before)) as f64
        };
        let bytes: u64 = entries.iter().map(|e| 4 * e.elements as u64).sum();
        let (busy, taken) = (counted("busy"), counted("beats_in") * beat_bytes as f64);
        let cycles_per_byte = (busy > 0.0 && taken > 0.0).then(|| busy / taken);
        let rate = cycles_per_byte.map(|cycles| CLOCK / cycles);
        Summary {
            tensors: entries.len(),
            bytes,
            workers: self.workers,
            steps: self.steps,
            seconds,
            gradient_mb_per_s: bytes as f64 * f64::from(self.workers) * f64::from(self.steps)
                / 1e6
                / seconds,
            cycles_per_byte,
            bytes_per_s_at_250_mhz: rate,
            share_of_100_gbe: rate.map(|rate| rate / ETHERNET),
            share_of_pcie: rate.map(|rate| rate / PCIE),
        }
    }
}

/// One worker: every value is one, and so is the mean of all workers' values.
fn replay(
    worker: &phub::Worker,
    entries: &[Entry],
    steps: u32,
    ready: &std::sync::Barrier,
) -> Result<Duration> {
    let filled = fill(worker, entries);
    // Before the first error is returned, so that nobody waits here for ever.
    ready.wait();
    let mut tensors = filled?;
    let start = Instant::now();
    for _ in 0..steps {
        let handles = tensors
            .drain(..)
            .map(|tensor| worker.push_pull_async(tensor, Reduce::Mean))
            .collect::<phub::Result<Vec<_>>>()
            .map_err(explain)?;
        for handle in handles {
            tensors.push(handle.wait().map_err(explain)?.tensor);
        }
    }
    let took = start.elapsed();
    for tensor in &tensors {
        let wrong = tensor
            .to_vec()
            .map_err(explain)?
            .iter()
            .position(|value| *value != 1.0);
        ensure!(
            wrong.is_none(),
            "{}: element {wrong:?} is wrong",
            tensor.name()
        );
    }
    Ok(took)
}

fn fill(worker: &phub::Worker, entries: &[Entry]) -> Result<Vec<phub::Tensor>> {
    entries
        .iter()
        .map(|entry| {
            worker
                .stage(&entry.name, &vec![1.0; entry.elements])
                .map_err(explain)
        })
        .collect()
}

fn parse(text: &str) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line == "name,elements" {
            continue;
        }
        let entry = line.rsplit_once(',').and_then(|(name, elements)| {
            let elements = elements.trim().parse().ok()?;
            Some(Entry {
                name: name.trim().to_owned(),
                elements,
            })
        });
        entries
            .push(entry.with_context(|| format!("line {}: `{line}` is not name,elements", n + 1))?);
    }
    ensure!(!entries.is_empty(), "the list has no tensors");
    ensure!(
        entries.iter().map(|e| e.elements as u128).sum::<u128>() < 1 << 40,
        "the list has more elements than an arena can hold"
    );
    Ok(entries)
}

fn print(summary: &Summary) -> Result<()> {
    outln!(
        "{} tensors, {:.1} MB a worker and step, {} workers, {} steps",
        summary.tensors,
        summary.bytes as f64 / 1e6,
        summary.workers,
        summary.steps
    );
    outln!(
        "software       {:.2} s, {:.1} MB/s of gradients",
        summary.seconds,
        summary.gradient_mb_per_s
    );
    if let (Some(cycles), Some(rate), Some(ethernet), Some(pcie)) = (
        summary.cycles_per_byte,
        summary.bytes_per_s_at_250_mhz,
        summary.share_of_100_gbe,
        summary.share_of_pcie,
    ) {
        outln!("card           {cycles:.5} cycles/byte");
        outln!(
            "at 250 MHz     {:.2} GB/s: {:.0} % of 100 Gb/s Ethernet, {:.0} % of PCIe 3.0 x16",
            rate / 1e9,
            100.0 * ethernet,
            100.0 * pcie
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_the_models() {
        for (model, tensors, elements) in [
            (Model::Resnet50, 161, 25_557_032),
            (Model::BertBase, 199, 109_482_240),
            (Model::Gpt2Small, 148, 124_439_808),
            (Model::Dlrm, 16, 2_368_897),
        ] {
            let list = parse(model.list()).unwrap();
            let total: usize = list.iter().map(|e| e.elements).sum();
            assert_eq!((list.len(), total), (tensors, elements));
        }
    }

    #[test]
    fn nonsense_is_refused_by_its_line() {
        let error = parse("a,1\n\n# x\nb,-1\n").unwrap_err().to_string();
        assert!(error.contains("line 4"), "{error}");
        assert!(parse("# nothing\n").is_err());
        assert!(parse(&format!("a,{}", 1u64 << 40)).is_err());
        let entry = |name: &str, elements| Entry {
            name: name.into(),
            elements,
        };
        assert_eq!(
            parse("a,b,3\nc , 4").unwrap(),
            [entry("a,b", 3), entry("c", 4)]
        );
    }
}
