// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The single-process run the demo's workers are compared with, step by step.
//!
//! With one or two workers the hub's mean must equal the single process's bit for bit. With more, FP32 sums
//! depend on the order of arrival, and each element must lie within the rounding bound of recursive summation
//! (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., section 4.2):
//! `|mean - exact| <= gamma(n) * sum|g| / n`, with `gamma(n) = n*u / (1 - n*u)`, `u = 2^-24`; `n` roundings are
//! `n - 1` additions and the division. The reference then goes on from the hub's mean, so that the weights at the
//! end must be the workers' to the last bit.

use super::digits::{self, Sample};
use super::mlp::{Batches, Mlp, TENSORS, Tensors};
use std::convert::Infallible;

/// Largest number of workers whose sum does not depend on the order of arrival.
const ORDER_FREE: usize = 2;
const UNIT_ROUNDOFF: f64 = 1.0 / (1u64 << 24) as f64;
/// Half the spacing of subnormal FP32 numbers, what rounding can cost near zero.
const SMALLEST_HALF: f64 = f32::from_bits(1) as f64 / 2.0;

/// A mean the card gave that the single process cannot account for.
#[derive(Debug, PartialEq)]
pub(crate) struct Deviation {
    pub step: usize,
    pub tensor: &'static str,
    pub index: usize,
    pub hub: f32,
    pub expected: f64,
    pub allowed: f64,
}

impl std::fmt::Display for Deviation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            step,
            tensor,
            index,
            hub,
            expected,
            allowed,
        } = self;
        write!(
            f,
            "step {step}, {tensor}[{index}]: the hub says {hub:e}, expected {expected:e} within {allowed:e}"
        )
    }
}

/// The single process: one model, the batches of every worker.
pub(crate) struct Reference {
    model: Mlp,
    batches: Vec<Batches>,
    steps: usize,
    /// Largest error seen, as a share of the bound (0 to 1; 0 where sums are exact).
    pub worst: f64,
}

impl Reference {
    /// The run of `world` workers that start from `seed`.
    pub(crate) fn new(train: &[Sample], world: usize, batch: usize, seed: u64) -> Self {
        let batches = (0..world)
            .map(|rank| Batches::new(digits::shard(train, rank, world), batch, seed, rank))
            .collect();
        Self {
            model: Mlp::new(seed),
            batches,
            steps: 0,
            worst: 0.0,
        }
    }

    /// Checks the mean gradient the hub gave in the next step, and takes the step with it.
    pub(crate) fn follow(&mut self, hub: &Tensors) -> Result<(), Deviation> {
        let mut shards: [Vec<Vec<f32>>; TENSORS.len()] = Default::default();
        for batches in &mut self.batches {
            let collect = |tensor: usize, gradient| {
                shards[tensor].push(gradient);
                Ok::<_, Infallible>(())
            };
            let Ok(_) = self.model.gradient(batches.next_batch(), collect);
        }
        for (tensor, (shards, hub)) in shards.iter().zip(hub).enumerate() {
            for (index, &mean) in hub.iter().enumerate() {
                let (expected, allowed) = interval(shards.iter().map(|s| s[index]));
                let error = (f64::from(mean) - expected).abs();
                if error > allowed || error.is_nan() {
                    let (step, name) = (self.steps, TENSORS[tensor].0);
                    return Err(Deviation {
                        step,
                        tensor: name,
                        index,
                        hub: mean,
                        expected,
                        allowed,
                    });
                }
                if allowed > 0.0 {
                    self.worst = self.worst.max(error / allowed);
                }
            }
        }
        self.model.step(hub);
        self.steps += 1;
        Ok(())
    }

    /// The model after the steps so far.
    pub(crate) fn model(&self) -> &Mlp {
        &self.model
    }
}

/// The mean of `terms`, and how far the hub's may lie from it.
fn interval(terms: impl ExactSizeIterator<Item = f32> + Clone) -> (f64, f64) {
    let count = terms.len();
    if count <= ORDER_FREE {
        let sum = terms.reduce(|a, b| a + b).unwrap_or(0.0);
        return (f64::from(sum / count.max(1) as f32), 0.0);
    }
    let n = count as f64;
    let sum: f64 = terms.clone().map(f64::from).sum();
    let magnitude: f64 = terms.map(|x| f64::from(x).abs()).sum();
    let gamma = n * UNIT_ROUNDOFF / (1.0 - n * UNIT_ROUNDOFF);
    (sum / n, gamma * magnitude / n + SMALLEST_HALF)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `world` workers and a hub that adds in `order` would do.
    fn run(world: usize, steps: usize, reverse: bool, spoil: bool) -> Result<(), Deviation> {
        let (train, _) = digits::load();
        let mut reference = Reference::new(&train, world, 8, 3);
        let mut model = Mlp::new(3);
        let mut batches: Vec<_> = (0..world)
            .map(|r| Batches::new(digits::shard(&train, r, world), 8, 3, r))
            .collect();
        for step in 0..steps {
            let mut sum: Option<Tensors> = None;
            let mut order: Vec<_> = batches.iter_mut().collect();
            if reverse {
                order.reverse();
            }
            for batches in order {
                let mut all: Tensors = Default::default();
                let Ok(_) = model.gradient(batches.next_batch(), |i, g| {
                    all[i] = g;
                    Ok::<_, Infallible>(())
                });
                match &mut sum {
                    None => sum = Some(all),
                    Some(sum) => {
                        for (s, g) in sum.iter_mut().flatten().zip(all.iter().flatten()) {
                            *s += g;
                        }
                    }
                }
            }
            let mut mean = sum.unwrap_or_default();
            mean.iter_mut().flatten().for_each(|x| *x /= world as f32);
            if spoil && step == steps - 1 {
                mean[3][1000] += 1e-4;
            }
            reference.follow(&mean)?;
            model.step(&mean);
        }
        assert_eq!(reference.model().weights, model.weights);
        Ok(())
    }

    #[test]
    fn right_sums_in_any_order_pass() {
        for (world, reverse) in [(1, false), (2, true), (3, true), (4, true), (12, false)] {
            assert_eq!(run(world, 5, reverse, false), Ok(()), "{world} workers");
        }
    }

    #[test]
    fn one_wrong_element_is_found() {
        for world in [1, 2, 4] {
            let found = run(world, 3, false, true).unwrap_err();
            assert_eq!(
                (found.step, found.tensor, found.index),
                (2, "hidden.weight", 1000)
            );
        }
    }

    #[test]
    fn nan_is_found() {
        let (train, _) = digits::load();
        let mut reference = Reference::new(&train, 4, 8, 3);
        let mean = TENSORS.map(|(_, len)| vec![f32::NAN; len]);
        assert!(reference.follow(&mean).is_err());
    }
}
