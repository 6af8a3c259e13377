// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! How fast the Verilated card is: clock cycles and gradients a second of one core's time, and where its own cycles go.
//!
//!     cargo run --release -p phub-sim --example throughput
#[path = "../tests/rig/mod.rs"]
mod rig;

use phub_abi::regs::*;
use phub_pci::{PciFunction, RegisterIoExt};
use phub_sim::{Build, CardConfig, VerilatedCard};
use rig::Rig;
use rustix::time::{ClockId, clock_gettime};

/// Bytes of one descriptor: a chunk of the host library.
const CHUNK: u32 = 32 << 10;
/// Chunks in flight a worker.
const WINDOW: u32 = 8;

fn main() {
    let megabytes: u32 = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(8);
    let traced = std::env::args().nth(2).is_some();
    println!(
        "workers  kcycles/s  gradient MB/s  cycles/beat  stalls: hazard  slot  read  write (%)"
    );
    for workers in 1..=4 {
        let build = if traced {
            Build::Traced
        } else {
            Build::Standard
        };
        let card = VerilatedCard::new(CardConfig {
            build,
            ..CardConfig::default()
        })
        .unwrap();
        let mut rig = Rig::new(&card, workers, 10, CHUNK.into());
        let rounds = (megabytes << 20) / CHUNK / workers;
        let (start, first) = (seconds(), card.cycle());
        let (mut sent, mut done) = (0, vec![0; workers as usize]);
        while done.iter().any(|d| *d < rounds) {
            while sent < rounds && sent < done.iter().min().unwrap() + WINDOW {
                for worker in 0..workers {
                    rig.push_pull(worker, sent * CHUNK / 1024, CHUNK);
                    rig.ring(worker);
                }
                sent += 1;
            }
            for worker in 0..workers {
                while let Some(completion) = rig.completion(worker) {
                    assert_eq!(completion.status, 0);
                    done[worker as usize] += 1;
                }
            }
            card.run(256).unwrap();
        }
        let (spent, cycles) = (seconds() - start, (card.cycle() - first) as f64);
        let bytes = f64::from(rounds * workers) * f64::from(CHUNK);
        let card: &dyn PciFunction = &card;
        let share = |stalled: u32| 100.0 * f64::from(stalled) / cycles;
        println!(
            "{workers:7}  {:9.0}  {:13.1}  {:11.3}  {:14.1}  {:4.1}  {:4.1}  {:5.1}",
            cycles / 1e3 / spent,
            bytes / 1e6 / spent,
            cycles * 64.0 / bytes,
            share(card.get::<PerfStallHazardLo>().unwrap().value()),
            share(card.get::<PerfStallSlotLo>().unwrap().value()),
            share(card.get::<PerfStallReadLo>().unwrap().value()),
            share(card.get::<PerfStallWriteLo>().unwrap().value()),
        );
    }
}

/// Processor time this process has used: what else the machine does, does not count.
fn seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
