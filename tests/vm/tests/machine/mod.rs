// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A virtual machine and the simulated cards on its PCI bus.

mod initrd;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// No scenario takes longer, even emulated on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// What the machine has.
pub(crate) struct Setup {
    pub(crate) cards: usize,
    pub(crate) iommu: bool,
    /// The first card is on a bus with another device, and so in one IOMMU group with it.
    pub(crate) shared: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            cards: 1,
            iommu: true,
            shared: false,
        }
    }
}

/// Dropping it ends it.
pub(crate) struct Machine {
    qemu: Child,
    cards: Vec<Child>,
    lines: Receiver<String>,
    seen: Vec<String>,
    dir: TempDir,
}

impl Machine {
    /// Switches a machine on, whose first process runs `scenarios`.
    pub(crate) fn boot(setup: Setup, scenarios: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let cards = (0..setup.cards).map(|n| card(dir.path(), n)).collect();
        let packages = root().join(".cache/vm");
        let initrd = dir.path().join("initrd");
        fs::write(&initrd, initrd::of(&packages, &programs())).unwrap();
        let mut qemu = qemu(&packages)
            .args([
                "-accel",
                &std::env::var("PHUB_VM_ACCEL").unwrap_or("tcg".into()),
            ])
            .args(["-cpu", "max", "-smp", "2", "-m", "3G"])
            .args(["-machine", "q35,kernel-irqchip=split,memory-backend=ram"])
            // The card is another process: it maps the guest's memory by its descriptor.
            .args(["-object", "memory-backend-memfd,id=ram,size=3G,share=on"])
            .args(
                setup
                    .iommu
                    .then_some(["-device", "intel-iommu,caching-mode=on,intremap=on"])
                    .iter()
                    .flatten(),
            )
            .args(
                SHARED
                    .iter()
                    .take(if setup.shared { SHARED.len() } else { 0 }),
            )
            .args((0..setup.cards).flat_map(|n| {
                let bus = if setup.shared && n == 0 {
                    "shared"
                } else {
                    "pcie.0"
                };
                ["-device".to_owned(), device(dir.path(), n, bus)]
            }))
            .arg("-kernel")
            .arg(kernel(&packages))
            .arg("-initrd")
            .arg(&initrd)
            .args([
                "-append",
                &format!(
                    "console=ttyS0 loglevel=4 panic=-1 intel_iommu=on rdinit=/init phub.run={}",
                    scenarios.join(",")
                ),
            ])
            .args([
                "-nographic",
                "-nodefaults",
                "-serial",
                "stdio",
                "-no-reboot",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(dir.path().join("qemu.log")).unwrap())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(qemu.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            qemu,
            cards,
            lines,
            seen: Vec::new(),
            dir,
        }
    }

    /// Waits for a line with these words.
    pub(crate) fn line(&mut self, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    // The firmware ends without a line end.
                    if line.contains(words) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.fail(&format!("no `{words}` in {PATIENCE:?}"))
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.fail(&format!("it ended without `{words}`"))
                }
            }
        }
    }

    /// Waits for the end of a scenario, which must be a good one.
    pub(crate) fn passes(&mut self, scenario: &str) {
        let begins = format!("SCENARIO {scenario} begins");
        if !self.seen.iter().any(|line| line.contains(&begins)) {
            self.line(&begins);
        }
        let end = self.line(&format!("SCENARIO {scenario} "));
        println!("{end}");
        if !end.contains(&format!("SCENARIO {scenario} ok")) {
            self.fail(&end);
        }
    }

    /// Waits until the machine has switched itself off.
    pub(crate) fn ends(&mut self) {
        self.line("GUEST off");
        let deadline = Instant::now() + PATIENCE;
        while self.qemu.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the machine stays on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Pulls the cards out of their slots.
    pub(crate) fn pull_cards(&self) {
        for card in &self.cards {
            kill_process(Pid::from_child(card), Signal::USR1).unwrap();
        }
    }

    /// What everybody has said, and the end of the test.
    fn fail(&self, why: &str) -> ! {
        for line in &self.seen {
            println!("guest: {line}");
        }
        for entry in fs::read_dir(self.dir.path()).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.ends_with(".log") {
                println!("{name}: {}", fs::read_to_string(entry.path()).unwrap());
            }
        }
        panic!("{why}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for child in self.cards.iter_mut().chain([&mut self.qemu]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where `make test-vm` has put the static programs.
fn programs() -> PathBuf {
    std::env::var_os("PHUB_VM_PROGRAMS")
        .expect("run `make test-vm`")
        .into()
}

fn socket(dir: &Path, n: usize) -> PathBuf {
    dir.join(format!("card{n}"))
}

/// A Verilated card on a socket.
fn card(dir: &Path, n: usize) -> Child {
    let simulator = std::env::var_os("PHUB_VM_SIM").expect("run `make test-vm`");
    let log = fs::File::create(dir.join(format!("card{n}.log"))).unwrap();
    let mut card = Command::new(simulator)
        .args(["serve", "--die-with-parent", "--socket"])
        .arg(socket(dir, n))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(card.stdout.take().unwrap()).lines();
    let ready = lines.any(|line| line.is_ok_and(|line| line == "ready"));
    assert!(ready, "the card ended");
    // It goes on printing to somebody.
    std::thread::spawn(move || lines.for_each(drop));
    card
}

/// A bus whose devices the IOMMU cannot tell apart, and a device on it that has a driver.
const SHARED: [&str; 4] = [
    "-device",
    "pcie-pci-bridge,id=shared",
    "-device",
    "nvme,bus=shared,serial=1",
];

fn device(dir: &Path, n: usize, bus: &str) -> String {
    format!(
        r#"{{"driver":"vfio-user-pci","bus":"{bus}","rombar":0,"x-msg-timeout":60000,"socket":{{"type":"unix","path":"{}"}}}}"#,
        socket(dir, n).display()
    )
}

/// QEMU as it was unpacked, with its own loader and libraries.
fn qemu(packages: &Path) -> Command {
    let usr = packages.join("qemu/usr");
    let libraries = usr.join("lib/x86_64-linux-gnu");
    let mut command = Command::new(usr.join("lib64/ld-linux-x86-64.so.2"));
    command
        .arg("--library-path")
        .arg(&libraries)
        .arg(usr.join("bin/qemu-system-x86_64"))
        .arg("-L")
        .arg(usr.join("share/seabios"))
        .arg("-L")
        .arg(usr.join("share/qemu"))
        .env("QEMU_MODULE_DIR", libraries.join("qemu"));
    command
}

fn kernel(packages: &Path) -> PathBuf {
    fs::read_dir(packages.join("kernel/boot"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
        })
        .expect("a kernel")
}
