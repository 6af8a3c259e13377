# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""egress reads, divides and hands on every result, one beat a cycle, with the CRC and the flags of its descriptor."""

import random
import zlib

import cocotb
import floats
import pytest
from cocotb.triggers import FallingEdge, ReadOnly
from harness import STALLS, Sink, Source, cycles, run, start
from layout import CONST, pack


class Bench:
    """egress, a slot RAM in front of it, and what must come out."""

    async def begin(self, dut, idle=0.0, push_back=0.0):
        self.dut = dut
        self.lanes = dut.Lanes.value.to_unsigned()
        self.seg_bytes = dut.SegBytes.value.to_unsigned()
        self.queues = dut.Queues.value.to_unsigned()
        self.ram = {}
        await start(dut)
        self.jobs = Source(dut, "job_valid_i", "job_ready_o", "job_i", idle)
        leave = ["leave_slot_o", "leave_worker_o", "leave_seq_o"]
        self.sinks = {
            "leave": Sink(dut, "leave_valid_o", "leave_ready_i", leave, push_back),
            "wr": Sink(dut, "wr_valid_o", "wr_ready_i", "wr_o", push_back),
            "beat": Sink(dut, "wbeat_valid_o", "wbeat_ready_i", "wbeat_data_o", push_back),
            "end": Sink(dut, "end_valid_o", "end_ready_i", "end_o", push_back),
            "count": Sink(dut, "count_valid_o", "count_ready_i", "count_o", push_back),
        }
        self.due = {name: [] for name in self.sinks}
        self.descriptors = {}  # queue -> result so far
        self.number = 0
        self.reads = []  # (cycle, place)
        cocotb.start_soon(self._answer())
        return self

    async def _answer(self):
        """The slot RAM: a word 2 cycles after it was asked for, noise otherwise."""
        pipe, now = [None, None], 0
        while True:
            await FallingEdge(self.dut.clk_i)
            now += 1
            place = pipe.pop(0)
            noise = random.getrandbits(32 * self.lanes)
            self.dut.rd_data_i.value = noise if place is None else floats.pack(self.ram[place])
            await ReadOnly()
            asked = self.dut.rd_en_o.value == 1
            place = (int(self.dut.rd_slot_o.value), int(self.dut.rd_beat_o.value)) if asked else None
            pipe.append(place)
            if asked:
                self.reads.append((now, place))

    def job(self, queue=0, words=None, first=True, last=True, mean=False, empty=False, count=1, wild=True):
        """One job; `words` of result (0: only a completion), by default a full segment."""
        number, self.number = self.number, self.number + 1
        words = self.seg_bytes // 4 if words is None else words
        done = {
            "queue": queue,
            "tenant": random.randrange(64),
            "cid": number,
            "status": 0 if words else random.randrange(14),
            "seq": random.getrandbits(32),
            "contributors": random.getrandbits(64),
            "count": 0 if empty else count,
            "bytes": random.getrandbits(20),
        }
        slot, worker, addr = number, random.randrange(64), random.getrandbits(58) << 6
        self.jobs.send(
            pack(
                "egress_job_t",
                done=done,
                worker=worker,
                slot=slot,
                bytes=4 * words,
                addr=addr,
                mean=mean,
                empty=empty,
                first=first,
                last=last,
            )
        )
        result = []
        for beat in range(-(-words // self.lanes)):
            stored = [w if wild or not floats.is_wild(w) else 0 for w in floats.randoms(self.lanes)]
            stored = [floats.stored(w) for w in stored]
            self.ram[slot, beat] = stored
            out = [0 if empty else floats.mean(w, count) if mean else w for w in stored]
            self.due["beat"].append(floats.pack(out))
            result += out
        result = result[:words]
        so_far = [] if first else self.descriptors[queue]
        self.descriptors[queue] = so_far = so_far + result
        if words or last:
            self.due["wr"].append(pack("wr_req_t", addr=addr, bytes=4 * words, queue=queue, last=last))
        if words:
            events = ["CntSegmentsOut", "CntBytesOut"] + ["CntNonFinite"] * any(map(floats.is_wild, result))
            mask = sum(1 << CONST[name] for name in events)
            self.due["count"].append(pack("count_ev_t", tenant=done["tenant"], events=mask, bytes=4 * words))
            self.due["leave"].append((slot, worker, done["seq"]))
        if last:
            crc = zlib.crc32(b"".join(w.to_bytes(4, "little") for w in so_far))
            self.due["end"].append(pack("finish_t", done=done, crc=crc, non_finite=any(map(floats.is_wild, so_far))))

    async def check(self):
        for name, due in self.due.items():
            words = await self.sinks[name].get(len(due))
            for i, (got, expected) in enumerate(zip(words, due)):
                assert got == expected, f"{name} {i}: {got} instead of {expected}"
        await cycles(self.dut, 20)
        for name, due in self.due.items():
            assert len(self.sinks[name].words) == len(due), name
        assert self.dut.idle_o.value == 1


@cocotb.test()
@cocotb.parametrize(idle=STALLS, push_back=STALLS)
async def results_of_interleaved_queues(dut, idle, push_back):
    bench = await Bench().begin(dut, idle, push_back)
    open_queues = set()
    full = bench.seg_bytes // 4
    for _ in range(40):
        queue = random.randrange(bench.queues)
        words = random.choice([full, full, 1, random.randint(1, full)])
        last = random.random() < 0.4
        first = queue not in open_queues
        if last and random.random() < 0.3:
            words = 0
        bench.job(
            queue,
            words,
            first,
            last,
            mean=random.random() < 0.5,
            empty=random.random() < 0.1,
            count=random.randint(1, 64),
            wild=random.random() < 0.3,
        )
        (open_queues.discard if last else open_queues.add)(queue)
    await bench.check()


@cocotb.test()
async def a_beat_a_cycle_without_a_gap(dut):
    bench = await Bench().begin(dut)
    for i in range(20):
        bench.job(i % bench.queues, mean=True, count=3)
    await bench.check()
    span = bench.reads[-1][0] - bench.reads[0][0] + 1
    beats = len(bench.due["beat"])
    cocotb.log.info("%d beats in %d cycles", beats, span)
    assert len(bench.reads) == beats
    assert span == beats


@cocotb.test()
async def every_count_divides(dut):
    bench = await Bench().begin(dut)
    for count in range(1, 65):
        bench.job(words=bench.lanes, mean=True, count=count)
    await bench.check()


@cocotb.test()
async def bytes_beyond_the_result_do_not_count(dut):
    """The rest of the last beat may hold anything: no flag, no CRC of it."""
    bench = await Bench().begin(dut)
    for words in range(1, bench.lanes + 1):
        bench.job(words=words, wild=False)
        beat = max(beat for slot, beat in bench.ram if slot == bench.number - 1)
        place = (bench.number - 1, beat)
        rest = words % bench.lanes or bench.lanes
        bench.ram[place] = bench.ram[place][:rest] + [floats.NAN] * (bench.lanes - rest)
        bench.due["beat"][-1] = floats.pack(bench.ram[place])
    await bench.check()


@cocotb.test()
async def a_stalled_host_stops_the_reads(dut):
    """Nothing is read that there is no room for, and nothing is lost."""
    bench = await Bench().begin(dut, push_back=1.0)
    for i in range(12):
        bench.job(i % bench.queues)
    await cycles(dut, 500)
    assert len(bench.reads) <= 16 and not bench.sinks["end"].words and dut.idle_o.value == 0
    for sink in bench.sinks.values():
        sink._stall = 0.0
    await bench.check()


@pytest.mark.parametrize("lanes,seg_bytes,queues", [(16, 1024, 4), (2, 64, 3), (1, 64, 1)])
def test_egress(lanes, seg_bytes, queues):
    run("egress", Lanes=lanes, SegBytes=seg_bytes, Queues=queues)
