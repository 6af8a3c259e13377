# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""egress_sched: results and completions in order, none too early, and nobody forgotten by a flush."""

import random
from collections import deque

import cocotb
import pytest
from cocotb.triggers import FallingEdge, ReadOnly
from harness import Sink, cycles, run, start
from layout import CONST, pack, unpack
from tables import Lookup

PUSH, PULL, PUSH_PULL = (CONST[name] for name in ("OpPush", "OpPull", "OpPushPull"))
OK, ABORTED, MISMATCH, STALE = (CONST[f"St{name}"] for name in ("Ok", "Aborted", "Mismatch", "StaleSeq"))
MEAN = 1 << CONST["FlagMean"]
EPOCH = 5
CONTRIBUTORS = 0b1011


class Entry:
    """A descriptor on the card and how its segments went in."""

    def __init__(self, seg, status=OK, **fields):
        self.fields = dict(cid=random.getrandbits(16), dst=random.getrandbits(40) << 6, epoch=EPOCH) | fields
        self.segments = -(-fields["length"] // seg)
        self.sq_head = random.getrandbits(12)
        self.refused, self.status = status != OK, status
        self.through, self.failed_at, self.passed = 0, fields["seq"], False

    @property
    def done(self):
        return self.passed if self.refused else self.through == self.segments

    @property
    def seq(self):
        """As desc_ring states it: of the first failure, else of the last segment that is through."""
        return (self.failed_at if self.status else self.fields["seq"] + self.through - 1) % (1 << 32)


class Bench:
    """Queue q belongs to tenant q % 2, as worker q. Segments below `limit` of a tenant are complete."""

    @classmethod
    async def create(cls, dut, stall=0.0):
        bench = cls()
        bench.dut, bench.stall = dut, stall
        bench.queues = dut.Queues.value.to_unsigned()
        bench.seg = dut.SegBytes.value.to_unsigned()
        bench.ring = {q: deque() for q in range(bench.queues)}
        bench.limit, bench.stale = {0: 0, 1: 0}, set()
        await start(dut)
        rows = {q: pack("queue_cfg_t", enable=1, tenant=q % 2, worker=q) for q in range(bench.queues)}
        tenants = {t: dict(enable=1, workers=4, epoch=EPOCH + t, slot_base=16 * t, slot_log2=4) for t in range(2)}
        Lookup(dut, "queue_o", "cfg_i", rows)
        Lookup(dut, "tenant_o", "tenant_cfg_i", {t: pack("tenant_cfg_t", **c) for t, c in tenants.items()})
        bench.jobs = Sink(dut, "job_valid_o", "job_ready_i", "job_o", stall)
        bench.pops = Sink(dut, "pop_valid_o", "pop_ready_i", "pop_queue_o", stall)
        bench.flushed = Sink(dut, "flushed_valid_o", None, "flushed_queue_o")
        for queue in range(bench.queues):
            dut.start_queue_i.value, dut.start_tenant_i.value, dut.start_valid_i.value = queue, queue % 2, 1
            await FallingEdge(dut.clk_i)
        dut.start_valid_i.value = 0
        for part in (bench._serve_ring, bench._serve_slots):
            cocotb.start_soon(part())
        return bench

    async def _serve_ring(self):
        dut = self.dut
        names = ["cl_empty_i", "cl_didx_i", "cl_desc_i", "cl_sq_head_i", "cl_done_i", "cl_status_i", "cl_seq_i"]
        answer = (1, 0, 0, 0, 0, 0, 0)
        while True:
            await FallingEdge(dut.clk_i)
            for name, value in zip(names, answer):
                getattr(dut, name).value = value
            await ReadOnly()
            entries = self.ring[dut.cl_queue_o.value.to_unsigned()]
            answer = (1, 0, 0, 0, 0, 0, 0)
            if entries:
                e = entries[0]
                answer = (0, 0, pack("desc_t", **e.fields), e.sq_head, int(e.done), e.status, e.seq)
            if dut.cl_next_o.value == 1:
                entry = entries.popleft()
                assert entry.done or dut.cl_flush_o.value == 1

    async def _serve_slots(self):
        dut = self.dut
        pending = deque([None, None])
        while True:
            await FallingEdge(dut.clk_i)
            answer = pending.popleft()
            dut.look_rsp_valid_i.value = int(answer is not None)
            dut.look_rsp_i.value = answer or 0
            ready = random.random() >= self.stall
            dut.look_ready_i.value = int(ready)
            await ReadOnly()
            pending.append(None)
            if ready and dut.look_valid_o.value == 1:
                tenant, seq = dut.look_tenant_o.value.to_unsigned(), dut.look_seq_o.value.to_unsigned()
                queue = dut.look_worker_o.value.to_unsigned()
                assert dut.look_slot_o.value.to_unsigned() == 16 * tenant + seq % 16 and tenant == queue % 2
                complete = seq < self.limit[tenant]
                fields = dict(ready=int(complete), stale=int((tenant, seq) in self.stale))
                pending[-1] = pack("slot_answer_t", contributors=CONTRIBUTORS, count=3, **fields)

    def add(self, queue, **fields):
        entry = Entry(self.seg, **fields)
        self.ring[queue].append(entry)
        return entry

    async def retire(self, queue, entry, status=OK):
        if status and not entry.status:
            entry.status, entry.failed_at = status, entry.fields["seq"] + entry.through
        entry.through += 1
        self.dut.retire_queue_i.value, self.dut.retire_valid_i.value = queue, 1
        await FallingEdge(self.dut.clk_i)
        self.dut.retire_valid_i.value = 0

    async def skip(self, queue, entry):
        entry.passed = True
        self.dut.skipped_queue_i.value, self.dut.skipped_valid_i.value = queue, 1
        await FallingEdge(self.dut.clk_i)
        self.dut.skipped_valid_i.value = 0

    async def complete(self, tenant, limit):
        self.limit[tenant] = limit
        self.dut.complete_tenant_i.value, self.dut.complete_valid_i.value = tenant, 1
        await FallingEdge(self.dut.clk_i)
        self.dut.complete_valid_i.value = 0

    async def flush(self, tenant, index):
        dut = self.dut
        dut.pause_i.value = 1
        await cycles(dut, 30)
        assert dut.idle_o.value == 1
        dut.flush_tenant_i.value, dut.flush_index_i.value, dut.flush_valid_i.value = int(tenant), index, 1
        for _ in range(3000):
            await FallingEdge(dut.clk_i)
            if dut.flush_done_o.value == 1:
                dut.flush_valid_i.value = 0
                dut.pause_i.value = 0
                return
        raise AssertionError("the flush does not end")

    def of(self, queue):
        jobs = [unpack("egress_job_t", word) for word in self.jobs.words]
        return [job for job in jobs if job.done.queue == queue]


def check_job(bench, queue, job, entry, index, status=OK):
    """Job `index` of the descriptor: a segment, or with index None its completion without one."""
    fields, seg = entry.fields, bench.seg
    done = job.done
    assert (done.tenant, job.worker, done.cid) == (queue % 2, queue, fields["cid"])
    length = fields["length"]
    if index is None:
        assert (job.bytes, job.last, done.status) == (0, 1, status), job
    else:
        size = min(seg, length - index * seg)
        last = index == entry.segments - 1
        slot = 16 * (queue % 2) + (fields["seq"] + index) % 16
        assert (job.bytes, job.addr, job.slot) == (size, fields["dst"] + index * seg, slot)
        assert (job.first, job.last, done.status) == (int(index == 0), int(last), OK)
        assert (done.seq, done.contributors, done.count) == (fields["seq"] + index, CONTRIBUTORS, 3)
        assert job.mean == int(bool(fields.get("flags", 0) & MEAN))
    if job.last:
        assert (done.opcode, done.flags) == (fields["opcode"], fields.get("flags", 0))
        assert (done.epoch, done.sq_head) == (EPOCH + queue % 2, entry.sq_head)


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def closes_in_order_and_not_too_early(dut, stall):
    bench = await Bench.create(dut, stall)
    plan = {q: [] for q in range(bench.queues)}
    for queue in plan:
        seq = 0
        for _ in range(8):
            length = bench.seg * random.randint(1, 3) - random.choice([0, 0, 4])
            opcode, flags = random.choice([(PUSH, 0), (PULL, MEAN), (PUSH_PULL, 0)])
            status = random.choice([OK] * 5 + [CONST["StBadAlign"]])
            entry = bench.add(queue, opcode=opcode, flags=flags, length=length, seq=seq, status=status)
            # Some fail on the way in, at one of their segments.
            fails = random.randrange(entry.segments) if random.random() < 0.2 and status == OK else None
            plan[queue].append((entry, fails))
            seq += entry.segments
    moves = [(q, e, f) for q in plan for e, f in plan[q]]
    cursor = {q: 0 for q in plan}
    checked = {q: 0 for q in plan}
    for step in range(30_000):
        await FallingEdge(dut.clk_i)
        # Each job is of what has come in and is complete.
        for queue in plan:
            jobs = bench.of(queue)
            for job in jobs[checked[queue] :]:
                if job.bytes:
                    entry = next(e for e, _ in plan[queue] if e.fields["cid"] == job.done.cid)
                    index = job.done.seq - entry.fields["seq"]
                    assert index < entry.through and job.done.seq < bench.limit[queue % 2]
            checked[queue] = len(jobs)
        if step % 40 == 0:
            tenant = random.randrange(2)
            await bench.complete(tenant, bench.limit[tenant] + 1)
        elif step % 10 == 0:
            queue = random.choice([q for q in plan if cursor[q] < len(plan[q])] or [0])
            if cursor[queue] < len(plan[queue]):
                entry, fails = plan[queue][cursor[queue]]
                if entry.refused:
                    await bench.skip(queue, entry)
                else:
                    await bench.retire(queue, entry, MISMATCH if entry.through == fails else OK)
                cursor[queue] += entry.done
        if len(bench.pops.words) == len(moves):
            break
    else:
        raise AssertionError(f"{len(bench.pops.words)} of {len(moves)} descriptors closed")
    for queue in plan:
        jobs = deque(bench.of(queue))
        for entry, fails in plan[queue]:
            results = 0
            while jobs and jobs[0].bytes and jobs[0].done.cid == entry.fields["cid"]:
                job = jobs.popleft()
                check_job(bench, queue, job, entry, results)
                results += 1
                if job.last:
                    break
            whole = results == entry.segments
            if not whole:
                job = jobs.popleft()
                check_job(bench, queue, job, entry, None, entry.status)
                assert job.done.seq == (entry.failed_at if entry.status else entry.fields["seq"] + entry.segments - 1)
                assert job.done.bytes == (results * bench.seg if entry.status else entry.fields["length"])
                assert results <= (0 if fails is None else fails)
            assert whole == (entry.status == OK and entry.fields["opcode"] != PUSH)
        assert not jobs
    await cycles(dut, 20)
    assert dut.busy_o.value == 0


@cocotb.test()
async def a_slot_that_moved_on_is_stale(dut):
    bench = await Bench.create(dut)
    entry = bench.add(0, opcode=PULL, length=2 * bench.seg, seq=4)
    bench.limit[0] = 5
    bench.stale.add((0, 5))
    await bench.retire(0, entry)
    await bench.retire(0, entry)
    await bench.pops.get(1)
    jobs = bench.of(0)
    check_job(bench, 0, jobs[0], entry, 0)
    check_job(bench, 0, jobs[1], entry, None, STALE)
    assert (jobs[1].done.seq, jobs[1].done.bytes) == (5, bench.seg)


@cocotb.test()
async def abort_closes_all_of_a_tenant_and_nothing_else(dut):
    bench = await Bench.create(dut)
    pull = bench.add(0, opcode=PUSH_PULL, length=3 * bench.seg, seq=0)
    push = bench.add(0, opcode=PUSH, length=2 * bench.seg, seq=3)
    refused = bench.add(0, opcode=PUSH, length=bench.seg, seq=9, status=MISMATCH)
    other = bench.add(1, opcode=PUSH_PULL, length=bench.seg, seq=0)
    bench.limit[0] = 1
    for _ in range(2):
        await bench.retire(0, pull)
    await cycles(dut, 60)
    assert len(bench.of(0)) == 1
    # The other tenant's slot completes just when the pause begins: its wake-up must outlive the flush.
    await bench.retire(1, other)
    await cycles(dut, 30)
    dut.pause_i.value = 1
    await bench.complete(1, 1)
    await bench.flush(tenant=True, index=0)
    await bench.pops.get(4)
    jobs = bench.of(0)[1:]
    check_job(bench, 0, jobs[0], pull, None, ABORTED)
    assert (jobs[0].done.seq, jobs[0].done.bytes, jobs[0].done.contributors) == (1, bench.seg, CONTRIBUTORS)
    check_job(bench, 0, jobs[1], push, None, ABORTED)
    assert (jobs[1].done.seq, jobs[1].done.bytes) == (3, 0)
    check_job(bench, 0, jobs[2], refused, None, MISMATCH)
    assert bench.flushed.words == [0, 0, 0] and bench.pops.words == [0, 0, 0, 1]
    check_job(bench, 1, bench.of(1)[0], other, 0)
    # The next descriptor of the flushed queue begins at its beginning.
    entry = bench.add(0, opcode=PULL, length=2 * bench.seg, seq=0)
    await bench.complete(0, 2)
    await bench.retire(0, entry)
    await bench.retire(0, entry)
    await bench.pops.get(5)
    check_job(bench, 0, bench.of(0)[-2], entry, 0)


@cocotb.test()
async def stop_forgets_one_queue_silently(dut):
    bench = await Bench.create(dut)
    last = bench.queues - 1
    for queue in (0, last):
        for seq in range(3):
            bench.add(queue, opcode=PUSH, length=bench.seg, seq=seq)
    await bench.flush(tenant=False, index=last)
    await cycles(dut, 30)
    assert not bench.jobs.words and bench.flushed.words == [last] * 3 and bench.pops.words == [last] * 3
    assert len(bench.ring[0]) == 3 and not bench.ring[last]


@cocotb.test()
async def a_segment_takes_few_cycles(dut):
    bench = await Bench.create(dut)
    bench.limit = {0: 1 << 30, 1: 1 << 30}
    for queue in range(2):
        entry = bench.add(queue, opcode=PULL, length=100 * bench.seg, seq=0)
        entry.through = 99
        await bench.retire(queue, entry)
    begin = len(bench.jobs.words)
    await cycles(dut, 320)
    assert len(bench.jobs.words) - begin >= 320 // 10


@pytest.mark.parametrize("queues, seg_bytes", [(4, 1024), (3, 64)])
def test_egress_sched(queues, seg_bytes):
    run("egress_sched", Queues=queues, SegBytes=seg_bytes)
