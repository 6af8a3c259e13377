# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""stream_fifo gives what it got, in order, at full rate."""

import random

import cocotb
import pytest
from cocotb.triggers import ReadOnly
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
    assert dut.count_o.value == 0 and len(sink.words) == len(words)


@cocotb.test()
async def holds_its_depth_and_no_more(dut):
    await start(dut)
    source = Source(dut, "push_valid_i", "push_ready_o", "push_data_i")
    depth = dut.Depth.value.to_unsigned()
    source.send(*range(depth + 3))
    await cycles(dut, depth + 10)
    await ReadOnly()
    assert source.accepted == depth == dut.count_o.value.to_unsigned()


@cocotb.test()
async def moves_a_word_a_cycle(dut):
    """From a depth of 2 on; a depth of 1 needs two cycles a word."""
    await start(dut)
    source = Source(dut, "push_valid_i", "push_ready_o", "push_data_i")
    sink = Sink(dut, "pop_valid_o", "pop_ready_i", "pop_data_o")
    source.send(*[i % 4 for i in range(100)])
    await cycles(dut, 104)
    per_word = 2 if dut.Depth.value.to_unsigned() == 1 else 1
    assert len(sink.words) >= 100 // per_word


@pytest.mark.parametrize("depth", [1, 2, 3, 16])
def test_stream_fifo(depth):
    run("stream_fifo", Width=8 * depth, Depth=depth)
