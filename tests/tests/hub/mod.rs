// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A hub with its card, workers as threads, and other roles as processes.
//!
//! A test is written once, as a function of a [`CardKind`], and [`on_every_card!`] runs it on each.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use phub::admin::Admin;
use phub::{Hub, JoinOptions, Worker};
use phub_tests::running::{self, CardKind};
use phubd::{Card, Config, Daemon};
use tempfile::TempDir;

/// The token of a test's tenants, unless it is about tokens.
pub(crate) const TOKEN: u64 = 7;
/// Within this time everybody must know that somebody is gone.
pub(crate) const NOTICE: Duration = Duration::from_secs(5);
/// No step of a test takes longer, on any card.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs each test, a function of a [`CardKind`], on the golden model and on the Verilated card.
#[macro_export]
macro_rules! on_every_card {
    ($($test:ident),* $(,)?) => {
        mod golden {
            $(#[test] fn $test() { super::$test(phub_tests::running::CardKind::Golden); })*
        }
        mod verilated {
            $(#[test] fn $test() { super::$test(phub_tests::running::CardKind::Verilated); })*
        }
    };
}

/// A hub in this process.
pub(crate) struct Rig {
    /// Dropped first.
    pub daemon: Option<Daemon>,
    pub dir: TempDir,
}

impl Rig {
    pub(crate) fn start(card: CardKind) -> Self {
        Self::with(card, |_| {})
    }

    pub(crate) fn with(card: CardKind, change: impl FnOnce(&mut Config)) -> Self {
        let dir = TempDir::new().unwrap();
        let card = running::card(card).unwrap();
        let mut config = Config::new(Card::Function(card), dir.path().join("hub"));
        change(&mut config);
        Self {
            daemon: Some(Daemon::start(config).unwrap()),
            dir,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("hub")
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::connect(&self.socket(), Duration::from_secs(5)).unwrap()
    }

    pub(crate) fn hub(&self) -> Hub {
        Hub::connect(&self.address()).unwrap()
    }

    pub(crate) fn join(&self, tenant: &str, rank: u32, world: u32) -> Worker {
        self.join_with(tenant, rank, world, JoinOptions::default())
    }

    pub(crate) fn join_with(
        &self,
        tenant: &str,
        rank: u32,
        world: u32,
        options: JoinOptions,
    ) -> Worker {
        self.hub()
            .join(tenant, rank, world, TOKEN, options)
            .unwrap()
    }

    /// Runs `body` on each of `world` workers, each a thread, and gives what they return, by rank.
    pub(crate) fn run<T: Send>(
        &self,
        tenant: &str,
        world: u32,
        body: impl Fn(Worker) -> T + Sync,
    ) -> Vec<T> {
        self.run_with(tenant, world, &JoinOptions::default(), body)
    }

    pub(crate) fn run_with<T: Send>(
        &self,
        tenant: &str,
        world: u32,
        options: &JoinOptions,
        body: impl Fn(Worker) -> T + Sync,
    ) -> Vec<T> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..world)
                .map(|rank| {
                    let body = &body;
                    let worker = self.join_with(tenant, rank, world, options.clone());
                    scope.spawn(move || body(worker))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        })
    }
}

/// A process of `actor`. Dropping it kills it.
pub(crate) struct Process {
    pub child: Child,
    lines: Receiver<String>,
}

impl Process {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_actor"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    pub(crate) fn worker(
        address: &str,
        tenant: &str,
        rank: u32,
        world: u32,
        steps: u32,
        elements: usize,
    ) -> Self {
        let numbers = [rank, world, steps].map(|n| n.to_string());
        let elements = elements.to_string();
        Self::start(&[
            "worker",
            address,
            tenant,
            &numbers[0],
            &numbers[1],
            &numbers[2],
            &elements,
        ])
    }

    /// The next line that starts with `start`, within `patience`. Lines before it are passed over.
    pub(crate) fn line(&self, start: &str, patience: Duration) -> String {
        let deadline = Instant::now() + patience;
        let mut last = String::new();
        loop {
            match self
                .lines
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) if line.starts_with(start) => return line,
                Ok(line) => last = line,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("no `{start}` in {patience:?}, last was `{last}`")
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended without `{start}`, last was `{last}`")
                }
            }
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }

    /// Waits until it has ended in success.
    pub(crate) fn finish(mut self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("still running after {PATIENCE:?}");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A card and a hub, each a process.
pub(crate) struct Processes {
    /// Ended in this order.
    pub hub: Process,
    pub card: Process,
    pub dir: TempDir,
}

impl Processes {
    pub(crate) fn start(card: CardKind) -> Self {
        let dir = TempDir::new().unwrap();
        let card_socket = dir.path().join("card").display().to_string();
        let hub_socket = dir.path().join("hub").display().to_string();
        let card = Process::start(&["card", card.name(), &card_socket]);
        card.line("ready", PATIENCE);
        let hub = Process::start(&["hub", &format!("vfio-user:{card_socket}"), &hub_socket]);
        hub.line("ready", PATIENCE);
        Self { hub, card, dir }
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:{}", self.dir.path().join("hub").display())
    }

    pub(crate) fn worker(
        &self,
        tenant: &str,
        rank: u32,
        world: u32,
        steps: u32,
        elements: usize,
    ) -> Process {
        Process::worker(&self.address(), tenant, rank, world, steps, elements)
    }
}
