# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""stream_reg gives what it got, in order, at full rate."""

import random

import cocotb
import pytest
from harness import STALLS, Sink, Source, cycles, run, start


@cocotb.test()
@cocotb.parametrize(idle=STALLS, push_back=STALLS)
async def keeps_every_word_in_order(dut, idle, push_back):
    await start(dut)
    source = Source(dut, "push_valid_i", "push_ready_o", "push_data_i", idle)
    sink = Sink(dut, "pop_valid_o", "pop_ready_i", "pop_data_o", push_back)
    words = [random.getrandbits(len(dut.push_data_i)) for _ in range(200)]
    source.send(*words)
    assert await sink.get(len(words)) == words
    await cycles(dut, 3)
    assert len(sink.words) == len(words)


@cocotb.test()
async def moves_a_word_a_cycle(dut):
    await start(dut)
    source = Source(dut, "push_valid_i", "push_ready_o", "push_data_i")
    sink = Sink(dut, "pop_valid_o", "pop_ready_i", "pop_data_o")
    source.send(*[0] * 100)
    await cycles(dut, 103)
    assert len(sink.words) >= 100


@pytest.mark.parametrize("width", [1, 65])
def test_stream_reg(width):
    run("stream_reg", Width=width)
