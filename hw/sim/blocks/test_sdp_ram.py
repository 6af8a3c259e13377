# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""sdp_ram: registered reads, old data on a collision, the output holds without a read."""

import random

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from harness import run


@cocotb.test()
async def reads_what_was_written(dut):
    Clock(dut.clk_i, 4, "ns").start()
    width, depth = len(dut.wdata_i), 1 << len(dut.waddr_i)
    memory, shown = {}, None
    collisions = 0
    for _ in range(3000):
        write, read = random.getrandbits(1), random.getrandbits(1)
        waddr = random.randrange(min(depth, 8))
        raddr = waddr if random.getrandbits(1) else random.randrange(min(depth, 8))
        data = random.getrandbits(width)
        await FallingEdge(dut.clk_i)
        dut.we_i.value, dut.waddr_i.value, dut.wdata_i.value = write, waddr, data
        dut.re_i.value, dut.raddr_i.value = read, raddr
        await ReadOnly()
        if shown is not None:
            assert dut.rdata_o.value.to_unsigned() == shown
        if read:
            shown = memory.get(raddr)
            collisions += write and raddr == waddr
        if write:
            memory[waddr] = data
    assert collisions > 100


@pytest.mark.parametrize("width, depth", [(1, 2), (512, 64)])
def test_sdp_ram(width, depth):
    run("sdp_ram", Width=width, Depth=depth)
