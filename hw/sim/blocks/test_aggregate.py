# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""aggregate adds every beat to its place, in order, one a cycle, and tells the end of each segment once."""

import random

import cocotb
import floats
import pytest
from cocotb.triggers import FallingEdge, ReadOnly
from harness import STALLS, Sink, Source, cycles, run, start
from layout import CONST, pack, unpack

STATUSES = ["StDuplicate", "StMismatch", "StStaleSeq", "StStaleEpoch", "StCrcError", "StReadError", "StTenantOff"]
EVENTS = {
    "StDuplicate": "CntDuplicates",
    "StMismatch": "CntMismatches",
    "StStaleSeq": "CntStale",
    "StStaleEpoch": "CntStale",
    "StCrcError": "CntCrcErrors",
    "StReadError": "CntDmaErrors",
}
WRITTEN = 9  # cycles from a beat to its place


class Bench:
    """aggregate between its streams, and what its slots must hold."""

    async def begin(self, dut, idle=0.0, push_back=0.0):
        self.dut = dut
        self.lanes = dut.Lanes.value.to_unsigned()
        self.seg_bytes = dut.SegBytes.value.to_unsigned()
        self.slots = dut.Slots.value.to_unsigned()
        self.beats = self.seg_bytes // (4 * self.lanes)
        await start(dut)
        self.cmd = Source(dut, "cmd_valid_i", "cmd_ready_o", "cmd_i", idle)
        self.beat = Source(dut, "beat_valid_i", "beat_ready_o", "beat_data_i", idle)
        self.commits = Sink(dut, "commit_valid_o", "commit_ready_i", "commit_slot_o", push_back)
        self.counts = Sink(dut, "count_valid_o", "count_ready_i", "count_o", push_back)
        self.retired = Sink(dut, "retire_valid_o", None, "retire_o")
        self.traced = Sink(dut, "trace_valid_o", None, "trace_o")
        self.sums = {}  # (slot, beat) -> words
        self.due = {"commits": [], "counts": [], "retired": [], "traced": []}
        self.number = 0
        return self

    def segment(self, slot=0, beats=None, first=False, kind="add", status="StOk"):
        """One segment: kind is add, drop, abstain or refuse (an abstention)."""
        seq, self.number = self.number, self.number + 1
        size = self.seg_bytes if beats is None else max(4, 4 * self.lanes * beats - 4 * random.randrange(self.lanes))
        has_data = kind in ("add", "drop")
        hdr = {
            "status": CONST[status],
            "tenant": random.randrange(64),
            "worker": random.randrange(64),
            "queue": random.randrange(64),
            "didx": random.randrange(64),
            "seq": seq,
            "bytes": size,
            "has_data": has_data,
            "last": random.randrange(2),
        }
        first = first if kind == "add" else kind == "abstain"
        self.cmd.send(pack("agg_cmd_t", hdr=hdr, slot=slot, first=first, add=kind == "add"))
        if has_data:
            for beat in range((size + 4 * self.lanes - 1) // (4 * self.lanes)):
                words = floats.randoms(self.lanes)
                self.beat.send(floats.pack(words))
                if kind == "add":
                    old = self.sums.get((slot, beat))
                    self.sums[slot, beat] = (
                        [floats.stored(w) for w in words] if first else [floats.add(o, w) for o, w in zip(old, words)]
                    )
        events = ["CntSegmentsIn", "CntBytesIn"] if kind == "add" else []
        events += ["CntAbstains"] if kind == "abstain" else []
        events += [EVENTS[status]] if status in EVENTS else []
        if events:
            mask = sum(1 << CONST[name] for name in events)
            self.due["counts"].append(pack("count_ev_t", tenant=hdr["tenant"], events=mask, bytes=size))
        if kind == "add":
            self.due["commits"].append(slot)
        if kind in ("add", "abstain"):
            keys = {k: hdr[k] for k in ("tenant", "worker", "seq")}
            self.due["traced"].append(
                pack("trace_t", **keys, slot=slot, first=first and kind == "add", abstain=kind == "abstain")
            )
        keys = {k: hdr[k] for k in ("queue", "didx", "last", "status", "seq")}
        self.due["retired"].append(pack("retire_t", **keys))

    async def read(self, slot, beat):
        self.dut.rd_en_i.value = 1
        self.dut.rd_slot_i.value, self.dut.rd_beat_i.value = slot, beat
        await cycles(self.dut)
        self.dut.rd_en_i.value = 0
        self.dut.rd_slot_i.value = (slot + 1) % self.slots
        await cycles(self.dut)
        return floats.unpack(int(self.dut.rd_data_o.value), self.lanes)

    async def check(self):
        """Everything came out, once and in order, and the slots hold the sums."""
        for name, due in self.due.items():
            assert await getattr(self, name).get(len(due)) == due, name
        await cycles(self.dut, 20)
        for name, due in self.due.items():
            assert len(getattr(self, name).words) == len(due), name
        assert self.dut.idle_o.value == 1
        for (slot, beat), words in self.sums.items():
            assert await self.read(slot, beat) == words, f"slot {slot}, beat {beat}"

    async def entry(self):
        """Waits for the cycle in which a beat enters the adders."""
        for _ in range(100):
            await ReadOnly()
            if self.dut.perf_beat_o.value == 1:
                return
            await FallingEdge(self.dut.clk_i)
        raise AssertionError("no beat enters the adders")

    async def count_cycles(self):
        """Cycles from the first to the last beat that enters the adders, beats, cycles lost to hazards."""
        entered, hazards = [], 0
        for now in range(10_000):
            await FallingEdge(self.dut.clk_i)
            await ReadOnly()
            if self.cmd.accepted == self.number:
                break
            if self.dut.perf_beat_o.value == 1:
                entered.append(now)
            hazards += int(self.dut.perf_hazard_o.value)
        return entered[-1] - entered[0] + 1, len(entered), hazards


@cocotb.test()
@cocotb.parametrize(idle=STALLS, push_back=STALLS)
async def sums_in_order(dut, idle, push_back):
    """All kinds of segments of all lengths, a slot often hit again at once."""
    bench = await Bench().begin(dut, idle, push_back)
    for slot in range(bench.slots):
        bench.segment(slot, first=True)
    slot = 0
    for _ in range(60):
        if random.random() < 0.4:
            slot = random.randrange(bench.slots)
        beats = random.choice([None, 1, random.randint(1, bench.beats)])
        kind = random.choice(["add"] * 6 + ["drop", "abstain", "refuse"])
        if kind == "drop":
            bench.segment(slot, beats, kind=kind, status=random.choice(STATUSES))
        elif kind == "refuse":
            bench.segment(slot, beats, kind=kind, status=random.choice(["StOk", "StStaleSeq"]))
        else:
            bench.segment(slot, beats, kind=kind, first=kind == "add" and beats is None and random.random() < 0.2)
    await bench.check()


@cocotb.test()
async def full_segments_flow_without_a_gap(dut):
    """To different slots always; to the same one if it has more beats than the pipeline has stages."""
    bench = await Bench().begin(dut)
    one = bench.slots == 1 or bench.beats < WRITTEN
    for slot in range(bench.slots):
        bench.segment(slot, first=True)
    for i in range(40):
        bench.segment(i % bench.slots)
    if not one:
        for _ in range(10):
            bench.segment(1)
    span, beats, hazards = await bench.count_cycles()
    cocotb.log.info("%d beats in %d cycles, %d lost to hazards", beats, span, hazards)
    assert beats == bench.number * bench.beats
    distance = bench.beats * bench.slots  # beats between two uses of a place
    if distance >= WRITTEN:
        assert span == beats and hazards == 0
    else:
        assert span <= beats * WRITTEN / distance + WRITTEN
    await bench.check()


@cocotb.test()
async def short_segments_to_one_slot_wait_for_each_other(dut):
    bench = await Bench().begin(dut)
    bench.segment(1, beats=1, first=True)
    for _ in range(30):
        bench.segment(1, beats=1)
    span, beats, hazards = await bench.count_cycles()
    assert beats == 31 and hazards == 30 * (WRITTEN - 1) and span == 30 * WRITTEN + 1
    await bench.check()


@cocotb.test()
async def short_segments_to_other_slots_do_not_wait(dut):
    bench = await Bench().begin(dut)
    for slot in range(bench.slots):
        bench.segment(slot, beats=1, first=True)
    for slot in range(bench.slots):
        bench.segment(slot, beats=1, first=True)  # a first contribution reads nothing, so it never waits
    span, beats, hazards = await bench.count_cycles()
    assert span == beats == 2 * bench.slots and hazards == 0
    await bench.check()


@cocotb.test()
async def a_commit_means_that_the_sum_is_there(dut):
    """commit comes WRITTEN cycles after the last beat, and egress may read at once."""
    bench = await Bench().begin(dut)
    for first in (True, False, False):
        bench.segment(0, beats=1, first=first)
        await bench.entry()
        await cycles(dut, WRITTEN)
        assert dut.commit_valid_o.value == 1
        assert await bench.read(0, 0) == bench.sums[0, 0]
    await bench.check()


@cocotb.test()
async def a_stalled_commit_stops_everything_and_loses_nothing(dut):
    bench = await Bench().begin(dut, push_back=1.0)
    for slot in range(bench.slots):
        bench.segment(slot, beats=1, first=True)
    for i in range(40):
        bench.segment(i % bench.slots, beats=1)
    await cycles(dut, 1000)
    assert bench.cmd.accepted < 40 and not bench.retired.words
    assert dut.idle_o.value == 0
    bench.commits._stall = bench.counts._stall = 0.0
    await bench.check()


@pytest.mark.parametrize("lanes,seg_bytes,slots", [(16, 1024, 4), (2, 64, 2), (1, 64, 4)])
def test_aggregate(lanes, seg_bytes, slots):
    run("aggregate", Lanes=lanes, SegBytes=seg_bytes, Slots=slots)
