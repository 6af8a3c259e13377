// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phubd`: the hub daemon's command line.
#![forbid(unsafe_code)]

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use phubd::{Card, Config, Daemon};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Owns a parameter hub card and serves the workers of this host.
///
/// Prints `ready` on standard output once workers can join. SIGTERM and SIGINT shut it down; it leaves nothing behind.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// The card: vfio-user:PATH of a simulator's socket, a PCI address such as 0000:3b:00.0, or `model` for the golden model.
    #[arg(long)]
    card: String,
    /// Where to listen. Created with mode 0660.
    #[arg(long, default_value = "/run/phub/phubd.sock")]
    socket: PathBuf,
    /// What to log, as in RUST_LOG: error, warn, info, debug, trace, or `phubd=debug,phub_driver=trace`.
    #[arg(long, default_value = "info")]
    log: String,
    /// Let workers join only tenants that were created with `phubctl tenant create`.
    #[arg(long)]
    no_auto_create: bool,
    /// log2 of the slots of a tenant whose creator does not say.
    #[arg(long, default_value_t = 8)]
    slots_log2: u8,
    /// Longest arena a worker may ask for, in MiB.
    #[arg(long, default_value_t = 4096)]
    arena_max_mib: u64,
    /// All arenas together, in MiB.
    #[arg(long, default_value_t = 65536)]
    arena_total_mib: u64,
    /// Take huge pages for arenas; only for workers that are trusted.
    #[arg(long)]
    huge_pages: bool,
    /// End when the process that started this one ends.
    #[arg(long)]
    die_with_parent: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_new(&args.log).context("--log")?)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    if args.die_with_parent {
        let parent = rustix::process::getppid();
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        // It may have ended before we asked.
        anyhow::ensure!(
            rustix::process::getppid() == parent,
            "the parent process has ended"
        );
    }
    // Before there is anything to clean up.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let mut config = Config::new(Card::Address(args.card), args.socket);
    config.auto_create = !args.no_auto_create;
    config.slots_log2 = args.slots_log2;
    config.arena_max = args.arena_max_mib << 20;
    config.arena_total = args.arena_total_mib << 20;
    config.huge_pages = args.huge_pages;
    let daemon = Daemon::start(config)?;
    let stopper = daemon.stopper();
    std::thread::spawn(move || signals.forever().for_each(|_| stopper.stop()));
    println!("ready");
    std::io::stdout().flush()?;
    Ok(daemon.wait()?)
}
