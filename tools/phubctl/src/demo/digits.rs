// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The UCI optical handwritten digits: 1797 images of 8 × 8 pixels (`data/README.md`).

const RECORDS: &[u8] = include_bytes!("../../data/digits.bin");
/// Pixels of an image.
pub(crate) const PIXELS: usize = 64;
/// Kinds of digits.
pub(crate) const CLASSES: usize = 10;
/// One image in this many is kept for the test.
const TEST_EVERY: usize = 5;

/// One image, its pixels scaled to 0..=1, and the digit it shows.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub pixels: [f32; PIXELS],
    pub digit: usize,
}

/// The images to train on and those to test with, in the order of the data set.
pub(crate) fn load() -> (Vec<Sample>, Vec<Sample>) {
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for (i, record) in RECORDS.chunks_exact(PIXELS + 1).enumerate() {
        let mut pixels = [0.0; PIXELS];
        for (pixel, &raw) in pixels.iter_mut().zip(record) {
            *pixel = f32::from(raw) / 16.0;
        }
        let sample = Sample {
            pixels,
            digit: usize::from(record[PIXELS]),
        };
        if i % TEST_EVERY == 0 {
            test.push(sample)
        } else {
            train.push(sample)
        }
    }
    (train, test)
}

/// The part of `train` that worker `rank` of `world` learns from: every `world`-th image.
pub(crate) fn shard(train: &[Sample], rank: usize, world: usize) -> Vec<Sample> {
    train.iter().skip(rank).step_by(world).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_images_are_there() {
        let (train, test) = load();
        assert_eq!((train.len(), test.len()), (1437, 360));
        let all = train.iter().chain(&test);
        assert!(
            all.clone()
                .all(|s| s.digit < CLASSES && s.pixels.iter().all(|p| (0.0..=1.0).contains(p)))
        );
        for digit in 0..CLASSES {
            assert!(
                all.clone().filter(|s| s.digit == digit).count() > 170,
                "digit {digit} is missing"
            );
        }
    }

    #[test]
    fn shards_cover_the_training_images_once() {
        let (train, _) = load();
        for world in [1, 2, 3, 4, 64] {
            let total: usize = (0..world)
                .map(|rank| shard(&train, rank, world).len())
                .sum();
            assert_eq!(total, train.len());
        }
    }
}
