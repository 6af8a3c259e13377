# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""sq_fetch: descriptors come in ring order, never more than there is room for, each with its first fault; a queue that
misbehaves stops alone."""

import random

import cocotb
import pytest
from cocotb.triggers import FallingEdge
from harness import Sink, Source, cycles, run, start
from layout import CONST, pack, unpack
from tables import Lookup, TableHost

PUSH, PULL, PUSH_PULL = (CONST[name] for name in ("OpPush", "OpPull", "OpPushPull"))
MEAN, CRC, IRQ, WAIVE = (1 << CONST[f"Flag{name}"] for name in ("Mean", "Crc", "Irq", "Waive"))
WINDOW, WINDOW_SIZE = 0x10_0000, 0x10_0000
EPOCH, WORKERS, WORKER, TENANT = 9, 4, 3, 1


def ring(queue):
    return 0x4000_0000 + queue * 0x10_0000


def good(**fields):
    base = dict(opcode=PUSH_PULL, src=WINDOW, dst=WINDOW + 0x1000, length=4096, epoch=EPOCH, key=3)
    return base | dict(cid=random.getrandbits(16), seq=random.getrandbits(32)) | fields


class Bench:
    """The module with tables, host memory, and a card that pops what it gets when told."""

    @classmethod
    async def create(cls, dut, log2=3, push_back=0.0, tenant=None):
        bench = cls()
        bench.dut, bench.log2, bench.size = dut, log2, 1 << log2
        bench.queues = dut.Queues.value.to_unsigned()
        await start(dut)
        config = dict(enable=1, sq_log2=log2, cq_log2=log2, tenant=TENANT, worker=WORKER)
        config |= dict(win_base=WINDOW, win_size=WINDOW_SIZE)
        bench.rows = {q: pack("queue_cfg_t", sq_base=ring(q), **config) for q in range(bench.queues)}
        tenant = dict(enable=1, workers=WORKERS, epoch=EPOCH) | (tenant or {})
        bench.tails = {}
        Lookup(dut, "queue_o", "cfg_i", bench.rows)
        Lookup(dut, "chk_queue_o", "chk_cfg_i", bench.rows)
        Lookup(dut, "tenant_o", "tenant_cfg_i", {TENANT: pack("tenant_cfg_t", **tenant)})
        Lookup(dut, "cq_queue_o", "cq_tail_i", bench.tails)
        bench.host = TableHost(dut)
        bench.reads = Sink(dut, "rd_valid_o", "rd_ready_i", "rd_o", push_back)
        names = ["push_queue_o", "push_desc_o", "push_status_o", "push_sq_head_o"]
        bench.pushes = Sink(dut, "push_valid_o", "push_ready_i", names, push_back)
        bench.pops = Source(dut, "pop_valid_i", "pop_ready_o", "pop_queue_i")
        bench.errors = Sink(dut, "err_valid_o", "err_ready_i", "err_o", push_back)
        bench.memory, bench.unreadable, bench.slow = {}, set(), 0.5
        cocotb.start_soon(bench._answer())
        for queue in range(bench.queues):
            await bench.restart(queue)
        return bench

    async def restart(self, queue):
        self.dut.start_queue_i.value = queue
        self.dut.start_valid_i.value = 1
        await FallingEdge(self.dut.clk_i)
        self.dut.start_valid_i.value = 0

    async def _answer(self):
        """Host memory: descriptors in the order of the reads, some time later."""
        done = 0
        while True:
            await FallingEdge(self.dut.clk_i)
            answer = done < len(self.reads.words) and random.random() >= self.slow
            self.dut.desc_valid_i.value = int(answer)
            if answer:
                read = unpack("rd_req_t", self.reads.words[done])
                assert read.is_desc and read.bytes == 64
                self.dut.desc_queue_i.value = read.queue
                self.dut.desc_i.value = self.memory.get(read.addr, 0)
                self.dut.desc_error_i.value = int(read.queue in self.unreadable)
                done += 1

    def place(self, queue, index, fields):
        desc = pack("desc_t", **fields)
        self.memory[ring(queue) + 64 * (index % self.size)] = desc
        return desc

    async def doorbell(self, queue, value, head=False):
        await self.host.write(0x1000 * queue + 4 * head, value)


@cocotb.test()
@cocotb.parametrize(push_back=[0.0, 0.6])
async def fetches_in_order_and_within_its_credits(dut, push_back):
    bench = await Bench.create(dut, push_back=push_back)
    depth = dut.DescDepth.value.to_unsigned()
    total = 20
    expected = {q: [] for q in range(bench.queues)}
    submitted, popped, consumed = ([0] * bench.queues for _ in range(3))
    seen = 0
    for _ in range(3000):
        await FallingEdge(dut.clk_i)
        # What has come is as it was submitted.
        while seen < len(bench.pushes.words):
            queue, desc, status, head = bench.pushes.words[seen]
            index = sum(q == queue for q, *_ in bench.pushes.words[:seen])
            assert (desc, status, head) == (expected[queue][index], 0, (index + 1) % bench.size)
            seen += 1
        fetched = [sum(unpack("rd_req_t", r).queue == q for r in bench.reads.words) for q in range(bench.queues)]
        for q in range(bench.queues):
            assert fetched[q] - popped[q] <= depth, "more descriptors than the card has room for"
            assert fetched[q] - consumed[q] < bench.size, "no completion entry is left for it"
        queue = random.randrange(bench.queues)
        arrived = sum(q == queue for q, *_ in bench.pushes.words)
        action = random.choice(["submit", "pop", "pop", "consume"])
        if action == "submit" and submitted[queue] < total and submitted[queue] - fetched[queue] < bench.size - 1:
            expected[queue].append(bench.place(queue, submitted[queue], good()))
            submitted[queue] += 1
            await bench.doorbell(queue, submitted[queue] % bench.size)
        elif action == "pop" and popped[queue] < arrived:
            popped[queue] += 1
            bench.pops.send(queue)
            await bench.pops.sent()
            bench.tails[queue] = popped[queue] % bench.size
            await cycles(dut, 2)
        elif action == "consume" and consumed[queue] < popped[queue]:
            consumed[queue] = random.randint(consumed[queue] + 1, popped[queue])
            await bench.doorbell(queue, consumed[queue] % bench.size, head=True)
        if seen == total * bench.queues:
            break
    else:
        raise AssertionError(f"{seen} of {total * bench.queues} descriptors came")
    assert not bench.errors.words


FAULTS = [
    ("StOk", dict()),
    ("StOk", dict(opcode=PUSH, dst=0, flags=WAIVE | CRC, crc=5)),
    ("StOk", dict(opcode=PULL, src=0, flags=MEAN | IRQ)),
    ("StOk", dict(length=WINDOW_SIZE - 64, src=WINDOW + 64, dst=WINDOW)),
    ("StBadOpcode", dict(opcode=0)),
    ("StBadOpcode", dict(opcode=4, length=0)),
    ("StBadOpcode", dict(flags=0x10)),
    ("StBadOpcode", dict(flags=WAIVE)),
    ("StBadOpcode", dict(opcode=PULL, src=0, flags=CRC)),
    ("StBadOpcode", dict(opcode=PULL)),
    ("StBadOpcode", dict(opcode=PUSH)),
    ("StBadOpcode", dict(reserved=1 << 191)),
    ("StBadLength", dict(length=0, src=1)),
    ("StBadLength", dict(length=4098)),
    ("StBadLength", dict(length=(1 << 30) + 4)),
    ("StBadAlign", dict(src=WINDOW + 32, epoch=0)),
    ("StBadAlign", dict(dst=4)),
    ("StOutOfWindow", dict(length=1 << 30)),
    ("StOutOfWindow", dict(src=WINDOW - 64)),
    ("StOutOfWindow", dict(dst=WINDOW + WINDOW_SIZE - 4096 + 64, epoch=0)),
    ("StOutOfWindow", dict(dst=(1 << 64) - 64, length=4096)),
    ("StStaleEpoch", dict(epoch=EPOCH - 1)),
]


@cocotb.test()
async def states_the_first_fault(dut):
    bench = await Bench.create(dut, log2=6)
    random.shuffle(FAULTS)
    for i, (status, fields) in enumerate(FAULTS):
        bench.place(0, i, good(**fields))
        await bench.doorbell(0, i + 1)
        await bench.pushes.get(i + 1)
        assert bench.pushes.words[i][2] == CONST[status], (fields, bench.pushes.words[i][2])
        bench.pops.send(0)


@cocotb.test()
@cocotb.parametrize(tenant=[dict(enable=0), dict(workers=WORKER)])
async def refuses_a_tenant_that_is_off(dut, tenant):
    bench = await Bench.create(dut, tenant=tenant)
    bench.place(0, 0, good(epoch=EPOCH + 1))
    await bench.doorbell(0, 1)
    await bench.pushes.get(1)
    assert bench.pushes.words[0][2] == CONST["StTenantOff"]


@cocotb.test()
async def a_bad_doorbell_stops_its_queue_alone(dut):
    bench = await Bench.create(dut)
    queue = bench.queues - 1
    cases = [(bench.size, False), (0xFFFF, False), (bench.size, True), (3, True)]
    for value, head in cases:
        await bench.restart(queue)
        bench.tails[queue] = 2
        before = len(bench.errors.words)
        # Reads and unused offsets have no effect.
        await bench.host.read(0x1000 * queue)
        await bench.host.write(0x1000 * queue + 8, 0xFFFF)
        await bench.host.write(0x1000 * bench.queues, 0xFFFF)
        await cycles(dut, 20)
        assert len(bench.errors.words) == before
        await bench.doorbell(queue, value, head)
        await bench.errors.get(before + 1)
        assert unpack("err_ev_t", bench.errors.words[-1]).__dict__ == dict(code=CONST["ErrDoorbell"], queue=queue)
        reads = len(bench.reads.words)
        await bench.doorbell(queue, 1)
        await cycles(dut, 40)
        assert len(bench.reads.words) == reads and len(bench.errors.words) == before + 1
        assert dut.busy_o.value == 0
    # Begun anew it works.
    await bench.restart(queue)
    bench.place(queue, 0, good())
    await bench.doorbell(queue, 1)
    await bench.pushes.get(1)


@cocotb.test()
async def an_unreadable_ring_is_reported_once(dut):
    bench = await Bench.create(dut)
    bench.unreadable.add(0)
    for i in range(4):
        bench.place(0, i, good())
    await bench.doorbell(0, 4)
    await bench.errors.get(1)
    await cycles(dut, 100)
    assert unpack("err_ev_t", bench.errors.words[0]).__dict__ == dict(code=CONST["ErrSqRead"], queue=0)
    assert len(bench.errors.words) == 1 and not bench.pushes.words
    assert dut.idle_o.value == 1 and dut.busy_o.value == 0


@cocotb.test()
async def starts_nothing_in_a_pause(dut):
    bench = await Bench.create(dut)
    dut.pause_i.value = 1
    bench.place(0, 0, good())
    await bench.doorbell(0, 1)
    await cycles(dut, 40)
    assert not bench.reads.words and dut.idle_o.value == 1 and dut.busy_o.value == 1
    dut.pause_i.value = 0
    await bench.pushes.get(1)
    await cycles(dut, 20)
    assert dut.busy_o.value == 0


@pytest.mark.parametrize("queues, depth", [(1, 2), (5, 4)])
def test_sq_fetch(queues, depth):
    run("sq_fetch", Queues=queues, DescDepth=depth)
