// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! How fast the Verilated card is: clock cycles and gradients a second of wall time, on one core.
//!
//!     cargo run --release -p phub-sim --example throughput
#[path = "../tests/rig/mod.rs"]
mod rig;

use std::time::Instant;

use phub_sim::{Build, CardConfig, VerilatedCard};
use rig::Rig;

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
    println!("workers  cycles/s   gradient MB/s  cycles/beat");
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
        let (start, first) = (Instant::now(), card.cycle());
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
        let (seconds, cycles) = (start.elapsed().as_secs_f64(), card.cycle() - first);
        let bytes = f64::from(rounds * workers) * f64::from(CHUNK);
        println!(
            "{workers:7}  {:8.0}  {:14.1}  {:11.3}",
            cycles as f64 / seconds,
            bytes / 1e6 / seconds,
            cycles as f64 * 64.0 / bytes,
        );
    }
}
