// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The card's arithmetic, on the bits of FP32 values.
//!
//! IEEE-754, round to nearest even, subnormals and infinities kept; every NaN that comes out of an operation is
//! [`CANONICAL_NAN`].

use phub_abi::CANONICAL_NAN;

/// What a lane does with the first contribution: it keeps its bits, but for a NaN.
pub fn store(value: u32) -> u32 {
    canonical(f32::from_bits(value))
}

/// What one lane adds: the sum `a + b`.
pub fn add(a: u32, b: u32) -> u32 {
    canonical(f32::from_bits(a) + f32::from_bits(b))
}

/// The sum of `count` contributions divided by `count` (1 to 64), correctly rounded.
///
/// Rounding twice, to f64 and then to f32, is right here. Let one unit be the last place of the f32 result (2^-149
/// if that is subnormal). The quotient is then `m / count` units with integers `0 <= m < 64 * 2^24`, since every
/// f32 is a whole number of the units of anything smaller. A quotient that is not itself halfway between
/// two results differs from halfway by `|2m - (2j + 1) count| / (2 count) >= 1/128` unit; f64 rounds it by at most
/// 2^24 * 2^-53 unit, too little to reach or cross the halfway point. A quotient that is halfway is exact in f64.
pub fn mean(sum: u32, count: u32) -> u32 {
    canonical((f64::from(f32::from_bits(sum)) / f64::from(count)) as f32)
}

/// Whether the value is neither a NaN nor an infinity.
pub fn is_finite(bits: u32) -> bool {
    f32::from_bits(bits).is_finite()
}

fn canonical(value: f32) -> u32 {
    if value.is_nan() {
        CANONICAL_NAN
    } else {
        value.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIGN: u32 = 1 << 31;
    const INFINITY: u32 = 0x7f80_0000;

    /// Values at which adders break: zeros, the edges of the subnormals, ones, the largest, infinities, NaNs.
    const CORNERS: [u32; 20] = [
        0,
        1,
        2,
        3,
        0x007f_ffff,
        0x0080_0000,
        0x0080_0001,
        0x00ff_ffff,
        0x0100_0000,
        0x3f80_0000,
        0x3f80_0001,
        0x4b00_0000,
        0x4b7f_ffff,
        0x4b80_0000,
        0x7f00_0000,
        0x7f7f_fffe,
        0x7f7f_ffff,
        INFINITY,
        0x7f80_0001,
        0x7fff_ffff,
    ];

    fn corners() -> impl Iterator<Item = u32> {
        CORNERS.into_iter().flat_map(|c| [c, c | SIGN])
    }

    /// The value as a whole number of 2^-149.
    fn integer(bits: u32) -> i128 {
        // Only exponents whose integer fits are given to it.
        let exponent = (bits >> 23) & 0xff;
        let fraction = i128::from(bits & 0x7f_ffff);
        let magnitude = if exponent == 0 {
            fraction
        } else {
            (fraction | 1 << 23) << (exponent - 1)
        };
        if bits & SIGN != 0 {
            -magnitude
        } else {
            magnitude
        }
    }

    /// `magnitude / divisor` units of 2^-149, rounded to nearest even by integer arithmetic alone.
    fn round(magnitude: u128, divisor: u128) -> u32 {
        let mut exponent = 0;
        while magnitude / (divisor << exponent) >= 1 << 24 {
            exponent += 1;
        }
        let step = divisor << exponent;
        let (mut quotient, rest) = (magnitude / step, magnitude % step);
        if 2 * rest > step || (2 * rest == step && quotient & 1 == 1) {
            quotient += 1;
        }
        // A carry out of the fraction walks into the exponent, which is what it should do.
        let bits = (u128::from(exponent as u32) << 23) + quotient;
        bits.min(INFINITY.into()) as u32
    }

    /// The sum by integer arithmetic, for finite values with exponents of at most 100.
    fn add_exact(a: u32, b: u32) -> u32 {
        let sum = integer(a) + integer(b);
        let sign = match sum.signum() {
            0 if a & b & SIGN != 0 => SIGN,
            -1 => SIGN,
            _ => 0,
        };
        sign | round(sum.unsigned_abs(), 1)
    }

    fn mean_exact(sum: u32, count: u32) -> u32 {
        sum & SIGN | round(integer(sum).unsigned_abs(), count.into())
    }

    #[test]
    fn nans_become_canonical_and_infinities_stay() {
        for value in corners() {
            assert_eq!(add(value, 0x7fc1_2345), CANONICAL_NAN);
            assert_eq!(add(0xff80_0001, value), CANONICAL_NAN);
            if f32::from_bits(value).is_finite() {
                assert_eq!(add(value, INFINITY), INFINITY);
                assert_eq!(add(INFINITY | SIGN, value), INFINITY | SIGN);
            }
        }
        assert_eq!(add(INFINITY, INFINITY | SIGN), CANONICAL_NAN);
        assert_eq!(mean(0xffff_ffff, 1), CANONICAL_NAN);
        assert_eq!(mean(INFINITY | SIGN, 64), INFINITY | SIGN);
        assert_eq!(add(0x7f7f_ffff, 0x7f7f_ffff), INFINITY);
    }

    #[test]
    fn zeros_have_the_sign_ieee_gives_them() {
        assert_eq!(add(SIGN, SIGN), SIGN);
        assert_eq!(add(SIGN, 0), 0);
        assert_eq!(add(0x3f80_0000, 0xbf80_0000), 0);
        assert_eq!(mean(SIGN, 3), SIGN);
    }

    #[test]
    fn mean_of_one_keeps_its_bits() {
        for value in corners().filter(|v| !f32::from_bits(*v).is_nan()) {
            assert_eq!(mean(value, 1), value);
        }
    }

    /// Every count with every sum near a power of two, subnormal, normal and on the way between: the
    /// fractions there are the ones that fall on or beside the halfway points.
    #[test]
    fn mean_is_exact_around_every_boundary() {
        for count in 1..=64 {
            for exponent in 0..=40u32 {
                let base = exponent << 23;
                for near in 0..600 {
                    for bits in [
                        base + near,
                        base.wrapping_sub(near) & !SIGN,
                        base + 0x40_0000 - near,
                    ] {
                        if bits >> 23 <= 100 {
                            assert_eq!(
                                mean(bits, count),
                                mean_exact(bits, count),
                                "{bits:#x} / {count}"
                            );
                        }
                    }
                }
            }
        }
    }

    /// Every subnormal result there is, by stepping through the sums that give one.
    #[test]
    fn mean_is_exact_for_subnormals() {
        for count in 1..=64 {
            for bits in (0..(7 << 23)).step_by(1009 + count as usize) {
                assert_eq!(
                    mean(bits, count),
                    mean_exact(bits, count),
                    "{bits:#x} / {count}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50_000))]

        #[test]
        fn add_is_exact(a in 0u32..100 << 23, gap in -30i32..30, fraction in 0u32..1 << 23, signs in 0u32..4) {
            let exponent = ((a >> 23) as i32 + gap).clamp(0, 99) as u32;
            let (a, b) = (a | signs << 31, exponent << 23 | fraction | (signs >> 1) << 31);
            prop_assert_eq!(add(a, b), add_exact(a, b));
            prop_assert_eq!(add(b, a), add_exact(a, b));
        }

        #[test]
        fn mean_is_exact(sum in 0u32..100 << 23, count in 1u32..=64, sign in 0u32..2) {
            let sum = sum | sign << 31;
            prop_assert_eq!(mean(sum, count), mean_exact(sum, count));
        }
    }
}
