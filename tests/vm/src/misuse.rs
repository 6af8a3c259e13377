// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Whatever can be wrong with the machine is an error that says how to mend it.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use phub_abi::regs::Magic;
use phub_driver::{PciAddress, Sysfs, connect};
use phub_pci::RegisterIoExt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::guest::{PATIENCE, Process, card, cards, group, load_vfio, phubctl, phubd, role, run};

/// What opening the card says, which must not work.
fn refusal(uid: u32, address: PciAddress) -> Result<String> {
    let ended = run(&mut role(uid, &["open", &address.to_string(), "1048576"]))?;
    ensure!(ended.code == Some(1), "it opened: {}", ended.text);
    Ok(ended.text)
}

fn says(text: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(text.contains(part), "no `{part}` in: {text}");
    }
    Ok(())
}

fn doctor(parts: &[&str], code: i32) -> Result<()> {
    let ended = run(&mut phubctl(&["doctor", "--for", "card"]))?;
    says(&ended.text, parts)?;
    ensure!(
        ended.code == Some(code),
        "code {:?}: {}",
        ended.code,
        ended.text
    );
    Ok(())
}

fn driver(address: PciAddress) -> Result<Option<String>> {
    Ok(Sysfs::default()
        .find(address)?
        .and_then(|found| found.driver))
}

/// Before vfio-pci is loaded. To be run first.
pub(crate) fn no_driver() -> Result<()> {
    ensure!(!Path::new("/dev/vfio/vfio").exists(), "VFIO is loaded");
    let address = cards()?[0].address;
    says(&refusal(0, address)?, &["no driver", "modprobe vfio-pci"])?;
    doctor(
        &[
            "/dev/vfio/vfio is missing",
            "modprobe vfio-pci",
            "bound to no driver",
        ],
        1,
    )?;
    let ended = run(&mut phubctl(&["bind", &address.to_string()]))?;
    ensure!(ended.code == Some(1));
    says(&ended.text, &["modprobe vfio-pci"])
}

pub(crate) fn bind_and_unbind() -> Result<()> {
    load_vfio()?;
    let address = cards()?[0].address;
    let text = address.to_string();
    for _ in 0..2 {
        ensure!(driver(address)?.is_none());
        says(&refusal(0, address)?, &["bound to no driver"])?;
        let dry = run(&mut phubctl(&["bind", "--dry-run", &text]))?;
        says(&dry.text, &["driver_override", "drivers_probe"])?;
        ensure!(driver(address)?.is_none(), "a dry run binds nothing");
        let bound = run(&mut phubctl(&["bind", &text]))?;
        ensure!(bound.code == Some(0), "{}", bound.text);
        says(&bound.text, &["is bound to vfio-pci: /dev/vfio/"])?;
        ensure!(driver(address)?.as_deref() == Some("vfio-pci"));
        says(
            &run(&mut phubctl(&["bind", &text]))?.text,
            &["nothing to do"],
        )?;
        doctor(&[&text, "/dev/vfio/"], 0)?;
        let unbound = run(&mut phubctl(&["unbind", &text]))?;
        ensure!(unbound.code == Some(0), "{}", unbound.text);
        says(
            &run(&mut phubctl(&["unbind", &text]))?.text,
            &["nothing to do"],
        )?;
    }
    // What is no card is left alone.
    let bridge = fs::read_dir("/sys/bus/pci/devices")?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .find(|name| *name != text);
    if let Some(bridge) = bridge {
        let ended = run(&mut phubctl(&["bind", &bridge]))?;
        ensure!(ended.code == Some(1), "{}", ended.text);
        says(&ended.text, &["not a parameter hub card"])?;
    }
    Ok(())
}

/// An ordinary user may not open the card until its group is theirs.
pub(crate) fn no_permission() -> Result<()> {
    let address = card()?;
    let node = format!("/dev/vfio/{}", group(address)?);
    says(
        &refusal(1000, address)?,
        &["permission to open", &node, "chown"],
    )?;
    chown(&node, Some(1000), None)?;
    let opened = run(&mut role(1000, &["open", &address.to_string(), "4096"]))?;
    chown(&node, Some(0), None)?;
    ensure!(opened.code == Some(0), "{}", opened.text);
    Ok(())
}

/// The memory a card uses is pinned, and counts against a user's limit.
pub(crate) fn locked_memory() -> Result<()> {
    let address = card()?;
    let node = format!("/dev/vfio/{}", group(address)?);
    chown(&node, Some(1000), None)?;
    let before = getrlimit(Resource::Memlock);
    let low = Rlimit {
        current: Some(64 << 10),
        maximum: before.maximum,
    };
    setrlimit(Resource::Memlock, low)?;
    let text = refusal(1000, address);
    setrlimit(Resource::Memlock, before)?;
    chown(&node, Some(0), None)?;
    says(&text?, &["ulimit -l"])
}

/// One owner at a time.
pub(crate) fn in_use() -> Result<()> {
    let address = card()?;
    let _daemon = phubd(address, "/run/first")?;
    says(&refusal(0, address)?, &["in use by another process"])?;
    let text = address.to_string();
    doctor(&["in use by another process"], 0)?;
    let second = Process::start(Command::new("/bin/phubd").args([
        "--card",
        &text,
        "--socket",
        "/run/second",
    ]))?;
    second.line("in use by another process", PATIENCE)?;
    let info = run(&mut phubctl(&["info", "--socket", "/run/first"]))?;
    ensure!(info.code == Some(0), "the first goes on: {}", info.text);
    Ok(())
}

/// The bus knows the card, and its registers read as all ones: it was reloaded and the bus was not told, say. Who tests this
/// pulls it when asked to.
pub(crate) fn reads_all_ones() -> Result<()> {
    let address = card()?;
    // The kernel would try for a minute to reset it, at each opening.
    fs::write(Sysfs::default().path(address).join("reset_method"), "\n")?;
    println!("REMOVE the card");
    let pci = connect(&address.to_string().parse()?)?;
    let start = Instant::now();
    while pci.get::<Magic>()?.value() != u32::MAX {
        ensure!(start.elapsed() < PATIENCE, "it is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(pci);
    doctor(&["registers read all ones", "/sys/bus/pci/rescan"], 1)?;
    let daemon = Process::start(Command::new("/bin/phubd").args([
        "--card",
        &address.to_string(),
        "--socket",
        "/run/hub",
    ]))?;
    let line = daemon.line("all ones", PATIENCE)?;
    says(&line, &["/sys/bus/pci/rescan"])
}

/// Whoever is in the card's IOMMU group could be reached by the card: no other driver may be there. In a boot of its own.
pub(crate) fn shared_group() -> Result<()> {
    let address = card()?;
    let neighbour = Sysfs::default()
        .group(group(address)?)?
        .into_iter()
        .find(|found| found.driver.as_deref() == Some("nvme"))
        .context("no neighbour")?;
    let named = format!("{} (nvme)", neighbour.address);
    says(&refusal(0, address)?, &["is shared with", &named])?;
    doctor(&["shares its IOMMU group with", &named], 1)?;
    let unbind = Sysfs::default()
        .path(neighbour.address)
        .join("driver/unbind");
    fs::write(unbind, neighbour.address.to_string())?;
    doctor(&[&format!("{address}, /dev/vfio/")], 0)
}

/// A machine without an IOMMU, in a boot of its own.
pub(crate) fn no_iommu() -> Result<()> {
    load_vfio()?;
    let address = cards()?[0].address;
    says(
        &refusal(0, address)?,
        &["behind no IOMMU", "intel_iommu=on"],
    )?;
    doctor(&["no IOMMU groups", "intel_iommu=on"], 1)
}
