// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Child processes that do not outlive us.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a child may take to end by itself once asked to.
const GRACE: Duration = Duration::from_secs(3);
/// Lines of a child's log that an error shows.
const LOG_LINES: usize = 15;

/// The line by which `phub-sim` and `phubd` say that they can be used.
const READY: &str = "ready";

/// A program of ours: beside this one, or on the path.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where phubctl lies")?;
    let beside = own
        .parent()
        .map(|dir| dir.join(name))
        .filter(|path| path.is_file());
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .map(|dir| dir.join(name))
            .find(|path| path.is_file())
    };
    beside.or_else(on_path).with_context(|| {
        format!("{name} lies neither beside phubctl nor on the PATH; build it with `make build`")
    })
}

/// A running child; dropping it ends it.
pub(crate) struct Managed {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Managed {
    /// Starts `command`, its standard error going to `log`.
    ///
    /// It gets a process group of its own, so that Ctrl-C reaches only us and we end it in order.
    pub(crate) fn start(name: &'static str, command: &mut Command, log: PathBuf) -> Result<Self> {
        let stderr =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            // A plain error needs no backtrace; one of a panic still comes.
            .env("RUST_LIB_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, child, log })
    }

    /// Waits until the child says that it can be used.
    pub(crate) fn wait_ready(&mut self, timeout: Duration) -> Result<()> {
        let stdout = self.take_stdout()?;
        let (tell, told) = mpsc::channel();
        // Reads to the end even after `ready`, lest the child block on a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.trim() == READY {
                    let _ = tell.send(());
                }
            }
        });
        match told.recv_timeout(timeout) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                bail!(
                    "{} did not get ready within {} s{}",
                    self.name,
                    timeout.as_secs(),
                    self.log_tail()
                )
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("{} ended at once{}", self.name, self.log_tail())
            }
        }
    }

    /// The child's standard output, once.
    pub(crate) fn take_stdout(&mut self) -> Result<ChildStdout> {
        self.child
            .stdout
            .take()
            .context("the output is read already")
    }

    /// Fails if the child has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}){}", self.name, self.log_tail()),
        }
    }

    /// The last lines the child logged, ready to be put after a message.
    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// Asks the child to end, insists after a while, and waits for it.
    pub(crate) fn stop(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        Ok(self.child.wait()?)
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!(name = self.name, %error, "a child process could not be ended");
        }
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let from = lines.len().saturating_sub(LOG_LINES);
    format!("; its last words:\n  {}", lines[from..].join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (tempfile::TempDir, Managed) {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        let child =
            Managed::start("sh", command.args(["-c", script]), dir.path().join("log")).unwrap();
        (dir, child)
    }

    #[test]
    fn ready_line_is_awaited() {
        let (_dir, mut child) = shell("echo starting; echo ready; sleep 60");
        child.wait_ready(Duration::from_secs(5)).unwrap();
        child.check_alive().unwrap();
        child.stop().unwrap();
        assert!(child.check_alive().is_err());
    }

    #[test]
    fn early_end_shows_the_log() {
        let (_dir, mut child) = shell("echo no card >&2; exit 3");
        let error = child
            .wait_ready(Duration::from_secs(5))
            .unwrap_err()
            .to_string();
        assert!(error.contains("no card"), "{error}");
    }

    #[test]
    fn silence_ends_in_an_error() {
        let (_dir, mut child) = shell("sleep 60");
        assert!(child.wait_ready(Duration::from_millis(100)).is_err());
    }
}
