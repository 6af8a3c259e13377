// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! One process of a test that needs several: a card, a hub, or a worker.
//!
//!     actor card golden|verilated SOCKET
//!     actor hub CARD SOCKET
//!     actor worker ADDRESS TENANT RANK WORLD STEPS ELEMENTS
//!     actor forker SOCKET TENANT RANK WORLD
//!
//! Each prints what the test waits for, a line at a time, and ends with the process that started it.
#![forbid(unsafe_code)]

use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use phub::control::{Connection, Join, Request};
use phub::{Hub, JoinOptions, Reduce};
use phub_pci::PciFunction;
use phub_tests::running::{self, CardKind};
use phub_vfio_user::{Server, Stop};
use phubd::{Card, Config, Daemon};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["card", kind, socket] => card(kind, Path::new(socket)),
        ["hub", card, socket] => hub(card, socket),
        ["worker", address, tenant, rank, world, steps, elements] => worker(
            address,
            tenant,
            rank.parse()?,
            world.parse()?,
            steps.parse()?,
            elements.parse()?,
        ),
        ["forker", socket, tenant, rank, world] => {
            forker(Path::new(socket), tenant, rank.parse()?, world.parse()?)
        }
        _ => Err(format!("no such role: {args:?}").into()),
    }
}

fn card(kind: &str, socket: &Path) -> Outcome {
    let kind = CardKind::named(kind).ok_or_else(|| format!("no such card: {kind}"))?;
    let card: Arc<dyn PciFunction> = running::card(kind)?;
    let server = Server::bind(socket)?;
    say("ready")?;
    Ok(server.run(&*card, &Stop::new()?)?)
}

fn hub(card: &str, socket: &str) -> Outcome {
    let daemon = Daemon::start(Config::new(Card::Address(card.to_owned()), socket))?;
    say("ready")?;
    Ok(daemon.wait()?)
}

/// Sums a tensor `steps` times with the others and checks every value.
fn worker(
    address: &str,
    tenant: &str,
    rank: u32,
    world: u32,
    steps: u32,
    elements: usize,
) -> Outcome {
    let options = JoinOptions {
        timeout: Duration::from_secs(20),
        ..Default::default()
    };
    let worker = Hub::connect(address)?.join(tenant, rank, world, 7, options)?;
    say("joined")?;
    for step in 0..steps {
        let mut values: Vec<f32> = (0..elements)
            .map(|i| (i as u32 % 1000 + rank + step % 1000) as f32)
            .collect();
        if let Err(error) = worker.push_pull("gradient", &mut values, Reduce::Sum) {
            say(&format!("error {error:?}"))?;
            return Ok(());
        }
        let others: u32 = (0..world).sum();
        for (i, value) in values.iter().enumerate() {
            let expected = world * (i as u32 % 1000 + step % 1000) + others;
            if *value != expected as f32 {
                return Err(
                    format!("step {step}, element {i}: {value} instead of {expected}").into(),
                );
            }
        }
        say(&format!("step {step}"))?;
    }
    worker.leave()?;
    say("done")
}

/// Joins, and starts a process that keeps the connection to the hub open.
fn forker(socket: &Path, tenant: &str, rank: u32, world: u32) -> Outcome {
    let mut connection = Connection::open(socket, Duration::from_secs(5))?;
    connection.call(&Request::Join(Join {
        tenant: tenant.into(),
        token: 7,
        world,
        rank,
        arena_bytes: 4096,
    }))?;
    let child = Command::new("sleep")
        .arg("60")
        .stdin(connection.as_fd().try_clone_to_owned()?)
        .spawn()?;
    say(&format!("child {}", child.id()))?;
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

fn say(line: &str) -> Outcome {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}
