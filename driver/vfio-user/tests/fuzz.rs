// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Mutated messages, whole sessions of them, with descriptors of every kind: the server answers or hangs up, keeps nothing of a client
//! that has gone, and serves the next one. `PHUB_SEED=N` repeats a run, `PHUB_FUZZ=N` makes it N sessions long.

mod common;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use common::*;
use phub_pci::PciFunction;
use phub_vfio_user::Client;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Numbers at which something changes: nothing, a page, ends of address spaces.
fn number(rng: &mut ChaCha8Rng) -> u64 {
    let edge = *[
        0,
        1,
        4,
        0x1000,
        0x10_0000,
        1 << 20,
        1 << 32,
        1 << 63,
        u64::MAX - 0xfff,
        u64::MAX,
    ]
    .choose(rng)
    .unwrap();
    match rng.random_range(0..6) {
        0 => rng.random(),
        1 => edge.wrapping_add(rng.random_range(0..16)),
        _ => edge,
    }
}

/// A message that is right but for some of its numbers.
fn message(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let (iova, len) = (
        0x1000 * rng.random_range(0..8),
        0x1000 * rng.random_range(0..4),
    );
    let (command, mut body) = match rng.random_range(0..9) {
        0 => (
            2,
            map_body(Some(0x1000 * rng.random_range(0..3)), iova, len),
        ),
        1 => (3, map_body(None, iova, len)),
        2 => (4, words(&[16, 0, 0, 0])),
        3 => (5, words(&[32, 0, rng.random_range(0..10), 0, 0, 0, 0, 0])),
        4 => (7, words(&[16, 0, rng.random_range(0..6), 0])),
        5 => {
            let (flags, index) = (1 << rng.random_range(0..6), rng.random_range(0..5));
            let (start, count) = (rng.random_range(0..66), rng.random_range(0..66));
            (8, words(&[20, flags, index, start, count]))
        }
        6 => (
            9,
            access(
                rng.random_range(0..9),
                rng.random_range(0..0x1_0010),
                4,
                &[],
            ),
        ),
        7 => (
            10,
            access(
                rng.random_range(0..9),
                rng.random_range(0..0x1_0010),
                4,
                &[1; 4],
            ),
        ),
        _ => (rng.random_range(0..20), vec![0; rng.random_range(0..64)]),
    };
    for _ in 0..rng.random_range(0..3) {
        match rng.random_range(0..4) {
            0 => body.truncate(rng.random_range(0..=body.len())),
            1 => body.extend((0..rng.random_range(0..40)).map(|_| 0u8)),
            2 if body.len() >= 8 => {
                let at = 4 * rng.random_range(0..=(body.len() - 8) / 4);
                body[at..at + 8].copy_from_slice(&number(rng).to_le_bytes());
            }
            _ if !body.is_empty() => {
                let at = rng.random_range(0..body.len());
                body[at] ^= 1 << rng.random_range(0..8);
            }
            _ => {}
        }
    }
    let mut message = Raw::message(command, &body);
    // Seldom the header, too: after that nobody is in step.
    if rng.random_ratio(1, 20) {
        let at = rng.random_range(0..message.len().min(16));
        message[at] ^= rng.next_u32() as u8;
    }
    message
}

/// A client that is let in. There is one at a time: the last must have been noticed to be gone.
fn introduced(served: &Served) -> Raw {
    let mut raw = None;
    eventually("the next client is let in", || {
        let mut next = Raw::connect(&served.path);
        let answer = next.ask(1, &[0, 0, 1, 0]);
        raw = matches!(answer, Some((1, ..))).then_some(next);
        raw.is_some()
    });
    raw.unwrap()
}

#[test]
fn mutated_sessions_never_stop_the_server() {
    let seed = from_env("PHUB_SEED", 1);
    let sessions = from_env("PHUB_FUZZ", 30_000);
    println!("PHUB_SEED={seed} PHUB_FUZZ={sessions}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let served = Served::start();
    // Memory that is right, memory that is too small, an eventfd, and a file that is none of these.
    let fds: Vec<OwnedFd> = vec![
        memfd(0x4000),
        memfd(0x1000),
        eventfd(),
        File::open("/dev/null").unwrap().into(),
    ];
    let mut sent = 0u64;
    for _ in 0..sessions {
        let mut raw = match rng.random_ratio(19, 20) {
            true => introduced(&served),
            false => Raw::connect(&served.path),
        };
        raw.0.set_nonblocking(true).unwrap();
        for _ in 0..rng.random_range(1..30) {
            let message = message(&mut rng);
            let with: Vec<BorrowedFd<'_>> = (0..rng.random_range(0..4))
                .map(|_| fds.choose(&mut rng).unwrap().as_fd())
                .collect();
            let whole = match rng.random_ratio(1, 50) {
                true => rng.random_range(0..message.len()),
                false => message.len(),
            };
            let done = match with.is_empty() || whole < message.len() {
                true => raw.0.write_all(&message[..whole]).is_ok(),
                false => raw.try_send_with_fds(&message, &with),
            };
            sent += 1;
            if !done || whole < message.len() {
                break;
            }
            // What it answers is read, so that it is not dropped for deafness.
            let mut answer = [0; 8192];
            match raw.0.read(&mut answer) {
                Ok(0) => break,
                Err(error) if error.kind() != ErrorKind::WouldBlock => break,
                _ => {}
            }
        }
    }
    let mut client = None;
    eventually("a new client is let in", || {
        client = Client::connect(&served.path, Duration::from_secs(5)).ok();
        client.is_some()
    });
    client.unwrap().bar_write(0x40, 7).unwrap();
    eventually("nothing is left of anybody", || {
        let state = served.toy.0.lock().unwrap();
        state.mapped.is_empty() && state.interrupts.is_empty()
    });
    println!("{sent} messages");
    assert!(sent > 4 * sessions, "most sessions ended at once");
}
