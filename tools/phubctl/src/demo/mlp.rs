// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A multilayer perceptron 64 → hidden (ReLU) → 10 (softmax), trained by SGD with momentum.
//!
//! Plain loops in a fixed order: the same samples and weights give the same bits in every process.

use super::digits::{CLASSES, PIXELS, Sample};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Neurons of the hidden layer.
pub(crate) const HIDDEN: usize = 128;
/// The tensors of the model, in the order in which the backward pass gives their gradients.
pub(crate) const TENSORS: [(&str, usize); 4] = [
    ("out.bias", CLASSES),
    ("out.weight", CLASSES * HIDDEN),
    ("hidden.bias", HIDDEN),
    ("hidden.weight", HIDDEN * PIXELS),
];
/// Weights and biases of the model.
pub(crate) const PARAMETERS: usize = CLASSES + CLASSES * HIDDEN + HIDDEN + HIDDEN * PIXELS;

const LEARNING_RATE: f32 = 0.1;
const MOMENTUM: f32 = 0.9;

/// One vector for each of [`TENSORS`].
pub(crate) type Tensors = [Vec<f32>; TENSORS.len()];

fn zeros() -> Tensors {
    TENSORS.map(|(_, len)| vec![0.0; len])
}

/// How a batch did before the update.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    /// Sum of the cross entropies, in nats.
    pub loss: f64,
    /// Images whose digit was found.
    pub correct: usize,
    /// Images.
    pub images: usize,
}

/// The model and the state of its optimizer.
#[derive(Clone)]
pub(crate) struct Mlp {
    pub weights: Tensors,
    velocity: Tensors,
}

impl Mlp {
    /// He-initialised weights from `seed`; biases are zero.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut weights = zeros();
        for (tensor, fan_in) in [(1, HIDDEN), (3, PIXELS)] {
            let bound = (6.0 / fan_in as f32).sqrt();
            weights[tensor].fill_with(|| rng.random_range(-bound..bound));
        }
        Self {
            weights,
            velocity: zeros(),
        }
    }

    fn hidden(&self, sample: &Sample) -> [f32; HIDDEN] {
        let [_, _, bias, weight] = &self.weights;
        let mut out = [0.0; HIDDEN];
        for (j, h) in out.iter_mut().enumerate() {
            *h = (bias[j] + dot(&weight[j * PIXELS..][..PIXELS], &sample.pixels)).max(0.0);
        }
        out
    }

    /// Probability of each digit.
    fn softmax(&self, hidden: &[f32; HIDDEN]) -> [f32; CLASSES] {
        let [bias, weight, _, _] = &self.weights;
        let mut out = [0.0; CLASSES];
        for (k, logit) in out.iter_mut().enumerate() {
            *logit = bias[k] + dot(&weight[k * HIDDEN..][..HIDDEN], hidden);
        }
        let max = out.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        out.iter_mut().for_each(|x| *x = (*x - max).exp());
        let sum: f32 = out.iter().sum();
        out.map(|x| x / sum)
    }

    /// Mean gradient over `batch`; `ready` is called with each tensor of it as soon as it is known, in the
    /// order of [`TENSORS`], so that its exchange overlaps the rest of the pass.
    pub(crate) fn gradient<E>(
        &self,
        batch: &[Sample],
        mut ready: impl FnMut(usize, Vec<f32>) -> Result<(), E>,
    ) -> Result<Score, E> {
        let scale = 1.0 / batch.len().max(1) as f32;
        let mut score = Score {
            images: batch.len(),
            ..Score::default()
        };
        let [
            mut out_bias,
            mut out_weight,
            mut hidden_bias,
            mut hidden_weight,
        ] = zeros();
        let mut passes = Vec::with_capacity(batch.len());
        for sample in batch {
            let hidden = self.hidden(sample);
            let mut error = self.softmax(&hidden);
            score.loss -= f64::from(error[sample.digit].max(f32::MIN_POSITIVE).ln());
            score.correct += usize::from(argmax(&error) == sample.digit);
            error[sample.digit] -= 1.0;
            error.iter_mut().for_each(|e| *e *= scale);
            for (k, &e) in error.iter().enumerate() {
                out_bias[k] += e;
                axpy(e, &hidden, &mut out_weight[k * HIDDEN..][..HIDDEN]);
            }
            passes.push((sample, hidden, error));
        }
        ready(0, out_bias)?;
        ready(1, out_weight)?;
        let out_weights = &self.weights[1];
        for (sample, hidden, error) in passes {
            let mut back = [0.0; HIDDEN];
            for (k, &e) in error.iter().enumerate() {
                axpy(e, &out_weights[k * HIDDEN..][..HIDDEN], &mut back);
            }
            for j in (0..HIDDEN).filter(|&j| hidden[j] > 0.0) {
                hidden_bias[j] += back[j];
                axpy(
                    back[j],
                    &sample.pixels,
                    &mut hidden_weight[j * PIXELS..][..PIXELS],
                );
            }
        }
        ready(2, hidden_bias)?;
        ready(3, hidden_weight)?;
        Ok(score)
    }

    /// One step of SGD with momentum along `gradient`.
    pub(crate) fn step(&mut self, gradient: &Tensors) {
        for ((weight, velocity), gradient) in self
            .weights
            .iter_mut()
            .zip(&mut self.velocity)
            .zip(gradient)
        {
            for ((w, v), g) in weight.iter_mut().zip(velocity).zip(gradient) {
                *v = MOMENTUM * *v + g;
                *w -= LEARNING_RATE * *v;
            }
        }
    }

    /// Share of `samples` whose digit is found, 0 to 1.
    pub(crate) fn accuracy(&self, samples: &[Sample]) -> f64 {
        let right = samples
            .iter()
            .filter(|s| argmax(&self.softmax(&self.hidden(s))) == s.digit)
            .count();
        right as f64 / samples.len().max(1) as f64
    }
}

/// The batches worker `rank` sees, one a step: its shard shuffled anew at every pass.
pub(crate) struct Batches {
    shard: Vec<Sample>,
    size: usize,
    next: usize,
    rng: ChaCha8Rng,
}

impl Batches {
    /// Batches of `size` images of `shard`; `rank` and `seed` fix their order.
    pub(crate) fn new(shard: Vec<Sample>, size: usize, seed: u64, rank: usize) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed ^ (rank as u64 + 1) << 32);
        let size = size.clamp(1, shard.len().max(1));
        Self {
            next: shard.len(),
            shard,
            size,
            rng,
        }
    }

    /// The batch of the next step.
    pub(crate) fn next_batch(&mut self) -> &[Sample] {
        if self.next + self.size > self.shard.len() {
            for i in (1..self.shard.len()).rev() {
                self.shard.swap(i, self.rng.random_range(0..=i));
            }
            self.next = 0;
        }
        let batch = &self.shard[self.next..self.next + self.size];
        self.next += self.size;
        batch
    }
}

/// Eight partial sums, so that the compiler can use vector registers without changing the order.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut partial = [0.0; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for (p, (a, b)) in partial.iter_mut().zip(a.iter().zip(b)) {
            *p += a * b;
        }
    }
    partial.iter().sum()
}

fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

fn argmax(values: &[f32]) -> usize {
    let best = values.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::super::digits;
    use super::*;
    use std::convert::Infallible;

    fn gradient(model: &Mlp, batch: &[Sample]) -> (Tensors, Score) {
        let mut all = zeros();
        let score = model.gradient(batch, |i, g| {
            all[i] = g;
            Ok::<_, Infallible>(())
        });
        (all, score.unwrap())
    }

    #[test]
    fn gradient_agrees_with_differences() {
        let (train, _) = digits::load();
        let model = Mlp::new(1);
        let batch = &train[..8];
        let (all, _) = gradient(&model, batch);
        let loss = |model: &Mlp| gradient(model, batch).1.loss / batch.len() as f64;
        for (tensor, index) in [(0, 3), (1, 77), (2, 5), (3, 20 * PIXELS + 27)] {
            let step = 1e-2;
            let mut moved = [model.clone(), model.clone()];
            moved[0].weights[tensor][index] += step;
            moved[1].weights[tensor][index] -= step;
            let slope = (loss(&moved[0]) - loss(&moved[1])) / (2.0 * f64::from(step));
            let found = f64::from(all[tensor][index]);
            assert!(
                (slope - found).abs() < 1e-3 + 0.02 * slope.abs(),
                "tensor {tensor}: {slope} against {found}"
            );
        }
    }

    #[test]
    fn one_process_learns_the_digits() {
        let (train, test) = digits::load();
        let mut model = Mlp::new(7);
        let mut batches = Batches::new(train, 64, 7, 0);
        for _ in 0..300 {
            let (all, _) = gradient(&model, batches.next_batch());
            model.step(&all);
        }
        let accuracy = model.accuracy(&test);
        assert!(accuracy >= 0.95, "accuracy {accuracy}");
    }

    #[test]
    fn batches_of_tiny_shards_are_not_empty() {
        let (train, _) = digits::load();
        let mut batches = Batches::new(train[..3].to_vec(), 16, 1, 0);
        assert_eq!(batches.next_batch().len(), 3);
    }
}
