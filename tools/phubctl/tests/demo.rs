// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The demo as a user runs it: real processes, the RTL or the golden model as card, and nothing left behind.
//!
//! `phub-sim` and `phubd` must lie beside `phubctl`: `cargo build --workspace --bins` puts them there.
#![forbid(unsafe_code)]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A temporary directory for one demo; whatever the demo leaves is found in it, or names it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let beside = Path::new(env!("CARGO_BIN_EXE_phubctl")).with_file_name("phub-sim");
        assert!(
            beside.is_file(),
            "run `cargo build --workspace --bins` first"
        );
        Self(tempfile::tempdir().unwrap())
    }

    fn demo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_phubctl"));
        command
            .arg("demo")
            .args(arguments)
            .env("TMPDIR", self.0.path())
            .env_remove("RUST_LOG");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.demo(arguments).output().unwrap()
    }

    /// Processes whose command line names this place.
    fn processes(&self) -> Vec<String> {
        let name = self.0.path().to_str().unwrap();
        std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok())
            .filter(|line| line.contains(name))
            .map(|line| line.replace('\0', " "))
            .collect()
    }

    fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.0.path())
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .collect()
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
        assert_eq!(self.files(), Vec::<PathBuf>::new());
    }
}

fn summary(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim())
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// Waits until the training has begun.
fn wait_for_steps(child: &mut Child) {
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            if line.starts_with("step") {
                let _ = tell.send(());
            }
        }
    });
    told.recv_timeout(Duration::from_secs(60))
        .expect("the training did not begin");
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn trains_on_the_rtl_with_four_workers() {
    let place = Place::new();
    let output = place.run(&["--workers", "4", "--steps", "30", "--json"]);
    let summary = summary(&output);
    assert_eq!(summary["bit_identical"], true, "{summary}");
    assert_eq!(summary["matches_reference"], true, "{summary}");
    assert_eq!(
        (&summary["steps"], &summary["workers"]),
        (&30.into(), &4.into())
    );
    assert!(
        summary["cycles_per_beat"]
            .as_f64()
            .is_some_and(|c| (1.0..100.0).contains(&c)),
        "{summary}"
    );
    assert!(
        summary["gradient_mb_per_s"]
            .as_f64()
            .is_some_and(|m| m > 0.0),
        "{summary}"
    );
    // 9610 weights of 4 bytes, 4 workers, 30 steps.
    assert_eq!(
        summary["counters"]["bytes_in"],
        9610 * 4 * 4 * 30,
        "{summary}"
    );
    place.assert_nothing_left();
}

#[test]
fn learns_twice_in_a_row() {
    let place = Place::new();
    for workers in ["1", "2"] {
        let output = place.run(&[
            "--card",
            "model",
            "--workers",
            workers,
            "--steps",
            "200",
            "--json",
        ]);
        let summary = summary(&output);
        assert!(output.status.success(), "{summary}");
        assert!(
            summary["accuracy"].as_f64().is_some_and(|a| a >= 0.95),
            "{summary}"
        );
        assert_eq!(
            summary["worst_rounding"], 0.0,
            "one or two workers are exact: {summary}"
        );
        place.assert_nothing_left();
    }
}

#[test]
fn too_few_steps_fail_and_say_why() {
    let place = Place::new();
    let output = place.run(&["--card", "model", "--workers", "1", "--steps", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("FAULT: test accuracy"),
        "{output:?}"
    );
    place.assert_nothing_left();
}

#[test]
fn ctrl_c_leaves_nothing() {
    let place = Place::new();
    let mut command = place.demo(&["--card", "model", "--steps", "1000000"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_steps(&mut child);
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    place.assert_nothing_left();
}

#[test]
fn kill_leaves_no_process() {
    let place = Place::new();
    let mut command = place.demo(&["--card", "model", "--steps", "1000000"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_steps(&mut child);
    assert!(!place.processes().is_empty());
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while !place.processes().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", place.processes());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_card_that_is_not_there_is_an_error() {
    let place = Place::new();
    let output = place.run(&["--card", "vfio-user:/nonexistent/card.sock"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("/nonexistent/card.sock"), "{text}");
    place.assert_nothing_left();
}

#[test]
fn wrong_usage_is_code_two() {
    for arguments in [
        &["--workers", "0"][..],
        &["--workers", "65"],
        &["--steps", "0"],
        &["--wrong"],
    ] {
        let place = Place::new();
        assert_eq!(place.run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_stops_is_no_error() {
    let line = format!("{} doctor | true", env!("CARGO_BIN_EXE_phubctl"));
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", &line])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stderr, b"");
}
