// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Command line of the parameter hub.
#![forbid(unsafe_code)]

/// `println!` for output that a pager or `head` may stop reading: an error instead of a panic.
macro_rules! outln {
    ($($text:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($text)*)))?
    };
}

mod cmd;
mod demo;
mod hub;
mod process;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use std::io::{self, IsTerminal};
use std::process::ExitCode;

/// Command line of the parameter hub.
///
/// Exit codes: 0 good, 1 failed, 2 wrong usage, 130 interrupted. RUST_LOG sets what is logged.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    Demo(cmd::demo::Demo),
    Info(cmd::info::Info),
    Tenant(cmd::tenant::Tenant),
    Stats(cmd::stats::Stats),
    Doctor(cmd::doctor::Doctor),
    Bind(cmd::bind::Bind),
    Unbind(cmd::bind::Unbind),
    Sim(cmd::sim::Sim),
    Replay(cmd::replay::Replay),
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    #[command(name = demo::worker::COMMAND, hide = true)]
    DemoWorker(demo::worker::Worker),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("phubctl: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Cmd) -> Result<ExitCode> {
    match command {
        Cmd::Demo(demo) => demo.run(),
        Cmd::Info(info) => info.run(),
        Cmd::Tenant(tenant) => tenant.run(),
        Cmd::Stats(stats) => stats.run(),
        Cmd::Replay(replay) => replay.run(),
        Cmd::Bind(bind) => bind.run(),
        Cmd::Unbind(unbind) => unbind.run(),
        Cmd::Doctor(doctor) => doctor.run(),
        Cmd::Sim(sim) => sim.run(),
        Cmd::DemoWorker(worker) => worker.run(),
        Cmd::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "phubctl", &mut io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Whoever reads our output has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
