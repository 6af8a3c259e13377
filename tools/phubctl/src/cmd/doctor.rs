// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phubctl doctor`: what this machine has and lacks, each lack with its remedy.

use anyhow::Result;
use clap::{Args, ValueEnum};
use phub_abi::regs::Magic;
use phub_driver::{CardAddress, Error, PciAddress, Sysfs, VfioOpenError, connect};
use phub_pci::RegisterIoExt;
use rustix::fs::{Access, MemfdFlags, access, memfd_create};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Check this machine: simulator toolchain, shared memory, IOMMU, VFIO, limits.
#[derive(Args)]
pub(crate) struct Doctor {
    /// What the machine is meant for; a lack counts as a failure only if this needs it.
    #[arg(long = "for", value_enum, default_value_t = Purpose::Sim)]
    purpose: Purpose,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Root of the file system to look at, for tests.
    #[arg(long, hide = true, default_value = "/")]
    root: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// Run the simulated card.
    Sim,
    /// Run a real card.
    Card,
    /// Change and test phub.
    Develop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

#[derive(Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
}

struct Checks {
    root: PathBuf,
    purpose: Purpose,
    findings: Vec<Finding>,
}

/// Locked memory a real card wants at least: the arenas of a few workers.
const MEMLOCK_MIN: u64 = 1 << 30;

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut checks = Checks {
            root: self.root,
            purpose: self.purpose,
            findings: Vec::new(),
        };
        checks.shared_memory();
        checks.huge_pages();
        checks.toolchain();
        checks.iommu();
        checks.vfio();
        checks.memlock();
        let failed = checks.findings.iter().any(|f| f.verdict == Verdict::Fail);
        if self.json {
            outln!(
                "{}",
                serde_json::json!({ "ok": !failed, "checks": checks.findings })
            );
        } else {
            for Finding {
                check,
                verdict,
                found,
                remedy,
            } in &checks.findings
            {
                let mark = match verdict {
                    Verdict::Ok => "ok  ",
                    Verdict::Warn => "warn",
                    Verdict::Fail => "FAIL",
                };
                outln!("{mark}  {check:<18} {found}");
                if let Some(remedy) = remedy {
                    outln!("      {:<18} -> {remedy}", "");
                }
            }
        }
        Ok(if failed {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

impl Checks {
    /// `needed_for`: purposes for which a lack is a failure; for others it is a warning.
    fn report(
        &mut self,
        check: &'static str,
        outcome: Result<String, String>,
        needed_for: &[Purpose],
        remedy: &'static str,
    ) {
        let finding = match outcome {
            Ok(found) => Finding {
                check,
                verdict: Verdict::Ok,
                found,
                remedy: None,
            },
            Err(found) => {
                let needed = needed_for.contains(&self.purpose);
                let verdict = if needed { Verdict::Fail } else { Verdict::Warn };
                Finding {
                    check,
                    verdict,
                    found,
                    remedy: Some(remedy),
                }
            }
        };
        self.findings.push(finding);
    }

    fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    fn shared_memory(&mut self) {
        let outcome = memfd_create(
            "phub-doctor",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map(|_| "memfd works".into())
        .map_err(|e| format!("memfd_create: {e}"));
        let all = [Purpose::Sim, Purpose::Card, Purpose::Develop];
        self.report(
            "shared memory",
            outcome,
            &all,
            "allow memfd_create (Linux 3.17; a seccomp filter may forbid it)",
        );
    }

    fn huge_pages(&mut self) {
        let meminfo = fs::read_to_string(self.path("/proc/meminfo")).unwrap_or_default();
        let free = meminfo
            .lines()
            .find_map(|line| line.strip_prefix("HugePages_Free:"))
            .and_then(|rest| rest.trim().parse::<u64>().ok())
            .unwrap_or(0);
        let outcome = if free > 0 {
            Ok(format!("{free} free"))
        } else {
            Err("none free; arenas use 4 KiB pages".into())
        };
        self.report(
            "huge pages",
            outcome,
            &[],
            "sysctl vm.nr_hugepages=256 (2 MiB each; fewer IOMMU entries, fewer TLB misses)",
        );
    }

    fn toolchain(&mut self) {
        for (tool, remedy) in [
            ("cargo", "install Rust (rustup), or use built binaries"),
            ("g++", "apt-get install g++"),
            ("python3", "apt-get install python3 python3-venv"),
            ("make", "apt-get install make"),
        ] {
            let version = Command::new(tool)
                .arg("--version")
                .stderr(Stdio::null())
                .output();
            let outcome = match version {
                Ok(output) if output.status.success() => {
                    let text = String::from_utf8_lossy(&output.stdout);
                    Ok(text.lines().next().unwrap_or("present").to_owned())
                }
                _ => Err("not found".into()),
            };
            self.report(tool, outcome, &[Purpose::Develop], remedy);
        }
        let sim = crate::process::program("phub-sim");
        let outcome = sim.map(show).map_err(|_| "phub-sim not found".into());
        self.report(
            "simulated card",
            outcome,
            &[Purpose::Sim],
            "make build, or put phub-sim on the PATH",
        );
    }

    fn iommu(&mut self) {
        let groups = entries(&self.path("/sys/kernel/iommu_groups"));
        let outcome = if groups > 0 {
            Ok(format!("{groups} groups"))
        } else {
            Err("no IOMMU groups".into())
        };
        self.report(
            "IOMMU",
            outcome,
            &[Purpose::Card],
            "enable VT-d / AMD-Vi in the firmware and boot with intel_iommu=on (or amd_iommu=on)",
        );
    }

    fn vfio(&mut self) {
        let node = self.path("/dev/vfio/vfio");
        let outcome = match access(&node, Access::READ_OK | Access::WRITE_OK) {
            Ok(()) => Ok(show(node)),
            Err(rustix::io::Errno::NOENT) => Err(format!("{} is missing", node.display())),
            Err(error) => Err(format!("{}: {error}", node.display())),
        };
        self.report(
            "VFIO",
            outcome,
            &[Purpose::Card],
            "modprobe vfio-pci; run phubd as root or give its user the group's node under /dev/vfio",
        );
        self.cards();
    }

    /// Each card of the host: who has it, what else is in its group, and whether this user may open it.
    fn cards(&mut self) {
        let sysfs = Sysfs::at(self.path("/sys"));
        let cards = sysfs.cards().unwrap_or_default();
        if cards.is_empty() {
            self.report(
                "card",
                Err("no phub card on the PCI bus".into()),
                &[Purpose::Card],
                "check lspci -d 1234:5048; flash the card and rescan the bus",
            );
        }
        for card in cards {
            let address = card.address;
            let (found, remedy) = match (card.driver.as_deref(), card.iommu_group) {
                (_, None) => (
                    Err(format!("{address} is behind no IOMMU")),
                    "enable VT-d / AMD-Vi in the firmware and boot with intel_iommu=on (or amd_iommu=on)",
                ),
                (Some("vfio-pci"), Some(group)) => self.node(&sysfs, address, group),
                (driver, _) => (
                    Err(format!(
                        "{address} is bound to {}",
                        driver.unwrap_or("no driver")
                    )),
                    "phubctl bind ADDRESS, as root",
                ),
            };
            self.report("card", found, &[Purpose::Card], remedy);
        }
    }

    fn node(
        &self,
        sysfs: &Sysfs,
        address: PciAddress,
        group: u32,
    ) -> (Result<String, String>, &'static str) {
        let others: Vec<_> = sysfs
            .group(group)
            .unwrap_or_default()
            .into_iter()
            .filter(|other| {
                other.address != address && other.driver.as_deref().is_some_and(|d| d != "vfio-pci")
            })
            .map(|other| format!("{} ({})", other.address, other.driver.unwrap_or_default()))
            .collect();
        if !others.is_empty() {
            return (
                Err(format!(
                    "{address} shares its IOMMU group with {}",
                    others.join(", ")
                )),
                "bind these to vfio-pci too, or to no driver",
            );
        }
        let node = self.path(&format!("/dev/vfio/{group}"));
        match access(&node, Access::READ_OK | Access::WRITE_OK) {
            Ok(()) => self.answers(address, &node),
            Err(error) => (
                Err(format!("{address}: {}: {error}", node.display())),
                "run phubd as root, or as root: chown its user /dev/vfio/GROUP",
            ),
        }
    }

    /// Opens a card that may be opened, and looks at its first register.
    fn answers(&self, address: PciAddress, node: &Path) -> (Result<String, String>, &'static str) {
        let at = format!("{address}, {}", node.display());
        if self.root != Path::new("/") {
            return (Ok(at), "");
        }
        let magic = connect(&CardAddress::Vfio(address)).and_then(|pci| Ok(pci.get::<Magic>()?));
        match magic.map(|magic| magic.value()) {
            Ok(phub_abi::MAGIC) => (Ok(at), ""),
            Ok(u32::MAX) => (
                Err(format!("{address}: registers read all ones")),
                "echo 1 > /sys/bus/pci/devices/ADDRESS/remove; echo 1 > /sys/bus/pci/rescan",
            ),
            Ok(other) => (
                Err(format!("{address}: no phub register file ({other:#010x})")),
                "load a bitstream of this version",
            ),
            // As it should be, if that is phubd.
            Err(Error::Vfio(VfioOpenError::Busy { .. })) => {
                (Ok(format!("{at}, in use by another process")), "")
            }
            Err(error) => (Err(error.to_string()), "see docs/vfio.md"),
        }
    }

    fn memlock(&mut self) {
        let limit = getrlimit(Resource::Memlock).current;
        let outcome = match limit {
            None => Ok("unlimited".into()),
            Some(_) if rustix::process::geteuid().is_root() => Ok("no limit for root".into()),
            Some(bytes) if bytes >= MEMLOCK_MIN => Ok(format!("{} MiB", bytes >> 20)),
            Some(bytes) => Err(format!("{} KiB: VFIO pins every arena", bytes >> 10)),
        };
        self.report(
            "locked memory",
            outcome,
            &[Purpose::Card],
            "ulimit -l unlimited, or LimitMEMLOCK=infinity in phubd's unit",
        );
    }
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

fn show(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}
