// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Runs the demo: starts everything, follows the training, judges the result, ends everything.

use super::mlp::{PARAMETERS, TENSORS, Tensors};
use super::reference::{Deviation, Reference};
use super::report::{self, Report};
use super::screen::{Figures, Screen};
use super::{digits, worker};
use crate::hub::{CardChoice, Hub};
use crate::process::Managed;
use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const TENANT: &str = "demo";
/// Test accuracy the training must reach.
const ACCURACY_MIN: f64 = 0.95;
/// Longest time without news of any worker.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How often the card's counters are asked for while training.
const STATS_EVERY: Duration = Duration::from_millis(500);

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub card: CardChoice,
    pub workers: usize,
    pub steps: usize,
    /// Images a worker sees in a step.
    pub batch: usize,
    pub seed: u64,
    /// Where the simulated card writes its wave.
    pub trace: Option<PathBuf>,
}

/// How it went; printed by `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// Share of the test images the model gets right, 0 to 1.
    pub accuracy: f64,
    pub steps: usize,
    pub workers: usize,
    /// The weights are the same bits on all workers.
    pub bit_identical: bool,
    /// Every mean is what a single process computes (see [`super::reference`]).
    pub matches_reference: bool,
    /// Largest rounding error met, as a share of the bound; 0 if the sums are exact.
    pub worst_rounding: f64,
    /// Gradient bytes of all workers, over the time of the training.
    pub gradient_mb_per_s: f64,
    /// Cycles the card was busy for each beat its adders took; `null` if it has no clock.
    pub cycles_per_beat: Option<f64>,
    /// Bytes the card's adders take in a cycle.
    pub beat_bytes: u64,
    /// Seconds the training took.
    pub seconds: f64,
    /// Counters of the demo's tenant.
    pub counters: BTreeMap<String, u64>,
    /// Why the run is not good, if it is not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// Somebody pressed Ctrl-C.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

type News = (usize, Result<Option<(Report, Vec<f32>)>>);

/// Runs the demo. An error means that it could not be carried out; [`Summary::faults`] that its result is wrong.
pub(crate) fn run(options: &Options, interrupted: &AtomicBool) -> Result<Summary> {
    let mut screen = Screen::new(options.steps);
    let hub = Hub::start(&options.card, options.trace.as_deref())?;
    screen.say(&format!("card    {}", hub.describe()?));
    let token = hub.create_tenant(TENANT, options.workers)?;
    let (tell, news) = mpsc::channel();
    let workers = (0..options.workers)
        .map(|rank| start_worker(options, &hub, token, rank, tell.clone()))
        .collect::<Result<Vec<_>>>()?;
    drop(tell);
    screen.say(&format!(
        "model   {PARAMETERS} weights in {} tensors, {} workers x {} images a step, seed {}",
        TENSORS.len(),
        options.workers,
        options.batch,
        options.seed
    ));

    let mut training = Training {
        options,
        hub,
        workers,
        news,
        interrupted,
        screen: &mut screen,
    };
    let outcome = training.follow()?;
    let Training { hub, .. } = training;
    judge(options, &hub, outcome)
}

fn start_worker(
    options: &Options,
    hub: &Hub,
    token: u64,
    rank: usize,
    tell: Sender<News>,
) -> Result<Managed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(worker::COMMAND).args(worker::Worker::arguments(
        options,
        hub.socket(),
        TENANT,
        token,
        rank,
    ));
    let mut child = Managed::start("a worker", &mut command, hub.log(&format!("worker{rank}")))?;
    let mut stdout = std::io::BufReader::new(child.take_stdout()?);
    thread::spawn(move || {
        loop {
            let item = report::receive(&mut stdout);
            let more = matches!(item, Ok(Some(_)));
            if tell.send((rank, item)).is_err() || !more {
                return;
            }
        }
    });
    Ok(child)
}

/// What the workers said until the last was done.
struct Outcome {
    seconds: f64,
    /// Weights of each worker.
    weights: Vec<Vec<f32>>,
    accuracy: f64,
    reference: Result<Reference, Deviation>,
}

struct Training<'a> {
    options: &'a Options,
    hub: Hub,
    workers: Vec<Managed>,
    news: Receiver<News>,
    interrupted: &'a AtomicBool,
    screen: &'a mut Screen,
}

impl Training<'_> {
    fn follow(&mut self) -> Result<Outcome> {
        let world = self.options.workers;
        let (gradients, reference) = follow_reference(self.options);
        let mut gradients = Some(gradients);
        let mut latest = vec![None; world];
        let mut weights = vec![None; world];
        let mut accuracy = 0.0;
        let mut figures = Figures::default();
        let (mut done, mut started, mut ended) = (0, None, None);
        let (mut last_news, mut last_stats) = (Instant::now(), Instant::now());

        while weights.iter().any(Option::is_none) {
            if self.interrupted.load(Ordering::Relaxed) {
                bail!(Interrupted);
            }
            let (rank, item) = match self.news.recv_timeout(Duration::from_millis(50)) {
                Ok(item) => item,
                Err(RecvTimeoutError::Timeout) => {
                    self.check(last_news, &weights)?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the workers ended before the training did")
                }
            };
            last_news = Instant::now();
            match item.with_context(|| format!("worker {rank}"))? {
                Some((
                    Report::Step {
                        loss,
                        correct,
                        images,
                    },
                    values,
                )) => {
                    let start = *started.get_or_insert_with(Instant::now);
                    latest[rank] = Some((loss, correct, images));
                    if rank != 0 {
                        continue;
                    }
                    if let Some(gradients) = &gradients {
                        gradients.send(values).ok();
                    }
                    done += 1;
                    figures.set_scores(&latest);
                    figures.set_speed(done, start.elapsed(), world);
                    if last_stats.elapsed() >= STATS_EVERY {
                        last_stats = Instant::now();
                        figures.cycles_per_beat = self.hub.cycles_per_beat()?.unwrap_or(0.0);
                    }
                    self.screen.show(done, &figures);
                }
                Some((Report::Done { accuracy: found }, values)) => {
                    ended = Some(Instant::now());
                    weights[rank] = Some(values);
                    accuracy = found;
                }
                Some((Report::Failed { error }, _)) => bail!("worker {rank}: {error}"),
                None if weights[rank].is_none() => {
                    bail!("worker {rank} ended early{}", self.workers[rank].log_tail())
                }
                None => {}
            }
        }
        self.screen.finish();
        drop(gradients.take());
        let reference = reference
            .join()
            .map_err(|_| anyhow!("the reference run panicked"))?;
        let seconds = started
            .zip(ended)
            .map_or(0.0, |(start, end)| (end - start).as_secs_f64());
        Ok(Outcome {
            seconds,
            weights: weights.into_iter().flatten().collect(),
            accuracy,
            reference,
        })
    }

    fn check(&mut self, last_news: Instant, weights: &[Option<Vec<f32>>]) -> Result<()> {
        self.hub.check_alive()?;
        if last_news.elapsed() > SILENCE_MAX {
            let silent: Vec<_> = (0..weights.len())
                .filter(|&rank| weights[rank].is_none())
                .collect();
            bail!(
                "no news of workers {silent:?} for {} s{}",
                SILENCE_MAX.as_secs(),
                self.hub.log_tail()
            );
        }
        Ok(())
    }
}

impl Figures {
    fn set_scores(&mut self, latest: &[Option<(f64, usize, usize)>]) {
        let (mut loss, mut correct, mut images) = (0.0, 0, 0);
        for (l, c, i) in latest.iter().flatten() {
            loss += l;
            correct += c;
            images += i;
        }
        let images = images.max(1) as f64;
        self.loss = loss / images;
        self.accuracy = correct as f64 / images;
    }

    fn set_speed(&mut self, steps: usize, elapsed: Duration, world: usize) {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        self.steps_per_s = steps as f64 / seconds;
        self.megabytes_per_s = gradient_bytes(steps, world) / seconds / 1e6;
    }
}

fn gradient_bytes(steps: usize, world: usize) -> f64 {
    (steps * world * PARAMETERS * size_of::<f32>()) as f64
}

/// A thread that follows the training with the hub's mean gradients, one flat vector a step.
fn follow_reference(
    options: &Options,
) -> (Sender<Vec<f32>>, JoinHandle<Result<Reference, Deviation>>) {
    let (send, receive) = mpsc::channel::<Vec<f32>>();
    let (train, _) = digits::load();
    let mut reference = Reference::new(&train, options.workers, options.batch, options.seed);
    let thread = thread::spawn(move || {
        for flat in receive {
            reference.follow(&split(&flat))?;
        }
        Ok(reference)
    });
    (send, thread)
}

/// Cuts a flat vector into the model's tensors; a short one leaves the last tensors short.
fn split(flat: &[f32]) -> Tensors {
    let mut rest = flat;
    TENSORS.map(|(_, len)| {
        let (tensor, tail) = rest.split_at(len.min(rest.len()));
        rest = tail;
        tensor.to_vec()
    })
}

fn judge(options: &Options, hub: &Hub, outcome: Outcome) -> Result<Summary> {
    let Outcome {
        seconds,
        weights,
        accuracy,
        reference,
    } = outcome;
    let bits = |w: &Vec<f32>| w.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let bit_identical = weights
        .windows(2)
        .all(|pair| bits(&pair[0]) == bits(&pair[1]));
    let mut faults = Vec::new();
    if !bit_identical {
        faults.push("the workers' weights differ".to_owned());
    }
    if accuracy < ACCURACY_MIN {
        faults.push(format!(
            "test accuracy {accuracy:.4} is below {ACCURACY_MIN}"
        ));
    }
    let (matches_reference, worst_rounding) = match &reference {
        Ok(reference) => {
            let flat = reference.model().weights.concat();
            let same = weights
                .first()
                .is_some_and(|first| bits(first) == bits(&flat));
            if !same {
                faults.push("the weights differ from the single process's".to_owned());
            }
            (same, reference.worst)
        }
        Err(deviation) => {
            faults.push(deviation.to_string());
            (false, f64::NAN)
        }
    };
    Ok(Summary {
        accuracy,
        steps: options.steps,
        workers: options.workers,
        bit_identical,
        matches_reference,
        worst_rounding,
        gradient_mb_per_s: gradient_bytes(options.steps, options.workers) / seconds.max(1e-9) / 1e6,
        cycles_per_beat: hub.cycles_per_beat()?,
        beat_bytes: hub.beat_bytes()?,
        seconds,
        counters: hub.counters(TENANT)?,
        faults,
    })
}
