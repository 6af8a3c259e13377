# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""slot_ctrl against a reference that takes the same commands in the same order: several tenants join, commit, pull and
waive at random, most of them as they should, some not. Every verdict, answer, pulse and row must agree."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field

import cocotb
import pytest
from cocotb.triggers import FallingEdge, ReadOnly
from harness import STALLS, Sink, Source, cycles, run, start
from layout import CONST, pack, unpack

OK, MISMATCH, STALE, DUPLICATE = (CONST[f"St{s}"] for s in ("Ok", "Mismatch", "StaleSeq", "Duplicate"))
WRAP = 1 << 32


def newer(a, b):
    """Whether sequence number `a` comes after `b`."""
    return 0 < (a - b) % WRAP < WRAP // 2


@dataclass
class Row:
    """What the architecture says of a slot."""

    open: bool = False
    complete: bool = False
    fresh: bool = True
    tenant: int = 0
    workers: int = 0
    pending: int = 0
    bytes: int = 0
    seq: int = 0
    key: int = 0
    joined: set = field(default_factory=set)
    contributed: set = field(default_factory=set)
    left: set = field(default_factory=set)
    since: int = 0

    def holds(self, tenant, seq):
        return self.open and (self.tenant, self.seq) == (tenant, seq)

    def join(self, hdr, workers, cycle):
        """(status, first, add) for the adders."""
        if hdr.status != OK:
            return hdr.status, 0, 0
        past = not self.fresh and not newer(hdr.seq, self.seq)
        if self.holds(hdr.tenant, hdr.seq):
            if (hdr.key, hdr.bytes) != (self.key, self.bytes):
                return MISMATCH, 0, 0
            if hdr.worker in self.joined:
                return (DUPLICATE if hdr.has_data else OK), 0, 0
        elif past and not hdr.has_data:
            return OK, 0, 0
        elif self.open:
            return (STALE if hdr.tenant == self.tenant else MISMATCH), 0, 0
        elif past:
            return STALE, 0, 0
        else:
            self.__init__(open=True, fresh=False, tenant=hdr.tenant, workers=workers, bytes=hdr.bytes, seq=hdr.seq,
                          key=hdr.key, since=cycle)
        first = not hdr.has_data or not self.contributed
        self.joined.add(hdr.worker)
        if hdr.waive:
            self.left.add(hdr.worker)
        if hdr.has_data:
            self.contributed.add(hdr.worker)
            self.pending += 1
        return OK, int(first), hdr.has_data

    def commit(self):
        assert self.open and self.pending
        self.pending -= 1

    def leave(self, worker, seq):
        if self.open and self.complete and self.seq == seq:
            self.left.add(worker)

    def settle(self):
        """(completes, frees) after a change."""
        everyone = set(range(self.workers))
        completes = self.open and not self.complete and self.joined == everyone and not self.pending
        self.complete |= completes
        frees = self.complete and self.left == everyone
        if frees:
            self.open = self.complete = False
        return completes, frees

    def waits(self, seq):
        return self.open and newer(seq, self.seq)

    def look(self, tenant, worker, seq):
        """slot_answer_t."""
        if self.holds(tenant, seq):
            gone = worker in self.left
            return pack("slot_answer_t", ready=self.complete and not gone, stale=gone,
                        contributors=mask(self.contributed), count=len(self.contributed), empty=not self.contributed)
        stale = not self.fresh and (not newer(seq, self.seq) or self.open and tenant != self.tenant)
        return pack("slot_answer_t", stale=stale)

    def dump(self):
        fields = {**vars(self), **{name: mask(getattr(self, name)) for name in ("joined", "contributed", "left")}}
        return pack("slot_dump_t", **fields)


def mask(workers):
    return sum(1 << worker for worker in workers)


class Bench:
    """Sees every command the module takes, does the same to the reference, and compares what comes out."""

    JOIN = ["join_hdr_i", "join_cfg_i"]
    LOOK = ["look_slot_i", "look_seq_i", "look_tenant_i", "look_worker_i"]
    LEAVE = ["leave_slot_i", "leave_worker_i", "leave_seq_i"]

    def __init__(self, dut, idle=0.0, push_back=0.0):
        self.dut = dut
        self.slots = dut.Slots.value.to_unsigned()
        self.workers = dut.Workers.value.to_unsigned()
        self.rows = [Row() for _ in range(self.slots)]
        self.cycle = 0x1234_5678
        self.seen = Counter()
        self.verdicts = deque()  # (status, first, add, slot, header) in the order of the joins
        self.judged = 0
        self.commits_due = deque()
        self.counted = []
        self._due = {}  # cycle -> [(port, value)]
        self.join = Source(dut, "join_valid_i", "join_ready_o", self.JOIN, idle)
        self.ask = Source(dut, "ask_valid_i", "ask_ready_o", ["ask_slot_i", "ask_seq_i"], idle)
        self.look = Source(dut, "look_valid_i", "look_ready_o", self.LOOK, idle)
        self.commit = Source(dut, "commit_valid_i", "commit_ready_o", "commit_slot_i", push_back)
        self.leave = Source(dut, "leave_valid_i", "leave_ready_o", self.LEAVE, idle)
        self.clear = Source(dut, "clear_valid_i", "clear_ready_o", "clear_slot_i", idle)
        self.dump = Source(dut, "dump_valid_i", "dump_ready_o", "dump_slot_i", idle)
        self.cmds = Sink(dut, "cmd_valid_o", "cmd_ready_i", "cmd_o", push_back)
        self.counts = Sink(dut, "count_valid_o", "count_ready_i", "count_o", push_back)
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._aggregate())

    def row_of(self, cfg, seq):
        return cfg["slot_base"] + seq % (1 << cfg["slot_log2"])

    async def ready(self):
        """Slots are clear after a reset."""
        for _ in range(self.slots + 10):
            if self.dut.init_done_o.value == 1:
                return
            await FallingEdge(self.dut.clk_i)
        raise AssertionError("init_done_o does not come")

    async def settled(self):
        """All that was sent is taken, and its consequences are out."""
        for stream in (self.join, self.ask, self.look, self.leave, self.clear, self.dump):
            await stream.sent()
        for _ in range(10_000):
            await cycles(self.dut, 5)
            if self.judged == self.join.accepted and not self.commits_due and self.dut.idle_o.value == 1:
                await self.commit.sent()
                await cycles(self.dut, 5)
                break
        else:
            raise AssertionError(f"{len(self.verdicts)} commands do not come out")
        await self.counts.get(len(self.counted))
        assert [unpack("count_ev_t", c).tenant for c in self.counts.words] == self.counted
        assert all(unpack("count_ev_t", c).events == 1 << CONST["CntSlotsComplete"] for c in self.counts.words)

    async def _aggregate(self):
        """Each command is as the reference says; a contribution is committed some time later."""
        while True:
            for word in self.cmds.words[self.judged:]:
                status, first, add, slot, hdr = self.verdicts.popleft()
                cmd = unpack("agg_cmd_t", word)
                assert (cmd.hdr.status, cmd.first, cmd.add, cmd.slot) == (status, first, add, slot), (hdr, cmd)
                hdr.status = status
                assert cmd.hdr == hdr
                if add:
                    self.commits_due.append(slot)
            self.judged = len(self.cmds.words)
            if self.commits_due and random.random() < 0.7:
                self.commit.send(self.commits_due.popleft())
            await FallingEdge(self.dut.clk_i)

    async def _watch(self):
        dut = self.dut
        while True:
            await FallingEdge(dut.clk_i)
            self.cycle += 1
            dut.cycle_i.value = self.cycle
            await ReadOnly()
            if dut.rst_i.value == 1:
                continue
            self._check(self._due.pop(self.cycle, {}))
            idle = dut.idle_o.value == 1
            taken = [name for name in ("join", "ask", "look", "commit", "leave", "clear", "dump")
                     if getattr(dut, f"{name}_valid_i").value == 1 and getattr(dut, f"{name}_ready_o").value == 1]
            assert len(taken) <= 1 and not (idle and {"join", "commit", "leave"} & set(taken))
            for name in taken:
                self.seen[name] += 1
                self._due[self.cycle + 2] = getattr(self, f"_take_{name}")()

    def _check(self, due):
        dut = self.dut
        for pulse in ("complete", "freed"):
            got = dut_value(dut, f"{pulse}_tenant_o") if dut_value(dut, f"{pulse}_valid_o") else None
            assert got == due.get(pulse), f"{pulse}: {got}, not {due.get(pulse)}"
        for name, port in (("ask", "ask_rsp_wait_o"), ("look", "look_rsp_o"), ("dump", "dump_rsp_o")):
            assert dut_value(dut, f"{name}_rsp_valid_o") == (name in due)
            if name in due:
                got = dut_value(dut, port)
                assert got == due[name], f"{name}: {got:#x}, not {due[name]:#x}"

    def _settle(self, row):
        completes, frees = row.settle()
        tenant = row.tenant
        if completes:
            self.counted.append(tenant)
            self.seen["complete"] += 1
            self.seen["empty"] += not row.contributed
        self.seen["freed"] += frees
        return {**({"complete": tenant} if completes else {}), **({"freed": tenant} if frees else {})}

    def _take_join(self):
        hdr = unpack("seg_hdr_t", self.dut.join_hdr_i.value)
        cfg = unpack("tenant_cfg_t", self.dut.join_cfg_i.value)
        slot = self.row_of(vars(cfg), hdr.seq)
        row = self.rows[slot]
        opened = row.open
        status, first, add = row.join(hdr, cfg.workers, self.cycle + 1)
        self.verdicts.append((status, first, add, slot, hdr))
        self.seen["status", status] += 1
        self.seen["no-op"] += status == OK and not add and not first
        self.seen["abstain"] += status == OK and not add and first
        self.seen["wrap"] += row.open and not opened and row.seq < 1 << 16
        changed = status == OK and (first or add)
        return self._settle(row) if changed else {}

    def _take_commit(self):
        row = self.rows[dut_value(self.dut, "commit_slot_i")]
        row.commit()
        return self._settle(row)

    def _take_leave(self):
        slot, worker, seq = (dut_value(self.dut, f"leave_{name}_i") for name in ("slot", "worker", "seq"))
        row = self.rows[slot]
        if not (row.open and row.complete and row.seq == seq):
            self.seen["late leave"] += 1
            return {}
        row.leave(worker, seq)
        return self._settle(row)

    def _take_clear(self):
        slot = dut_value(self.dut, "clear_slot_i")
        row, self.rows[slot] = self.rows[slot], Row()
        return {"freed": row.tenant} if row.open else {}

    def _take_ask(self):
        slot, seq = (dut_value(self.dut, f"ask_{name}_i") for name in ("slot", "seq"))
        wait = self.rows[slot].waits(seq)
        self.seen["ask", wait] += 1
        return {"ask": int(wait)}

    def _take_look(self):
        slot, seq, tenant, worker = (dut_value(self.dut, f"look_{n}_i") for n in ("slot", "seq", "tenant", "worker"))
        answer = self.rows[slot].look(tenant, worker, seq)
        fields = unpack("slot_answer_t", answer)
        self.seen["look", "ready" if fields.ready else "stale" if fields.stale else "wait"] += 1
        return {"look": answer}

    def _take_dump(self):
        return {"dump": self.rows[dut_value(self.dut, "dump_slot_i")].dump()}


def dut_value(dut, name):
    return int(getattr(dut, name).value)


class Traffic:
    """Random commands that mostly follow the state of the reference, so that rounds come to their end."""

    def __init__(self, bench, tenants, honest):
        self.bench, self.honest = bench, honest
        log2 = max(bench.slots.bit_length() - 1 - tenants.bit_length(), 0)
        self.cfgs = [dict(enable=1, workers=random.choice([1, bench.workers, random.randint(1, bench.workers)]),
                          slot_base=(t << log2) % bench.slots, slot_log2=log2) for t in range(tenants)]
        self.cfgs[0]["workers"] = bench.workers

    def _well(self, honest=None):
        return random.random() < (self.honest if honest is None else honest)

    def _round(self):
        """(tenant, configuration, slot, its row, a sequence number for it)"""
        tenant = random.randrange(len(self.cfgs))
        cfg = self.cfgs[tenant]
        size = 1 << cfg["slot_log2"]
        slot = cfg["slot_base"] + random.randrange(size)
        row = self.bench.rows[slot]
        if row.fresh:
            seq = WRAP - size + slot - cfg["slot_base"]  # the next one wraps
        else:
            seq = row.seq if row.open else row.seq + size
        if not self._well():
            seq += random.choice([-2, -1, 1, 2, WRAP // 2 // size, WRAP // 2 // size - 1]) * size
        return tenant, cfg, slot, row, seq % WRAP

    def _worker(self, cfg, done):
        rest = set(range(cfg["workers"])) - done
        return random.choice(sorted(rest)) if rest and self._well() else random.randrange(cfg["workers"])

    def join(self):
        tenant, cfg, _, row, seq = self._round()
        has_data = self._well(0.7)
        hdr = dict(tenant=tenant, worker=self._worker(cfg, row.joined), queue=random.getrandbits(6),
                   didx=random.getrandbits(6), epoch=5, seq=seq, key=seq * 2654435761 % WRAP, bytes=64,
                   has_data=has_data, waive=has_data and self._well(0.3), first=random.getrandbits(1),
                   last=random.getrandbits(1), crc=random.getrandbits(32))
        if not self._well():
            hdr.update(random.choice([dict(key=1), dict(bytes=60), dict(status=CONST["StCrcError"]),
                                      dict(status=CONST["StTenantOff"]), dict(tenant=63)]))
        return pack("seg_hdr_t", **hdr), pack("tenant_cfg_t", **cfg)

    def ask(self):
        _, cfg, slot, _, seq = self._round()
        return slot, (seq + random.choice([0, 1 << cfg["slot_log2"]])) % WRAP

    def look(self):
        tenant, cfg, slot, row, seq = self._round()
        return slot, seq, tenant if self._well() else 63, self._worker(cfg, row.left)

    def leave(self):
        """A worker has read its result; or comes once more, or too late."""
        _, cfg, slot, row, seq = self._round()
        return slot, self._worker(cfg, row.left), row.seq if self._well() else seq

    async def run(self, name, number):
        source = getattr(self.bench, name)
        for _ in range(number):
            source.send(getattr(self, name)())
            await source.sent()


@cocotb.test()
@cocotb.parametrize(idle=STALLS, push_back=STALLS)
async def agrees_with_the_reference(dut, idle, push_back):
    await start(dut)
    bench = Bench(dut, idle, push_back)
    await bench.ready()
    traffic = Traffic(bench, tenants=3, honest=0.9)
    for _ in range(2):
        number = 100 + 4 * bench.workers
        tasks = [cocotb.start_soon(traffic.run(name, number)) for name in ("join", "ask", "look", "leave")]
        for task in tasks:
            await task
        await bench.settled()
        bench.dump.send(*range(bench.slots))
        await bench.settled()
        # An abort: the slots of a tenant are cleared while nothing is in flight.
        cfg = random.choice(traffic.cfgs)
        bench.clear.send(*range(cfg["slot_base"], cfg["slot_base"] + (1 << cfg["slot_log2"])))
        bench.dump.send(*range(bench.slots))
        await bench.settled()
    reached = ["complete", "freed"]
    if bench.slots >= 16:  # else the misbehaving may keep the others from getting anywhere
        reached += ["abstain", "no-op", "wrap", "late leave", ("ask", True), ("ask", False), ("look", "ready"),
                    ("look", "stale"), *(("status", status) for status in (OK, MISMATCH, STALE, DUPLICATE))]
    assert not [event for event in reached if not bench.seen[event]], bench.seen


@cocotb.test()
async def a_full_round_is_complete_exactly_once(dut):
    """All workers join in a random order, half of them abstain; complete comes with the last commit, not before."""
    await start(dut)
    bench = Bench(dut)
    await bench.ready()
    cfg = dict(enable=1, workers=bench.workers, slot_base=0, slot_log2=0)
    order = random.sample(range(bench.workers), bench.workers)
    for n, worker in enumerate(order):
        assert bench.counted == []
        hdr = dict(tenant=2, worker=worker, seq=9, key=3, bytes=8, has_data=n % 2 == 0)
        bench.join.send((pack("seg_hdr_t", **hdr), pack("tenant_cfg_t", **cfg)))
        await bench.settled()
    assert bench.counted == [2]
    for worker in order:
        assert bench.rows[0].open and bench.seen["freed"] == 0
        bench.look.send((0, 9, 2, worker))
        await bench.settled()
        bench.leave.send((0, worker, 9))
        await bench.settled()
    assert bench.seen["look", "ready"] == bench.workers and bench.seen["freed"] == 1


@cocotb.test()
async def a_round_of_waivers_frees_itself(dut):
    await start(dut)
    bench = Bench(dut)
    await bench.ready()
    cfg = pack("tenant_cfg_t", enable=1, workers=bench.workers, slot_base=1, slot_log2=0)
    bench.join.send(*((pack("seg_hdr_t", worker=w, has_data=1, waive=1), cfg) for w in range(bench.workers)))
    await bench.settled()
    assert (bench.seen["complete"], bench.seen["freed"]) == (1, 1) and not bench.rows[1].open


@cocotb.test()
async def one_join_a_cycle(dut):
    """To different slots, with nothing else to do; latency as the data sheet says."""
    await start(dut)
    bench = Bench(dut)
    await bench.ready()
    number = 100
    log2 = bench.slots.bit_length() - 1
    cfg = pack("tenant_cfg_t", enable=1, workers=bench.workers, slot_base=0, slot_log2=log2)
    bench.join.send(*((pack("seg_hdr_t", seq=n, status=CONST["StCrcError"]), cfg) for n in range(number)))
    await cycles(dut, number + 5)
    assert len(bench.cmds.words) >= number


@cocotb.test()
@cocotb.parametrize(name=["join", "ask", "look", "dump"])
async def nobody_starves(dut, name):
    """While all others ask without a pause, on one slot."""
    await start(dut)
    bench = Bench(dut)
    await bench.ready()
    cfg = pack("tenant_cfg_t", enable=1, workers=bench.workers, slot_base=0, slot_log2=0)
    words = {
        "join": (pack("seg_hdr_t", status=CONST["StCrcError"]), cfg),
        "ask": (0, 0),
        "look": (0, 0, 0, 0),
        "dump": 0,
    }
    for other in words.keys() - {name}:
        getattr(bench, other).send(*[words[other]] * 200)
    source = getattr(bench, name)
    for _ in range(10):
        before = bench.cycle
        source.send(words[name])
        await source.sent()
        assert bench.cycle - before <= 10


@pytest.mark.parametrize("slots, workers", [(2, 1), (16, 4), (4, 64)])
def test_slot_ctrl(slots, workers):
    run("slot_ctrl", Slots=slots, Workers=workers)
