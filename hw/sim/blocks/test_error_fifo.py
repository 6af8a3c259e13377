# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""error_fifo keeps the oldest errors, never blocks, and marks where some were lost."""

import random

import cocotb
from cocotb.triggers import FallingEdge, ReadOnly
from harness import run, start
from layout import pack


@cocotb.test()
async def keeps_order_and_marks_losses(dut):
    await start(dut)
    depth, queue, lost, losses = 16, [], False, 0
    for step in range(4000):
        # Phases in which errors come faster than the host reads, and the reverse.
        busy = step // 100 % 2 == 0
        push, pop = random.random() < (0.8 if busy else 0.1), random.random() < (0.2 if busy else 0.7)
        error = pack("err_ev_t", code=random.randrange(1, 5), queue=random.randrange(64))
        await FallingEdge(dut.clk_i)
        dut.push_i.value, dut.err_i.value, dut.pop_i.value = int(push), error, int(pop)
        await ReadOnly()
        assert dut.valid_o.value == bool(queue)
        if queue:
            seen = dut.err_o.value.to_unsigned(), dut.overflow_o.value == 1
            assert seen == queue[0]
        full = len(queue) == depth
        if pop and queue:
            queue.pop(0)
        if push:
            if not full:
                queue.append((error, lost))
            losses += full
            lost = full
    assert losses > 10


def test_error_fifo():
    run("error_fifo")
