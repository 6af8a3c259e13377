# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""msix: coalescing by count and by time, errors at once, nothing lost, idle when done."""

import random

import cocotb
import pytest
from harness import STALLS, Sink, Source, cycles, run, start


async def begin(dut, count, timeout, idle=0.0, push_back=0.0):
    await start(dut, coalesce_count_i=count, coalesce_timeout_i=timeout)
    source = Source(dut, "irq_valid_i", "irq_ready_o", "irq_vector_i", idle)
    sink = Sink(dut, "irq_valid_o", "irq_ready_i", "irq_vector_o", push_back)
    return source, sink


@cocotb.test()
@cocotb.parametrize(idle=STALLS, push_back=STALLS)
async def every_event_fires_without_coalescing(dut, idle, push_back):
    source, sink = await begin(dut, 1, 0, idle, push_back)
    events = [random.randrange(1, 5) for _ in range(100)]
    source.send(*events)
    assert await sink.get(len(events)) == events
    await cycles(dut, 2)
    assert dut.busy_o.value == 0


@cocotb.test()
async def count_and_timeout(dut):
    source, sink = await begin(dut, 4, 300)
    source.send(2, 2, 2)
    await source.sent()
    await cycles(dut, 100)
    assert sink.words == [], "three of four, and the time is not up"
    source.send(2)
    assert await sink.get(1, limit=5) == [2], "the fourth fires at once"
    source.send(3, 1)
    await source.sent()
    assert dut.busy_o.value == 1
    await cycles(dut, 280)
    assert len(sink.words) == 1
    late = sorted((await sink.get(3, limit=20 + 2 * dut.Vectors.value.to_unsigned()))[1:])
    assert late == [1, 3], "both by timeout"
    await cycles(dut, 2)
    assert dut.busy_o.value == 0


@cocotb.test()
async def errors_do_not_wait(dut):
    source, sink = await begin(dut, 255, (1 << 24) - 1)
    errors = Source(dut, "err_valid_i", "err_ready_o", [])
    source.send(1, 1)
    await source.sent()
    errors.send(())
    assert await sink.get(1, limit=6) == [0]


@cocotb.test()
@cocotb.parametrize(push_back=STALLS)
async def no_vector_is_forgotten(dut, push_back):
    """Whatever the mixture, each vector with an event fires after its last event, and not more often than events."""
    count, timeout = random.randrange(2, 6), random.randrange(0, 100)
    source, sink = await begin(dut, count, timeout, 0.5, push_back)
    events = [random.randrange(1, dut.Vectors.value.to_unsigned()) for _ in range(200)]
    source.send(*events)
    await source.sent()
    for _ in range(100_000):
        await cycles(dut)
        if dut.busy_o.value == 0:
            break
    await cycles(dut, 2)
    for vector in set(events):
        fired = sink.words.count(vector)
        happened = events.count(vector)
        assert -(-happened // count) <= fired <= happened, (vector, fired, happened)
    assert set(sink.words) == set(events)


@pytest.mark.parametrize("vectors", [5, 65])
def test_msix(vectors):
    run("msix", Vectors=vectors)
