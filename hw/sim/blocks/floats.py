# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""FP32 as bit patterns, with this machine's arithmetic: what the adders and the mean must give.

Sums and quotients are formed in double precision first, which has enough bits that the second rounding changes nothing
(p >= 2 * 24 + 2).
"""

import math
import random
import struct

NAN = 0x7FC0_0000
SPECIAL = [0, 0x8000_0000, 1, 0x807F_FFFF, 0x0080_0000, 0x7F7F_FFFF, 0x7F80_0000, 0xFF80_0000, 0x7F80_0001, 0xFFC1_2345]


def number(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bits(value):
    """Rounded to nearest even; every NaN is the canonical one."""
    if math.isnan(value):
        return NAN
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0x7F80_0000 if value > 0 else 0xFF80_0000


def is_nan(word):
    return word & 0x7FFF_FFFF > 0x7F80_0000


def is_wild(word):
    """A NaN or an infinity."""
    return word & 0x7F80_0000 == 0x7F80_0000


def stored(word):
    """The first contribution."""
    return NAN if is_nan(word) else word


def add(a, b):
    return NAN if is_nan(a) or is_nan(b) else bits(number(a) + number(b))


def mean(word, count):
    return NAN if is_nan(word) else bits(number(word) / count)


def randoms(count):
    """Numbers near each other, where sums round, and special ones."""
    return [
        random.choice(SPECIAL)
        if random.random() < 0.02
        else random.getrandbits(1) << 31 | random.randint(110, 140) << 23 | random.getrandbits(23)
        for _ in range(count)
    ]


def pack(words):
    """A beat: the first word in the lowest bits."""
    return sum(word << 32 * i for i, word in enumerate(words))


def unpack(beat, words):
    return [beat >> 32 * i & 0xFFFF_FFFF for i in range(words)]
