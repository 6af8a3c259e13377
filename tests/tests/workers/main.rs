// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Workers on a hub.

mod exchange;
#[path = "../hub/mod.rs"]
mod hub;
mod in_flight;
mod jobs;
mod misuse;

use phub::{Reduce, Worker};

/// Numbers of workers that are special: alone, a pair, odd, more than a machine has cores.
const WORLDS: [u32; 4] = [1, 2, 3, 12];

/// Lengths around every boundary: tails, a beat, a segment, a chunk, several chunks.
fn lengths() -> Vec<usize> {
    let mut lengths: Vec<usize> = (1..=17).collect();
    lengths.extend([
        255,
        256,
        257,
        1023,
        1024,
        1025,
        8191,
        8192,
        8193,
        8192 * 3 + 5,
    ]);
    lengths
}

/// Values whose sums are exact, so that the order of additions does not matter.
fn values(rank: u32, salt: u32, len: usize) -> Vec<f32> {
    (0..len as u32)
        .map(|i| ((i * 7 + salt) % 512) as f32 + f32::from(rank as u16))
        .collect()
}

fn sum(world: u32, salt: u32, len: usize) -> Vec<f32> {
    let mut total = vec![0.0; len];
    for rank in 0..world {
        total
            .iter_mut()
            .zip(values(rank, salt, len))
            .for_each(|(t, v)| *t += v);
    }
    total
}

fn everyone(world: u32) -> u64 {
    u64::MAX >> (64 - world)
}

/// One training step as a test: a sum of `len` values, checked.
fn step(worker: &Worker, salt: u32, len: usize) {
    let mut data = values(worker.rank(), salt, len);
    worker.push_pull("step", &mut data, Reduce::Sum).unwrap();
    assert_eq!(data, sum(worker.world(), salt, len));
}

fn step_other(worker: &Worker) {
    worker.push_pull("t", &mut [1.0; 300], Reduce::Sum).unwrap();
}
