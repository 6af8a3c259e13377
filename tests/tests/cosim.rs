// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The same random program on two cards: every byte of result and every field of every completion must agree.

use phub_abi::{Completion, Status};
use phub_model::{Order, Params};
use phub_sim::{AxiConfig, Build};
use phub_tests::card::{Card, TINY};
use phub_tests::program::{Outcome, Program};
use phub_tests::seed;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A completion without what depends on time.
fn timeless(c: &Completion) -> Completion {
    Completion {
        timestamp: 0,
        sq_head: 0,
        ..*c
    }
}

/// Runs one program on `card`, then again on the golden model in the order that `card` took.
fn compare(test: &str, seed: u64, chunks: u32, card: impl FnOnce(u64) -> Card) -> usize {
    seed::announce(test, seed);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let card = card(rng.random());
    let params = card.params;
    let program = Program::random(&mut rng, &params, chunks);
    let got = program.run(card, &mut rng);
    let golden = Card::model(params, Order::Recorded(got.trace.iter().copied().collect()));
    let want = program.run(golden.clone(), &mut rng);
    assert_eq!(
        golden.unplayed(),
        0,
        "contributions that the model could not repeat"
    );
    assert_same(&got, &want);
    program.operations()
}

fn assert_same(got: &Outcome, want: &Outcome) {
    for (w, (got, want)) in got.completions.iter().zip(&want.completions).enumerate() {
        for (n, (got, want)) in got.iter().zip(want).enumerate() {
            assert_eq!(timeless(got), timeless(want), "completion {n} of queue {w}");
        }
    }
    for (w, (got, want)) in got.memory.iter().zip(&want.memory).enumerate() {
        let differs = got.iter().zip(want).position(|(g, w)| g != w);
        let show = |m: &[u8], at: usize| format!("{:02x?}", &m[at & !3..(at & !3) + 16]);
        if let Some(at) = differs {
            panic!(
                "buffers of queue {w} differ at byte {at:#x}: {} and {}",
                show(got, at),
                show(want, at)
            );
        }
    }
    assert_eq!(got.counters, want.counters, "counters");
    assert_eq!(got.trace.len(), want.trace.len(), "contributions");
    for (n, (got, want)) in got.trace.iter().zip(&want.trace).enumerate() {
        assert_eq!(got, want, "contribution {n}");
    }
}

fn several(test: &str, first: u64, programs: u64, chunks: u32, card: impl Fn(u64) -> Card) {
    let operations: usize = seed::seeds(first, programs)
        .iter()
        .map(|s| compare(test, *s, chunks, &card))
        .sum();
    println!("{operations} operations");
}

/// The Verilated card with host memory of a random kind.
fn rtl(build: Build, seed: u64) -> Card {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let axi = AxiConfig {
        read_latency: rng.random_range(0..150),
        write_latency: rng.random_range(0..100),
        backpressure: [0.0, 0.1, 0.5, 0.8][rng.random_range(0..4usize)],
        reorder: rng.random(),
        interleave: rng.random(),
    };
    println!("{build:?} {axi:?}");
    Card::rtl(build, seed, axi)
}

#[test]
fn verilated() {
    several("verilated", 1, 8, 30, |seed| rtl(Build::Standard, seed));
}

#[test]
fn verilated_tiny() {
    several("verilated_tiny", 1, 12, 30, |seed| rtl(Build::Tiny, seed));
}

/// The harness itself: a model in a random order against a model told that order.
#[test]
fn model_repeats_itself() {
    several("model_repeats_itself", 1, 40, 40, |seed| {
        Card::model(Params::default(), Order::Random(seed))
    });
}

#[test]
fn tiny_model_repeats_itself() {
    several("tiny_model_repeats_itself", 1, 40, 40, |seed| {
        Card::model(TINY, Order::Random(seed))
    });
}

/// The comparison can fail: a sum in another order has other bits.
#[test]
fn another_order_is_noticed() {
    let noticed = (0..10).any(|seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let program = Program::random(&mut rng, &Params::default(), 30);
        let run = |order| {
            program.run(
                Card::model(Params::default(), order),
                &mut ChaCha8Rng::seed_from_u64(seed),
            )
        };
        run(Order::RoundRobin).memory != run(Order::Random(seed + 1)).memory
    });
    assert!(noticed, "ten programs gave the same bits in two orders");
}

/// Every status a program provokes is one it really gets, so that the list cannot become empty unnoticed.
#[test]
fn programs_provoke_errors() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let program = Program::random(&mut rng, &Params::default(), 40);
        let outcome = program.run(Card::golden(), &mut rng);
        seen.extend(outcome.completions.iter().flatten().map(|c| c.status));
    }
    for status in [
        Status::Ok,
        Status::BadOpcode,
        Status::BadLength,
        Status::BadAlign,
        Status::OutOfWindow,
        Status::StaleEpoch,
        Status::Mismatch,
        Status::Duplicate,
        Status::CrcError,
    ] {
        assert!(
            seen.contains(&status.code()),
            "no program provoked {status:?}"
        );
    }
}
