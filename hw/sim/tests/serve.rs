// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phub-sim serve` as a process: what it says, how it ends, what it leaves behind.

mod rig;

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use phub_pci::{PciFunction, RegisterIoExt};
use phub_vfio_user::Client;
use rig::Rig;
use rustix::process::{Pid, Signal, kill_process};

/// A serving process; it dies with the test.
struct Served {
    child: Child,
    path: PathBuf,
    /// What it printed up to `ready`.
    said: Vec<String>,
    _dir: tempfile::TempDir,
}

fn command(path: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phub-sim"));
    command
        .args(["serve", "--die-with-parent", "--socket"])
        .arg(path)
        .args(arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Served {
    fn start(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("card.sock");
        let mut child = command(&path, arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        for line in lines.map_while(Result::ok) {
            said.push(line);
            if said.last().is_some_and(|l| l == "ready") {
                return Self {
                    child,
                    path,
                    said,
                    _dir: dir,
                };
            }
        }
        let mut error = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut error)
            .unwrap();
        panic!("no ready line: {said:?} {error} {:?}", child.wait());
    }

    fn client(&self) -> Client {
        Client::connect(&self.path, Client::TIMEOUT).unwrap()
    }

    fn end(&mut self, signal: Signal) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < Duration::from_secs(5), "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sums(served: &Served) {
    let client = served.client();
    let mut rig = Rig::new(&client, 2, 4, 8192);
    for round in 0..3 {
        for worker in 0..2 {
            rig.fill(worker, 8192, |i| i as f32 + worker as f32);
        }
        for completion in rig.round(8 * round, 8192) {
            assert_eq!((completion.status, completion.count), (0, 2));
        }
        for worker in 0..2 {
            assert!(
                rig.result(worker, 8192)
                    .iter()
                    .enumerate()
                    .all(|(i, v)| *v == 2.0 * i as f32 + 1.0)
            );
        }
    }
    // The interrupt of a completion follows it.
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut interrupts = 0;
    while interrupts < 6 && Instant::now() < deadline {
        interrupts += (1..=2).map(|w| rig::count(&rig.eventfds[w])).sum::<u64>();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(interrupts, 6);
}

#[test]
fn a_served_card_sums_for_one_client_after_the_other() {
    let served = Served::start(&["--seed", "5", "--backpressure", "0.2", "--reorder"]);
    let path = served.path.display();
    assert_eq!(
        served.said,
        [
            "seed 5".to_string(),
            format!("address vfio-user:{path}"),
            "ready".into()
        ]
    );
    sums(&served);
    sums(&served);
}

#[test]
fn a_served_model_sums_too() {
    sums(&Served::start(&["--model"]));
}

#[test]
fn every_ending_removes_the_socket() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut served = Served::start(&[]);
        let client = served.client();
        assert!(served.end(signal).success());
        assert!(!served.path.exists());
        assert!(client.bar_read(0).is_err());
    }
}

#[test]
fn a_killed_server_is_noticed_and_replaced() {
    let mut served = Served::start(&[]);
    let client = served.client();
    let start = Instant::now();
    served.end(Signal::KILL);
    assert!(matches!(
        client.bar_read(0),
        Err(phub_pci::PciError::Gone { .. })
    ));
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(served.path.exists(), "nobody could remove it");
    let mut next = command(&served.path, &["--model"]).spawn().unwrap();
    // Read to the end of what it says, and kept: it has nobody to say it to otherwise.
    let mut lines = BufReader::new(next.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    kill_process(Pid::from_child(&next), Signal::TERM).unwrap();
    assert!(next.wait().unwrap().success());
}

#[test]
fn a_socket_in_use_is_refused_with_a_reason() {
    let served = Served::start(&["--model"]);
    let second = command(&served.path, &["--model"]).output().unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use"));
    served.client();
}

#[test]
fn bad_arguments_are_refused() {
    for arguments in [
        &["--backpressure", "1"][..],
        &["--backpressure", "-1"],
        &["--trace-from", "3"],
        &["--model", "--seed", "1"],
        &["--read-latency", "x"],
    ] {
        let output = command(Path::new("/nowhere/s"), arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    let nowhere = command(Path::new("/nowhere/s"), &["--model"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("/nowhere/s"));
}

#[cfg(feature = "trace")]
#[test]
fn a_served_card_writes_waves() {
    let dir = tempfile::tempdir().unwrap();
    let waves = dir.path().join("waves.fst");
    let mut served = Served::start(&[
        "--trace",
        waves.to_str().unwrap(),
        "--trace-from",
        "50",
        "--trace-to",
        "5000",
    ]);
    sums(&served);
    served.end(Signal::TERM);
    assert!(std::fs::metadata(&waves).unwrap().len() > 1000);
}

#[test]
fn register_access_is_fast_enough_to_poll() {
    let served = Served::start(&[]);
    let client = served.client();
    let client: &dyn PciFunction = &client;
    let start = Instant::now();
    for _ in 0..200 {
        client.get::<phub_abi::regs::Magic>().unwrap();
    }
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?} for 200 reads",
        start.elapsed()
    );
}
