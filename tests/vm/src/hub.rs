// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The daemon and its workers on a card.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::guest::{
    NOTICE, PATIENCE, Process, bind, card, cards, load_vfio, phubctl, phubd, role, run,
};

const SOCKET: &str = "/run/hub";

fn worker(uid: u32, tenant: &str, rank: u32, world: u32, steps: u32) -> Command {
    worker_at(SOCKET, uid, tenant, rank, world, steps)
}

fn worker_at(socket: &str, uid: u32, tenant: &str, rank: u32, world: u32, steps: u32) -> Command {
    let [rank, world, steps] = [rank, world, steps].map(|n| n.to_string());
    role(uid, &["worker", socket, tenant, &rank, &world, &steps])
}

/// Workers of one tenant sum a few times.
fn exchange(socket: &str, uid: u32, world: u32) -> Result<()> {
    let workers: Vec<_> = (0..world)
        .map(|rank| Process::start(&mut worker_at(socket, uid, "job", rank, world, 20)))
        .collect::<Result<_>>()?;
    for worker in workers {
        worker.line("done", PATIENCE)?;
    }
    Ok(())
}

/// The demo as a user runs it, on a card bound to vfio-pci.
pub(crate) fn demo() -> Result<()> {
    let card = card()?.to_string();
    let ended = run(&mut phubctl(&[
        "demo",
        "--card",
        &card,
        "--workers",
        "4",
        "--json",
    ]))?;
    ensure!(ended.code == Some(0), "{}", ended.text);
    let line = ended.text.lines().rfind(|line| line.starts_with('{'));
    let summary: Value = serde_json::from_str(line.context("no summary")?)?;
    println!("demo {summary}");
    ensure!(summary["bit_identical"] == true && summary["matches_reference"] == true);
    ensure!(summary["workers"] == 4 && summary["accuracy"].as_f64() >= Some(0.95));
    Ok(())
}

/// The daemon has the privileges, the workers need none but to reach its socket; what belongs to all is the operator's.
pub(crate) fn ordinary_users() -> Result<()> {
    let _daemon = phubd(card()?, SOCKET)?;
    let stranger = run(&mut worker(1001, "job", 0, 1, 1))?;
    ensure!(
        stranger.code == Some(1) && stranger.text.contains("ermission"),
        "{}",
        stranger.text
    );
    chown(SOCKET, None, Some(1000))?;
    exchange(SOCKET, 1000, 3)?;
    let created = run(&mut phubctl(&[
        "tenant", "--socket", SOCKET, "create", "kept", "--world", "2",
    ]))?;
    ensure!(created.code == Some(0), "{}", created.text);
    let mut delete = phubctl(&["tenant", "--socket", SOCKET, "delete", "kept"]);
    let refused = {
        use std::os::unix::process::CommandExt;
        run(delete.uid(1000).gid(1000))?
    };
    ensure!(
        refused.code == Some(1),
        "a worker deleted a tenant: {}",
        refused.text
    );
    // One of the user's workers has nothing of another's but what the hub gave it.
    let first = Process::start(&mut worker(1000, "other", 0, 2, 1))?;
    first.line("joined", PATIENCE)?;
    let theirs = arenas(first.pid())?;
    ensure!(theirs == 1, "{theirs} arenas in a worker");
    Ok(())
}

/// Shared memory a process has open.
fn arenas(pid: u32) -> Result<usize> {
    let links = fs::read_dir(format!("/proc/{pid}/fd"))?
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    Ok(links
        .filter(|link| link.to_string_lossy().contains("memfd"))
        .count())
}

/// Arenas of huge pages, each one mapping of the IOMMU.
pub(crate) fn huge_pages() -> Result<()> {
    let free = || -> Result<u32> {
        let text = fs::read_to_string("/proc/meminfo")?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("HugePages_Free:"));
        Ok(line.context("no huge pages")?.trim().parse()?)
    };
    fs::write("/proc/sys/vm/nr_hugepages", "16")?;
    ensure!(free()? == 16);
    let card = card()?.to_string();
    let daemon = Process::start(Command::new("/bin/phubd").args([
        "--huge-pages",
        "--card",
        &card,
        "--socket",
        SOCKET,
    ]))?;
    daemon.line("ready", PATIENCE)?;
    exchange(SOCKET, 0, 3)?;
    let waiting = Process::start(&mut worker(0, "job", 0, 2, 1))?;
    waiting.line("joined", PATIENCE)?;
    ensure!(free()? < 16, "an arena of small pages");
    drop(waiting);
    let start = Instant::now();
    while free()? != 16 {
        ensure!(start.elapsed() < NOTICE, "a huge page is lost");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The kernel takes a card back from an owner that was killed, and the next one finds it as new.
pub(crate) fn owner_killed() -> Result<()> {
    let card = card()?;
    for _ in 0..3 {
        let mut daemon = phubd(card, SOCKET)?;
        let workers: Vec<_> = (0..2)
            .map(|rank| Process::start(&mut worker(0, "job", rank, 2, u32::MAX)))
            .collect::<Result<_>>()?;
        workers[0].line("step 0", PATIENCE)?;
        daemon.kill()?;
        for worker in &workers {
            worker.line("error", NOTICE)?;
        }
    }
    let _daemon = phubd(card, SOCKET)?;
    exchange(SOCKET, 0, 2)
}

/// Descriptors and pinned memory of a process.
fn holdings(pid: u32) -> Result<(usize, String)> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let pinned = status
        .lines()
        .filter(|line| line.starts_with("VmPin") || line.starts_with("VmLck"))
        .collect::<Vec<_>>()
        .join(" ");
    Ok((descriptors, pinned))
}

/// What a process holds once nothing changes any more: connections that were closed are noticed in its next turns.
fn at_rest(pid: u32) -> Result<(usize, String)> {
    let start = Instant::now();
    let (mut last, mut since) = (holdings(pid)?, Instant::now());
    while since.elapsed() < Duration::from_millis(500) {
        ensure!(start.elapsed() < PATIENCE, "{last:?} keeps changing");
        std::thread::sleep(Duration::from_millis(20));
        let now = holdings(pid)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}

/// Ten thousand operations, with workers that are killed and daemons that are, and nothing is left at the end.
pub(crate) fn soak() -> Result<()> {
    const OPERATIONS: u32 = 10_000;
    let seed = 9;
    println!("PHUB_SEED={seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let card = card()?;
    let mut daemon = phubd(card, SOCKET)?;
    exchange(SOCKET, 0, 2)?;
    let before = at_rest(daemon.pid())?;
    let (mut operations, mut kills, mut restarts) = (0, 0, 0);
    while operations < OPERATIONS {
        let steps = rng.random_range(100..400);
        let mut workers: Vec<_> = (0..2)
            .map(|rank| Process::start(&mut worker(0, "job", rank, 2, steps)))
            .collect::<Result<_>>()?;
        match rng.random_range(0..4) {
            0 => {
                workers[1].line("step 50", PATIENCE)?;
                workers[0].kill()?;
                workers[1].line("error", NOTICE)?;
                kills += 1;
                operations += 2 * 50;
            }
            1 if restarts < 5 => {
                workers[1].line("step 50", PATIENCE)?;
                daemon.kill()?;
                for worker in &workers {
                    worker.line("error", NOTICE)?;
                }
                daemon = phubd(card, SOCKET)?;
                exchange(SOCKET, 0, 2)?;
                restarts += 1;
                operations += 2 * 50;
            }
            _ => {
                for worker in &workers {
                    worker.line("done", PATIENCE)?;
                }
                operations += 2 * steps;
            }
        }
    }
    exchange(SOCKET, 0, 2)?;
    let after = at_rest(daemon.pid())?;
    println!("{operations} operations, {kills} workers and {restarts} daemons killed: {after:?}");
    ensure!(after == before, "{before:?} became {after:?}");
    ensure!(kills > 0 && restarts > 0);
    Ok(())
}

/// Two cards, each with its daemon.
pub(crate) fn two_cards() -> Result<()> {
    load_vfio()?;
    let cards = cards()?;
    ensure!(cards.len() == 2, "{cards:?}");
    let mut daemons = Vec::new();
    for (n, card) in cards.iter().enumerate() {
        bind(card.address)?;
        daemons.push(phubd(card.address, &format!("/run/hub{n}"))?);
    }
    exchange("/run/hub0", 0, 2)?;
    exchange("/run/hub1", 0, 2)?;
    daemons[0].kill()?;
    exchange("/run/hub1", 0, 3)
}

/// The card goes while it works: who tests this pulls it when asked to.
pub(crate) fn card_removed() -> Result<()> {
    let daemon = phubd(card()?, SOCKET)?;
    let workers: Vec<_> = (0..2)
        .map(|rank| Process::start(&mut worker(0, "job", rank, 2, u32::MAX)))
        .collect::<Result<_>>()?;
    let idle = Process::start(&mut worker(0, "idle", 0, 2, 1))?;
    idle.line("joined", PATIENCE)?;
    workers[0].line("step 50", PATIENCE)?;
    println!("REMOVE the card");
    daemon.line("gone", PATIENCE)?;
    let start = Instant::now();
    for worker in workers.iter().chain([&idle]) {
        worker.line("card", NOTICE)?;
    }
    ensure!(start.elapsed() < NOTICE);
    // The daemon stays, and says why nobody can join.
    let late = run(&mut worker(0, "job", 0, 1, 1))?;
    ensure!(
        late.code == Some(1) && late.text.contains("gone"),
        "{}",
        late.text
    );
    let info = run(&mut phubctl(&["info", "--socket", SOCKET]))?;
    ensure!(info.code == Some(0), "{}", info.text);
    // Its end waits for the kernel, which tries for a minute to reset the card.
    std::mem::forget(daemon);
    Ok(())
}
