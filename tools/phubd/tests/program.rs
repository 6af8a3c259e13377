// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The daemon as an operator runs it: it starts, it ends when told to, and a second one does not take the first one's place.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use phub::{Error, Hub, JoinOptions, Reduce, Worker};
use rustix::process::{Pid, Signal, kill_process};

/// Within this time everybody must have noticed.
const NOTICE: Duration = Duration::from_secs(5);

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("hub")
    }

    fn command(&self, card: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_phubd"));
        command
            .args(["--card", card, "--socket"])
            .arg(self.socket())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A daemon that is ready.
    fn start(&self) -> Running {
        let mut child = self.command("model").spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Running(child)
    }

    fn join(&self, rank: u32, world: u32) -> Worker {
        Hub::connect(&format!("unix:{}", self.socket().display()))
            .unwrap()
            .join("job", rank, world, 7, JoinOptions::default())
            .unwrap()
    }
}

/// Dropping it kills it.
struct Running(Child);

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn ends(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < NOTICE, "still running");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends it and gives what it has said of why.
fn failure(mut command: Command) -> String {
    let mut running = Running(command.spawn().unwrap());
    assert_eq!(running.ends().code(), Some(1));
    let mut text = String::new();
    let mut stderr = running.0.stderr.take().unwrap();
    stderr.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn signals_shut_it_down_and_its_workers_are_told() {
    for signal in [Signal::TERM, Signal::INT] {
        let place = Place::new();
        let mut daemon = place.start();
        let (first, _second) = (place.join(0, 2), place.join(1, 2));
        let tensor = first.stage("t", &[1.0]).unwrap();
        let waits = first.push_pull_async(tensor, Reduce::Sum).unwrap();
        daemon.signal(signal);
        assert!(daemon.ends().success());
        let error = waits.wait().unwrap_err();
        assert!(matches!(error, Error::HubGone { .. }), "{error}");
        assert!(!place.socket().exists(), "it removes its socket");
    }
}

#[test]
fn a_second_one_leaves_the_first_alone() {
    let place = Place::new();
    let _first = place.start();
    let error = failure(place.command("model"));
    assert!(error.contains("another hub"), "{error}");
    place.join(0, 1).barrier().unwrap();
}

#[test]
fn one_that_was_killed_is_replaced() {
    let place = Place::new();
    let mut first = place.start();
    first.signal(Signal::KILL);
    assert_eq!(first.ends().signal(), Some(9));
    assert!(place.socket().exists(), "nobody was left to remove it");
    let _second = place.start();
    place.join(0, 1).barrier().unwrap();
}

#[test]
fn it_ends_with_its_parent_if_told_to() {
    let place = Place::new();
    let script = r#""$@" --die-with-parent & wait"#;
    let phubd = place.command("model");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script, "sh"])
        .arg(phubd.get_program())
        .args(phubd.get_args())
        .stdout(Stdio::piped());
    let mut shell = Running(shell.spawn().unwrap());
    let mut lines = BufReader::new(shell.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    shell.signal(Signal::KILL);
    shell.ends();
    // Removing its socket is the last thing it does.
    let start = Instant::now();
    while place.socket().exists() {
        assert!(start.elapsed() < NOTICE, "it outlives its parent");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_cannot_start_says_why() {
    let place = Place::new();
    let error = failure(place.command("vfio-user:/does/not/exist"));
    assert!(error.contains("/does/not/exist"), "{error}");
    let error = failure(place.command("nonsense"));
    assert!(error.contains("nonsense"), "{error}");
    assert!(!place.socket().exists());
}
