# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""desc_exec: descriptors become segments in order, none before its slot will take it, and nobody waits for others' slots."""

import random
from collections import deque

import cocotb
import pytest
from cocotb.triggers import FallingEdge, ReadOnly
from harness import Sink, cycles, run, start
from layout import CONST, pack, unpack
from tables import Lookup

PUSH, PULL, PUSH_PULL = (CONST[name] for name in ("OpPush", "OpPull", "OpPushPull"))
CRC, WAIVE = (1 << CONST[f"Flag{name}"] for name in ("Crc", "Waive"))
EPOCH = 3
SLOTS_LOG2 = 2


class Bench:
    """Ring, slots and the stages behind, each as slow as `stall`. Queue q belongs to tenant q % 2, as worker q."""

    @classmethod
    async def create(cls, dut, stall=0.0):
        bench = cls()
        bench.dut, bench.stall = dut, stall
        bench.queues = dut.Queues.value.to_unsigned()
        bench.seg = dut.SegBytes.value.to_unsigned()
        bench.ring = {q: deque() for q in range(bench.queues)}  # (descriptor, refused)
        bench.pushed = {q: 0 for q in range(bench.queues)}
        bench.limit = {0: 1 << 32, 1: 1 << 32}  # of a tenant: sequence numbers from here on find their slots taken
        bench.asked, bench.waited, bench.skipped = [], set(), 0
        await start(dut)
        rows = {q: pack("queue_cfg_t", enable=1, tenant=q % 2, worker=q) for q in range(bench.queues)}
        config = dict(enable=1, workers=bench.queues, epoch=EPOCH, slot_log2=SLOTS_LOG2)
        Lookup(dut, "queue_o", "cfg_i", rows)
        bench.tenants = Lookup(
            dut, "tenant_o", "tenant_cfg_i", {t: pack("tenant_cfg_t", slot_base=16 * t, **config) for t in range(2)}
        ).rows
        bench.segments = Sink(dut, "rd_valid_o", "rd_ready_i", "rd_o", stall)
        bench.counts = Sink(dut, "count_valid_o", "count_ready_i", "count_o", stall)
        for queue in range(bench.queues):
            dut.start_queue_i.value, dut.start_tenant_i.value, dut.start_valid_i.value = queue, queue % 2, 1
            await FallingEdge(dut.clk_i)
        dut.start_valid_i.value = 0
        bench.retired = 0
        bench.retiring = True
        for part in (bench._serve_ring, bench._serve_slots, bench._retire):
            cocotb.start_soon(part())
        return bench

    def _pause(self):
        return random.random() < self.stall

    async def push(self, queue, refused=False, **fields):
        fields = dict(epoch=EPOCH, key=random.getrandbits(32), src=random.getrandbits(40) << 6) | fields
        self.ring[queue].append((fields, refused))
        self.dut.fetched_queue_i.value, self.dut.fetched_valid_i.value = queue, 1
        await FallingEdge(self.dut.clk_i)
        self.dut.fetched_valid_i.value = 0

    async def free(self, tenant, limit):
        self.limit[tenant] = limit
        self.dut.freed_tenant_i.value, self.dut.freed_valid_i.value = tenant, 1
        await FallingEdge(self.dut.clk_i)
        self.dut.freed_valid_i.value = 0

    async def _serve_ring(self):
        dut = self.dut
        answer = (1, 0, 0, 0)
        while True:
            await FallingEdge(dut.clk_i)
            ports = (dut.ex_empty_i, dut.ex_didx_i, dut.ex_desc_i, dut.ex_refused_i)
            for port, value in zip(ports, answer):
                port.value = value
            await ReadOnly()
            queue = dut.ex_queue_o.value.to_unsigned()
            entries = self.ring[queue]
            answer = (1, 0, 0, 0)
            if entries:
                fields, refused = entries[0]
                answer = (0, self.pushed[queue] % 64, pack("desc_t", **fields), int(refused))
            if dut.ex_next_o.value == 1:
                assert dut.ex_skipped_o.value == entries[0][1]
                self.skipped += entries[0][1]
                entries.popleft()
                self.pushed[queue] += 1

    async def _serve_slots(self):
        dut = self.dut
        pending = deque([None, None])
        while True:
            await FallingEdge(dut.clk_i)
            answer = pending.popleft()
            dut.ask_rsp_valid_i.value = int(answer is not None)
            dut.ask_rsp_wait_i.value = int(bool(answer))
            ready = not self._pause()
            dut.ask_ready_i.value = int(ready)
            await ReadOnly()
            pending.append(None)
            if ready and dut.ask_valid_o.value == 1:
                slot, seq = dut.ask_slot_o.value.to_unsigned(), dut.ask_seq_o.value.to_unsigned()
                tenant = slot // 16
                assert slot == 16 * tenant + seq % (1 << SLOTS_LOG2)
                pending[-1] = seq >= self.limit[tenant]
                self.asked.append((tenant, seq))
                if pending[-1]:
                    self.waited.add((dut.queue_o.value.to_unsigned(), seq))

    async def _retire(self):
        """Segments are through in order, some time after they were sent."""
        dut = self.dut
        while True:
            await FallingEdge(dut.clk_i)
            valid = self.retiring and self.retired < len(self.segments.words) and not self._pause()
            dut.retire_valid_i.value = int(valid)
            if valid:
                dut.retire_queue_i.value = unpack("rd_req_t", self.segments.words[self.retired]).queue
                self.retired += 1

    def inflight(self, queue):
        return sum(unpack("rd_req_t", w).queue == queue for w in self.segments.words[self.retired :])

    def expected(self, queue, didx, fields):
        """The segments of a descriptor, as they must be sent."""
        length, opcode, flags = fields["length"], fields["opcode"], fields.get("flags", 0)
        for offset in range(0, length, self.seg):
            size = min(self.seg, length - offset)
            last = offset + size == length
            data = opcode != PULL
            header = dict(tenant=queue % 2, worker=queue, queue=queue, didx=didx, epoch=fields["epoch"], bytes=size)
            header |= dict(seq=fields["seq"] + offset // self.seg, key=fields["key"], has_data=int(data))
            header |= dict(waive=int(opcode == PUSH and bool(flags & WAIVE)), first=int(offset == 0), last=int(last))
            header |= dict(crc_en=int(bool(flags & CRC)), crc_check=int(bool(flags & CRC) and last))
            header |= dict(crc=fields.get("crc", 0))
            yield pack("rd_req_t", queue=queue, addr=fields["src"] + offset, bytes=size if data else 0, hdr=header)


def kinds(seg):
    segments = random.randint(1, 4)
    length = seg * segments - random.choice([0, 0, 4, seg - 4])
    return random.choice(
        [
            dict(opcode=PUSH_PULL, length=length),
            dict(opcode=PULL, length=length),
            dict(opcode=PUSH, length=length, flags=WAIVE),
            dict(opcode=PUSH, length=length, flags=CRC, crc=random.getrandbits(32)),
        ]
    )


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def cuts_descriptors_in_order(dut, stall):
    bench = await Bench.create(dut, stall)
    wanted = {q: [] for q in range(bench.queues)}
    seqs = [0] * bench.queues
    pushed = refusals = 0
    didx = [0] * bench.queues
    bench.limit = {0: 2, 1: 2}
    for step in range(20_000):
        await FallingEdge(dut.clk_i)
        queue = random.randrange(bench.queues)
        if pushed < 40 and len(bench.ring[queue]) < 4 and step % 7 == 0:
            refused = random.random() < 0.2
            fields = dict(kinds(bench.seg), seq=seqs[queue])
            await bench.push(queue, refused, **fields)
            fields = bench.ring[queue][-1][0] if bench.ring[queue] else fields
            if not refused:
                wanted[queue] += bench.expected(queue, didx[queue] % 64, fields)
                seqs[queue] += -(-fields["length"] // bench.seg)
            refusals += refused
            didx[queue] += 1
            pushed += 1
        for q in range(bench.queues):
            assert bench.inflight(q) <= 1 << SLOTS_LOG2, "two segments on their way to one slot"
        if step % 50 == 0:
            tenant = random.randrange(2)
            await bench.free(tenant, bench.limit[tenant] + random.randint(0, 2))
        total = sum(map(len, wanted.values()))
        if pushed == 40 and bench.retired == total and bench.skipped == refusals:
            break
    else:
        raise AssertionError(f"{bench.retired} of {sum(map(len, wanted.values()))} segments after {step} cycles")
    for q in range(bench.queues):
        got = [w for w in bench.segments.words if unpack("rd_req_t", w).queue == q]
        assert got == wanted[q], q
    # A wait counts once, however often it was asked about.
    await cycles(dut, 60)
    assert 0 < len(bench.counts.words) == len(bench.waited) < len(bench.asked)
    assert dut.idle_o.value == 1 and dut.busy_o.value == 0


@cocotb.test()
async def a_wait_holds_its_own_queue_only(dut):
    bench = await Bench.create(dut)
    bench.limit[0] = 0
    await bench.push(0, opcode=PUSH, length=bench.seg, seq=0)
    await bench.push(1, opcode=PUSH, length=3 * bench.seg, seq=0)
    await cycles(dut, 200)
    queues = [unpack("rd_req_t", w).queue for w in bench.segments.words]
    assert queues == [1, 1, 1] and len(bench.counts.words) == 1
    event = unpack("count_ev_t", bench.counts.words[0])
    assert (event.tenant, event.events) == (0, 1 << CONST["CntSlotWaits"])
    assert dut.busy_o.value == 0 and dut.perf_slot_o.value == 1
    # Slots of another tenant do not wake it.
    asked = len(bench.asked)
    await bench.free(1, 9)
    await cycles(dut, 40)
    assert len(bench.asked) == asked
    await bench.free(0, 9)
    await cycles(dut, 40)
    assert len(bench.segments.words) == 4


@cocotb.test()
@cocotb.parametrize(
    case=[dict(epoch=EPOCH - 1), dict(tenant=dict(enable=0)), dict(tenant=dict(workers=1)), dict(tenant=dict(epoch=99))]
)
async def what_will_not_be_admitted_waits_for_no_slot(dut, case):
    bench = await Bench.create(dut)
    bench.limit = {0: 0, 1: 0}
    config = dict(enable=1, workers=bench.queues, epoch=EPOCH, slot_log2=SLOTS_LOG2) | case.get("tenant", {})
    bench.tenants[1] = pack("tenant_cfg_t", **config)
    await bench.push(1, opcode=PUSH, length=2 * bench.seg, seq=7, **{k: v for k, v in case.items() if k == "epoch"})
    await cycles(dut, 100)
    assert len(bench.segments.words) == 2 and not bench.asked


@cocotb.test()
async def pauses_between_segments(dut):
    bench = await Bench.create(dut)
    await bench.push(0, opcode=PUSH, length=8 * bench.seg, seq=0)
    await cycles(dut, 12)
    dut.pause_i.value = 1
    await cycles(dut, 30)
    sent = len(bench.segments.words)
    assert 0 < sent < 8 and dut.idle_o.value == 1 and dut.busy_o.value == 1
    # A flush takes the descriptor away; the next one begins at its beginning.
    bench.ring[0].clear()
    dut.flush_queue_i.value, dut.flush_valid_i.value = 0, 1
    await FallingEdge(dut.clk_i)
    dut.flush_valid_i.value = 0
    dut.pause_i.value = 0
    await cycles(dut, 30)
    assert len(bench.segments.words) == sent
    await bench.push(0, opcode=PUSH, length=bench.seg, seq=100)
    await cycles(dut, 30)
    header = unpack("rd_req_t", bench.segments.words[-1]).hdr
    assert len(bench.segments.words) == sent + 1 and (header.seq, header.first, header.last) == (100, 1, 1)


@cocotb.test()
async def a_segment_takes_few_cycles(dut):
    """At most the 16 cycles that a full segment of 16 beats lasts."""
    bench = await Bench.create(dut)
    for queue in range(2):
        await bench.push(queue, opcode=PUSH, length=64 * bench.seg, seq=0)
    begin = len(bench.segments.words)
    await cycles(dut, 320)
    segments = len(bench.segments.words) - begin
    cocotb.log.info("%.1f cycles a segment", 320 / segments)
    assert segments >= 320 // 10


@pytest.mark.parametrize("queues, seg_bytes, lanes", [(4, 1024, 16), (2, 64, 1)])
def test_desc_exec(queues, seg_bytes, lanes):
    run("desc_exec", Queues=queues, SegBytes=seg_bytes, Lanes=lanes)
