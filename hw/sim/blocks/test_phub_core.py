# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""The whole core with host memory: sums, completions, refusals, abort, queue stop, throughput."""

import random
import struct
import zlib

import cocotb
import pytest
from chip import ABORT, COUNTERS, CRC, IRQ, MEAN, PERF, PULL, PUSH, PUSH_PULL, STOP, WAIVE, Card, HostMemory
from harness import cycles, run


def floats(count, seed):
    """Small integers: their sums are exact in any order."""
    rng = random.Random(seed)
    return [float(rng.randint(-1000, 1000)) for _ in range(count)]


def place(memory, address, values):
    memory.write(address, struct.pack(f"<{len(values)}f", *values))


def fetch(memory, address, count):
    return list(struct.unpack(f"<{count}f", memory.read(address, 4 * count)))


def source(worker):
    return 0x1_0000_0000 * (worker + 1)


def result(worker):
    return source(worker) + 0x800_0000


async def two_workers(dut, **host):
    card = await Card.power_on(dut, HostMemory(**host))
    slots_log2 = min(dut.Slots.value.to_unsigned().bit_length() - 1, 6)
    await card.tenant(0, workers=2, slots_log2=slots_log2)
    return card, [await card.queue(q, tenant=0, worker=q) for q in range(2)]


def segment(dut):
    return dut.SegBytes.value.to_unsigned()


@cocotb.test()
async def sums_two_and_a_half_segments(dut):
    card, queues = await two_workers(dut)
    length = segment(dut) * 5 // 2
    data = [floats(length // 4, w) for w in range(2)]
    for w, queue in enumerate(queues):
        place(card.memory, source(w), data[w])
        await queue.submit(PUSH_PULL, seq=0, length=length, src=source(w), dst=result(w))
    expected = [a + b for a, b in zip(*data)]
    for w, queue in enumerate(queues):
        done = await queue.completion()
        assert (done.status, done.bytes, done.seq, done.contributors, done.count) == (0, length, 2, 3, 2), done
        assert fetch(card.memory, result(w), length // 4) == expected
        assert done.crc == zlib.crc32(card.memory.read(result(w), length))
        assert card.memory.read(result(w) + length, 64) == bytes(64)
    await card.rest()
    assert sorted(card.interrupts) == [1, 2]
    assert [t.first for t in card.trace if t.seq == 1] == [1, 0]
    assert await card.counter(0, 0) == 6 and await card.counter(0, 1) == 2 * length
    assert await card.counter(0, 2) == 6 and await card.counter(0, 3) == 2 * length
    assert await card.counter(0, 4) == 3 and await card.counter(0, 15) == 2


@cocotb.test()
async def mean_crc_pull_and_waive(dut):
    """Worker 0 pushes and waives; worker 1 pulls: a broadcast. Then a mean with CRC, pushed and pulled apart."""
    card, queues = await two_workers(dut, reorder=True, jitter=20)
    length = 3 * segment(dut)
    data = [floats(length // 4, 10 + w) for w in range(2)]
    for w in range(2):
        place(card.memory, source(w), data[w])
    await queues[0].submit(PUSH, seq=5, length=length, src=source(0), flags=WAIVE)
    await queues[1].submit(PULL, seq=5, length=length, dst=result(1), flags=MEAN)
    done = [await queue.completion() for queue in queues]
    assert [d.status for d in done] == [0, 0] and (done[1].contributors, done[1].count) == (1, 1), done
    assert fetch(card.memory, result(1), length // 4) == data[0]
    for w, queue in enumerate(queues):
        crc = zlib.crc32(card.memory.read(source(w), length))
        await queue.submit(PUSH, seq=8, length=length, src=source(w), flags=CRC | IRQ, crc=crc)
        await queue.submit(PULL, seq=8, length=length, dst=result(w), flags=MEAN)
    for w, queue in enumerate(queues):
        push, pull = await queue.completion(), await queue.completion()
        assert (push.status, push.flags, pull.status, pull.flags) == (0, 4, 0, 2), (push, pull)
        assert fetch(card.memory, result(w), length // 4) == [(a + b) / 2 for a, b in zip(*data)]
    await card.rest()


@cocotb.test()
async def refuses_what_is_wrong(dut):
    card, queues = await two_workers(dut)
    length = segment(dut)
    q = queues[0]
    at = source(0)
    cases = [
        (1, dict(opcode=9, seq=0, length=length)),
        (1, dict(opcode=PUSH, seq=0, length=length, src=at, flags=0x10)),
        (1, dict(opcode=PULL, seq=0, length=length, dst=at, flags=WAIVE)),
        (1, dict(opcode=PUSH, seq=0, length=length, src=at, dst=at)),
        (2, dict(opcode=PUSH, seq=0, length=0, src=at)),
        (2, dict(opcode=PUSH, seq=0, length=6, src=at)),
        (3, dict(opcode=PUSH, seq=0, length=length, src=at + 4)),
        (4, dict(opcode=PUSH, seq=0, length=length, src=(1 << 40) - length + 64)),
        (5, dict(opcode=PUSH, seq=0, length=length, src=at, epoch=2)),
    ]
    for status, fields in cases:
        await q.submit(**fields)
        done = await q.completion()
        assert (done.status, done.bytes, done.contributors, done.crc) == (status, 0, 0, 0), (fields, done)
    bad_crc = dict(opcode=PUSH, length=length, src=at, flags=CRC, crc=1)
    await q.submit(seq=0, **bad_crc)
    assert (await q.completion()).status == 10
    # The segment joined nothing: it can still be pushed, and then not again.
    await q.submit(PUSH, seq=0, length=length, src=at)
    await q.submit(PUSH, seq=0, length=length, src=at)
    await q.submit(PUSH, seq=(1 << 32) - 64, length=length, src=at)
    assert [(await q.completion()).status for _ in range(3)] == [0, 9, 8]
    await queues[1].submit(PUSH, seq=0, length=length, src=at, key=8)
    assert (await queues[1].completion()).status == 7
    await card.rest()


@cocotb.test()
async def memory_errors_stop_one_descriptor_or_one_queue(dut):
    holes = set()
    card, queues = await two_workers(dut, refused=lambda address: address >> 20 in holes)
    length = 2 * segment(dut)
    holes.add(source(0) >> 20)
    await queues[0].submit(PUSH, seq=0, length=length, src=source(0))
    assert (await queues[0].completion()).status == 11
    # A result that cannot be written.
    holes.clear()
    holes.add(result(1) >> 20)
    for w, queue in enumerate(queues):
        await queue.submit(PUSH_PULL, seq=2, length=length, src=source(w), dst=result(w))
    assert [(await queue.completion()).status for queue in queues] == [0, 12]
    # A ring that cannot be read stops its queue, and nobody else.
    holes.clear()
    holes.add(queues[1].sq >> 20)
    await queues[1].submit(PUSH, seq=4, length=length, src=source(1))
    await card.until(0x1044, 0xFFFF, 0x0201)
    assert await card.read32(0x2C) == 0x8000_0102 and await card.read32(0x2C) == 0
    await queues[0].submit(PUSH, seq=4, length=length, src=source(0))
    assert (await queues[0].completion()).status == 0
    # A doorbell outside the ring does, too.
    await card.write32(0x100000, 1 << queues[0].log2)
    await card.until(0x1004, 0xFFFF, 0x0101)
    await card.rest()
    assert card.interrupts.count(0) == 2


@cocotb.test()
async def abort_tells_who_is_missing_and_starts_anew(dut):
    card, queues = await two_workers(dut)
    length = 2 * segment(dut)
    data = [floats(length // 4, 20 + w) for w in range(2)]
    for w in range(2):
        place(card.memory, source(w), data[w])
    await queues[0].submit(PUSH_PULL, seq=0, length=length, src=source(0), dst=result(0))
    await queues[0].submit(PUSH_PULL, seq=2, length=length, src=source(0), dst=result(0))
    await queues[0].silent(600)
    await card.rest()
    assert await card.command(ABORT, 0)
    done = [await queues[0].completion() for _ in range(2)]
    assert [(d.status, d.contributors, d.seq, d.epoch) for d in done] == [(13, 1, 0, 1), (13, 1, 2, 1)], done
    # The new epoch uses the same slots from any sequence number on; the old one is refused.
    await queues[0].submit(PUSH_PULL, seq=0, length=length, src=source(0), dst=result(0), epoch=1)
    assert (await queues[0].completion()).status == 5
    for w, queue in enumerate(queues):
        await queue.submit(PUSH_PULL, seq=0, length=length, src=source(w), dst=result(w), epoch=2)
    for w, queue in enumerate(queues):
        done = await queue.completion()
        assert (done.status, done.contributors, done.epoch) == (0, 3, 2)
        assert fetch(card.memory, result(w), length // 4) == [a + b for a, b in zip(*data)]
    assert await card.counter(0, 14) == 1
    assert not await card.command(ABORT, 99) and not await card.command(7, 0)
    await card.rest()


@cocotb.test()
async def stop_forgets_a_queue(dut):
    card, queues = await two_workers(dut)
    length = segment(dut)
    place(card.memory, source(0), floats(length // 4, 1))
    await queues[0].submit(PUSH_PULL, seq=0, length=length, src=source(0), dst=result(0))
    await queues[0].silent(300)
    assert await card.command(STOP, 0)
    assert await card.read32(0x1000) & 1 == 0
    reads, writes = card.memory.reads, card.memory.writes
    await queues[0].submit(PUSH_PULL, seq=1, length=length, src=source(0), dst=result(0))
    await queues[0].silent(300)
    assert (card.memory.reads, card.memory.writes) == (reads, writes)
    await card.rest()
    # Enabled anew it starts at the beginning of its rings. What it had pushed is still in the slot.
    queues[0] = await card.queue(0, tenant=0, worker=0)
    await queues[0].submit(PULL, seq=0, length=length, dst=result(0))
    await queues[1].submit(PUSH_PULL, seq=0, length=length, src=source(0), dst=result(1))
    for queue in queues:
        done = await queue.completion()
        assert (done.status, done.contributors) == (0, 3)
    # Disabling the card forgets all.
    await card.enable(False)
    assert await card.read32(0x1000) & 1 == 0 and await card.read32(0x2000) & 1 == 0
    await card.rest()
    await card.enable()
    assert await card.read64(COUNTERS) == 0


@cocotb.test()
async def many_rounds_through_few_slots(dut):
    """More segments than slots, rings that wrap, and a host that stalls and reorders."""
    card, queues = await two_workers(dut, latency=40, jitter=60, reorder=True, stall=0.3)
    await card.command(ABORT, 0)
    await card.tenant(0, workers=2, slots_log2=1, epoch=7)
    chunks, length = 24, 2 * segment(dut) - 4
    data = [[floats(length // 4, 100 * c + w) for w in range(2)] for c in range(chunks)]

    async def worker(w):
        ahead = 0
        for c in range(chunks):
            at = 0x1_0000 * c
            place(card.memory, source(w) + at, data[c][w])
            crc = zlib.crc32(card.memory.read(source(w) + at, length))
            await queues[w].submit(
                PUSH_PULL, seq=2 * c, length=length, src=source(w) + at, dst=result(w) + at, epoch=7, flags=CRC, crc=crc
            )
            ahead += 1
            while ahead > random.randint(0, 8):
                done = await queues[w].completion(100_000)
                assert done.status == 0, done
                ahead -= 1
        for _ in range(ahead):
            assert (await queues[w].completion(100_000)).status == 0

    tasks = [cocotb.start_soon(worker(w)) for w in range(2)]
    for task in tasks:
        await task
    for c in range(chunks):
        expected = [a + b for a, b in zip(*data[c])]
        for w in range(2):
            assert fetch(card.memory, result(w) + 0x1_0000 * c, length // 4) == expected, (c, w)
    await card.rest()


@cocotb.test()
async def keeps_the_adders_busy(dut):
    """With 1 us of read latency, chunks of 32 KiB from two workers keep nearly one beat a cycle."""
    card, queues = await two_workers(dut, latency=250)
    chunk = 32 * segment(dut)
    chunks = 4
    for c in range(chunks):
        for w, queue in enumerate(queues):
            at = 0x1_0000 * c
            await queue.submit(PUSH_PULL, seq=32 * c, length=chunk, src=source(w) + at, dst=result(w) + at, ring=False)
    begin = len(card.trace)
    for queue in queues:
        await queue.ring()
    clock = 0
    marks = []
    while len(card.trace) < begin + 64 * chunks:
        await cycles(dut)
        clock += 1
        if len(card.trace) - begin > len(marks):
            marks.append(clock)
        assert clock < 100_000
    for queue in queues:
        for _ in range(chunks):
            assert (await queue.completion()).status == 0
    perf = [await card.read64(PERF + 8 * i) for i in range(7)]
    beats = segment(dut) // (len(dut.m_axi_rdata) // 8)
    # The middle half, without the ends of the run.
    quarter = len(marks) // 4
    rate = 2 * quarter * beats / (marks[3 * quarter] - marks[quarter])
    cocotb.log.warning("%.3f beats a cycle; perf %s", rate, perf)
    if dut.Lanes.value.to_unsigned() == 16 and dut.ReadTags.value.to_unsigned() == 32:
        assert rate > 0.95


SIZES = {
    "default": {},
    "narrow": dict(Lanes=2, SegBytes=64, Slots=4, Tenants=2, Workers=4, Queues=4, DescDepth=2, ReadTags=2),
    "odd": dict(Lanes=8, SegBytes=256, Slots=256, Tenants=3, Workers=5, Queues=7, DescDepth=4, ReadTags=8),
}


@pytest.mark.parametrize("size", SIZES)
def test_phub_core(size):
    run("phub_core", **SIZES[size])
