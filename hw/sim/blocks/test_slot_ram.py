# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""slot_ram: both read ports give what was written, the old word on a collision, after 1 and 2 cycles."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from harness import cycles, run


@cocotb.test()
async def reads_what_was_written(dut):
    Clock(dut.clk_i, 4, "ns").start()
    dut.a_re_i.value = dut.b_re_i.value = 0
    depth, width = dut.Depth.value.to_unsigned(), len(dut.wdata_i)
    words = [random.getrandbits(width) for _ in range(depth)]
    dut.we_i.value = 1
    for address, word in enumerate(words):
        dut.waddr_i.value = address
        dut.wdata_i.value = word
        await cycles(dut)
    a_due, b_due = [None], [None, None]  # what the ports must show, next first
    for _ in range(1000):
        write, read_a, read_b = (random.random() < 0.7 for _ in range(3))
        where, at_a, at_b = (random.randrange(depth) for _ in range(3))
        dut.we_i.value, dut.waddr_i.value = int(write), where
        dut.a_re_i.value, dut.a_addr_i.value = int(read_a), at_a
        dut.b_re_i.value, dut.b_addr_i.value = int(read_b), at_b
        word = random.getrandbits(width)
        dut.wdata_i.value = word
        a_due.append(words[at_a] if read_a else None)
        b_due.append(words[at_b] if read_b else None)
        if write:
            words[where] = word
        await FallingEdge(dut.clk_i)
        a_due.pop(0)
        b_due.pop(0)
        for port, due in ((dut.a_data_o, a_due[0]), (dut.b_data_o, b_due[0])):
            assert due is None or port.value == due


def test_slot_ram():
    run("slot_ram", Width=64, Depth=8)
