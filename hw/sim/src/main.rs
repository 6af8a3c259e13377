// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phub-sim`: the simulated card as a process of its own.
#![forbid(unsafe_code)]

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use phub_model::{GoldenCard, Params};
use phub_pci::PciFunction;
use phub_sim::{AxiConfig, Build, CardConfig, Failure, Pluggable, RunningCard, Waves};
use phub_vfio_user::{Server, Stop};
use signal_hook::{
    consts::{SIGUSR1, TERM_SIGNALS},
    iterator::Signals,
};

/// A simulated parameter hub card.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Offers the card as a vfio-user device at a UNIX socket, until it is told to stop (SIGINT, SIGTERM).
    ///
    /// SIGUSR1 pulls the card out of its slot: from then on it reads as all ones.
    Serve(Serve),
}

#[derive(Args)]
struct Serve {
    /// UNIX socket to listen at; its address for drivers is `vfio-user:PATH`.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Serve the golden model (no RTL, no clock) instead of the Verilated card.
    #[arg(long, conflicts_with_all = ["seed", "trace", "read_latency", "backpressure", "reorder"])]
    model: bool,
    /// Seed of everything random; by default a new one each time.
    #[arg(long)]
    seed: Option<u64>,
    /// Write waves of all signals to this file, to be opened with GTKWave or Surfer.
    #[arg(long, value_name = "FILE.fst")]
    trace: Option<PathBuf>,
    /// First clock cycle of the waves.
    #[arg(long, value_name = "CYCLE", default_value_t = 0, requires = "trace")]
    trace_from: u64,
    /// Clock cycle at which the waves end.
    #[arg(long, value_name = "CYCLE", default_value_t = u64::MAX, requires = "trace")]
    trace_to: u64,
    /// Cycles that host memory takes to answer a read.
    #[arg(long, value_name = "CYCLES", default_value_t = AxiConfig::default().read_latency)]
    read_latency: u32,
    /// Probability that host memory stalls a channel in a cycle.
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = probability)]
    backpressure: f32,
    /// Answer reads out of order and mixed.
    #[arg(long)]
    reorder: bool,
    /// End when the process that started this one ends.
    #[arg(long)]
    die_with_parent: bool,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into()),
        )
        .init();
    let Command::Serve(serve) = Cli::parse().command;
    match run(&serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("phub-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(serve: &Serve) -> anyhow::Result<()> {
    if serve.die_with_parent {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
            .context("asking to end with the parent")?;
        // The parent may have ended before the question.
        if rustix::process::getppid().is_none_or(rustix::process::Pid::is_init) {
            bail!("the process that started this one has ended already");
        }
    }
    let stop = Stop::new().context("a stop flag")?;
    // Before there is anything to clean up.
    let mut signals =
        Signals::new(TERM_SIGNALS.iter().chain(&[SIGUSR1])).context("catching signals")?;
    let server = Server::bind(&serve.socket)?;
    let failure = Arc::new(Mutex::new(None));
    let card: Box<dyn PciFunction> = if serve.model {
        Box::new(GoldenCard::new(Params::default()))
    } else {
        verilated(serve, stop.clone(), failure.clone())?
    };
    let card = Arc::new(Pluggable::new(card));
    // Weak: the card ends, and its waves are written, where this function does.
    let (slot, on_signal) = (Arc::downgrade(&card), stop.clone());
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if signal != SIGUSR1 {
                    return on_signal.stop();
                }
                if let Some(Err(error)) = slot.upgrade().map(|card| card.pull()) {
                    tracing::warn!(%error, "the card that was pulled");
                }
            }
        })?;
    let mut out = std::io::stdout();
    writeln!(out, "address vfio-user:{}", serve.socket.display())?;
    writeln!(out, "ready")?;
    out.flush()?;
    server.run(&*card, &stop)?;
    match failure
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
    {
        Some(failure) => Err(Failure::into(failure)),
        None => Ok(()),
    }
}

fn verilated(
    serve: &Serve,
    stop: Stop,
    failure: Arc<Mutex<Option<Failure>>>,
) -> anyhow::Result<Box<dyn PciFunction>> {
    let seed = serve.seed.unwrap_or_else(rand::random);
    let waves = serve.trace.clone().map(|path| Waves {
        path,
        from: serve.trace_from,
        to: serve.trace_to,
    });
    let config = CardConfig {
        build: if waves.is_some() {
            Build::Traced
        } else {
            Build::Standard
        },
        seed,
        axi: AxiConfig {
            read_latency: serve.read_latency,
            backpressure: serve.backpressure,
            reorder: serve.reorder,
            interleave: serve.reorder,
            ..AxiConfig::default()
        },
        waves,
        contributions: false,
    };
    let on_failure = Box::new(move |why: &Failure| {
        *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
        stop.stop();
    });
    let card = RunningCard::start(config, on_failure)?;
    println!("seed {seed}");
    Ok(Box::new(card))
}

fn probability(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(p) if (0.0..1.0).contains(&p) => Ok(p),
        _ => Err("a number from 0 up to, not including, 1".into()),
    }
}
