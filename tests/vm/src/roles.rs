// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Processes of a scenario: one that opens the card, one that is a worker.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use phub::{Hub, JoinOptions, Reduce};
use phub_driver::connect;
use phub_sys::{HugePages, Memory};

pub(crate) fn run(role: &str, arguments: &[&str]) -> Result<()> {
    match (role, arguments) {
        // Opens the card, and maps memory for it.
        ("open", [card, bytes]) => {
            let pci = connect(&card.parse()?)?;
            let memory = Memory::new(bytes.parse()?, HugePages::No)?;
            pci.dma_map(1 << 32, &memory, 0, memory.len())?;
            say("opened")
        }
        ("worker", [socket, tenant, rank, world, steps]) => worker(
            socket,
            tenant,
            rank.parse()?,
            world.parse()?,
            steps.parse()?,
        ),
        _ => bail!("no role `{role}` with {arguments:?}"),
    }
}

/// Sums with the others and checks every value.
fn worker(socket: &str, tenant: &str, rank: u32, world: u32, steps: u32) -> Result<()> {
    let options = JoinOptions {
        arena_bytes: 1 << 20,
        timeout: Duration::from_secs(30),
        ..Default::default()
    };
    let worker = Hub::connect(&format!("unix:{socket}"))?.join(tenant, rank, world, 7, options)?;
    say("joined")?;
    for step in 0..steps {
        let base = (step % 1000) as f32;
        let mut values: Vec<f32> = (0..700)
            .map(|i| base + (i % 10) as f32 + rank as f32)
            .collect();
        worker.push_pull("t", &mut values, Reduce::Sum)?;
        let ranks: u32 = (0..world).sum();
        for (i, value) in values.iter().enumerate() {
            let expected = world as f32 * (base + (i % 10) as f32) + ranks as f32;
            if *value != expected {
                bail!("step {step}, element {i}: {value} instead of {expected}");
            }
        }
        if step % 50 == 0 {
            say(&format!("step {step}"))?;
        }
    }
    worker.leave()?;
    say("done")
}

fn say(line: &str) -> Result<()> {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}
