// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Seeds: each random test prints its own, and can be told it again.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// A random number generator whose seed is printed if the test fails, with the command that repeats it.
///
/// `PHUB_SEED` in the environment overrides `default`.
pub fn rng(test: &str, default: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(announce(test, from_env("PHUB_SEED").unwrap_or(default)))
}

/// The seeds a test should try: `PHUB_SEED` alone if it is set, else `PHUB_SEEDS` of them, else `default`, counted from
/// `first`.
pub fn seeds(first: u64, default: u64) -> Vec<u64> {
    match from_env("PHUB_SEED") {
        Some(seed) => vec![seed],
        None => (first..first + from_env("PHUB_SEEDS").unwrap_or(default)).collect(),
    }
}

/// Prints a seed and how to repeat a run with it; the test harness shows it if the test fails.
pub fn announce(test: &str, seed: u64) -> u64 {
    println!(
        "PHUB_SEED={seed}   # repeat: PHUB_SEED={seed} cargo test -p phub-tests {test} -- --nocapture"
    );
    seed
}

fn from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}
