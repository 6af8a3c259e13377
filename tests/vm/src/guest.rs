// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The machine: file systems, modules, cards, processes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use phub_driver::{Found, PciAddress, Sysfs};
use rustix::mount::{MountFlags, mount as mount_at};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

/// No step takes longer, even emulated.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Within this time everybody must know that something is gone.
pub(crate) const NOTICE: Duration = Duration::from_secs(5);

/// In the order in which they need each other.
const MODULES: [&str; 6] = [
    "irqbypass",
    "vfio",
    "vfio_virqfd",
    "vfio_iommu_type1",
    "vfio-pci-core",
    "vfio-pci",
];

pub(crate) fn mount() -> Result<()> {
    for (kind, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
    ] {
        fs::create_dir_all(at)?;
        mount_at(kind, at, kind, MountFlags::empty(), None).with_context(|| at.to_owned())?;
    }
    Ok(())
}

pub(crate) fn power_off() {
    if let Err(error) = rustix::system::reboot(rustix::system::RebootCommand::PowerOff) {
        println!("GUEST cannot switch itself off: {error}");
    }
}

/// Loads VFIO, once.
pub(crate) fn load_vfio() -> Result<()> {
    for module in MODULES {
        let file =
            File::open(format!("/modules/{module}.ko")).with_context(|| module.to_owned())?;
        match rustix::system::finit_module(&file, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => bail!("module {module}: {error}"),
        }
    }
    Ok(())
}

/// The cards of the machine.
pub(crate) fn cards() -> Result<Vec<Found>> {
    let cards = Sysfs::default().cards()?;
    ensure!(!cards.is_empty(), "no card on the bus");
    Ok(cards)
}

/// The first card, bound to vfio-pci.
pub(crate) fn card() -> Result<PciAddress> {
    load_vfio()?;
    let address = cards()?[0].address;
    bind(address)?;
    Ok(address)
}

pub(crate) fn bind(address: PciAddress) -> Result<()> {
    for step in Sysfs::default().bind_steps(address)? {
        step.run().with_context(|| step.to_string())?;
    }
    Ok(())
}

/// IOMMU group of a card.
pub(crate) fn group(address: PciAddress) -> Result<u32> {
    Sysfs::default()
        .find(address)?
        .and_then(|found| found.iommu_group)
        .context("no IOMMU group")
}

/// Ends what a scenario has left, so that the next finds the card free.
pub(crate) fn end_children() {
    let me = rustix::process::getpid();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse().ok())
            .and_then(Pid::from_raw);
        // Kernel threads have no command line, and no signal reaches them.
        let is_program = fs::read(entry.path().join("cmdline")).is_ok_and(|line| !line.is_empty());
        if let Some(pid) = pid
            && pid != me
            && is_program
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let start = Instant::now();
    while start.elapsed() < PATIENCE
        && !matches!(wait(WaitOptions::NOHANG), Err(rustix::io::Errno::CHILD))
    {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a program printed and how it ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Result<Ended> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Ok(Ended {
        code: output.status.code(),
        text,
    })
}

pub(crate) fn phubctl(arguments: &[&str]) -> Command {
    let mut command = Command::new("/bin/phubctl");
    command.args(arguments);
    command
}

/// A program whose lines are waited for. Dropping it kills it.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: Receiver<String>,
    name: String,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let name = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| name.clone())?;
        let (sender, lines) = channel();
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|s| Box::new(s) as _),
            child.stderr.take().map(|s| Box::new(s) as _),
        ];
        for stream in streams.into_iter().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self { child, lines, name })
    }

    /// The next line that contains `part`.
    pub(crate) fn line(&self, part: &str, patience: Duration) -> Result<String> {
        let deadline = Instant::now() + patience;
        let mut seen = Vec::new();
        loop {
            match self
                .lines
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) if line.contains(part) => return Ok(line),
                Ok(line) => seen.push(line),
                Err(why) => {
                    let end = match why {
                        RecvTimeoutError::Timeout => "within the time",
                        RecvTimeoutError::Disconnected => "before it ended",
                    };
                    seen.drain(..seen.len().saturating_sub(5));
                    bail!("{}: no `{part}` {end}; last: {seen:?}", self.name);
                }
            }
        }
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// A process of this program in another role, as an ordinary user if `uid` is not 0.
pub(crate) fn role(uid: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("/init");
    command.args(arguments).uid(uid).gid(uid);
    command
}

/// A daemon that owns `card`, ready, on `socket`.
pub(crate) fn phubd(card: PciAddress, socket: &str) -> Result<Process> {
    let daemon = Process::start(Command::new("/bin/phubd").args([
        "--card",
        &card.to_string(),
        "--socket",
        socket,
    ]))?;
    daemon.line("ready", PATIENCE)?;
    Ok(daemon)
}
