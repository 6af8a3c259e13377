# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""rr_arbiter grants requesters in turn. (That it is fair for ever is proved in hw/formal.)"""

import random

import cocotb
import pytest
from cocotb.triggers import FallingEdge, ReadOnly
from harness import run, start


async def step(dut, requests, ack):
    """One cycle with these inputs; gives the grant, None if there is none."""
    await FallingEdge(dut.clk_i)
    dut.req_i.value, dut.ack_i.value = requests, ack
    await ReadOnly()
    return dut.grant_idx_o.value.to_unsigned() if dut.grant_valid_o.value == 1 else None


@cocotb.test()
async def grants_as_the_model_does(dut):
    await start(dut)
    num, pointer = len(dut.req_i), 0
    for _ in range(2000):
        requests, ack = random.getrandbits(num) & random.getrandbits(num), random.getrandbits(1)
        order = [(pointer + i) % num for i in range(num)]
        expected = next((i for i in order if requests >> i & 1), None)
        assert await step(dut, requests, ack) == expected
        if ack and expected is not None:
            pointer = (expected + 1) % num


@cocotb.test()
async def serves_all_alike(dut):
    await start(dut)
    num = len(dut.req_i)
    grants = [await step(dut, (1 << num) - 1, 1) for _ in range(3 * num)]
    assert sorted(grants) == sorted(list(range(num)) * 3)


@pytest.mark.parametrize("num", [1, 2, 5, 64])
def test_rr_arbiter(num):
    run("rr_arbiter", Num=num)
