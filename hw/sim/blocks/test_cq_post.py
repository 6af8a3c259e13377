# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""cq_post: entries go where the ring says with the right phase, interrupts follow the acknowledgement, a refused
write is an error of its queue."""

import random

import cocotb
import pytest
from cocotb.triggers import FallingEdge, ReadOnly
from harness import STALLS, Sink, Source, cycles, run, start
from layout import CONST, pack, unpack

OK, ABORTED = CONST["StOk"], CONST["StAborted"]
HAS_RESULT = (CONST["OpPull"], CONST["OpPushPull"])


def base(queue):
    return 0x1_0000_0000 + queue * 0x10_0000


class QueueTable:
    """Answers one cycle after the question."""

    def __init__(self, dut, log2):
        self._dut, self._log2 = dut, log2
        cocotb.start_soon(self._run())

    async def _run(self):
        asked = 0
        while True:
            await FallingEdge(self._dut.clk_i)
            self._dut.cfg_i.value = pack("queue_cfg_t", enable=1, cq_log2=self._log2, cq_base=base(asked),
                                         vector=asked + 1)
            await ReadOnly()
            asked = self._dut.queue_o.value.to_unsigned()


class Memory:
    """Takes entries and acknowledges them in order, some with an error."""

    def __init__(self, dut, push_back, errors):
        self._dut, self._errors, self._push_back = dut, errors, push_back
        self.sink = Sink(dut, "cpl_valid_o", "cpl_ready_i", ["cpl_addr_o", "cpl_data_o"], push_back)
        self.acknowledged = 0
        cocotb.start_soon(self._acknowledge())

    async def _acknowledge(self):
        while True:
            await FallingEdge(self._dut.clk_i)
            ack = self.acknowledged < len(self.sink.words) and random.random() >= self._push_back
            self._dut.cpl_done_valid_i.value = int(ack)
            self._dut.cpl_done_error_i.value = int(ack and self._errors[self.acknowledged])
            self.acknowledged += ack


def finish(queues):
    status = random.choice([OK] * 4 + [ABORTED] + list(range(1, 13)))
    done = dict(queue=random.randrange(queues), tenant=random.getrandbits(6), cid=random.getrandbits(16),
                opcode=random.randrange(1, 4), flags=random.getrandbits(4), status=status, epoch=random.getrandbits(32),
                seq=random.getrandbits(32), bytes=random.getrandbits(20), contributors=random.getrandbits(64),
                count=random.randrange(65), sq_head=random.getrandbits(12))
    return dict(done=done, crc=random.getrandbits(32), non_finite=random.getrandbits(1))


@cocotb.test()
@cocotb.parametrize(idle=STALLS, push_back=STALLS)
async def posts_in_order(dut, idle, push_back):
    await start(dut)
    queues, log2, number = dut.Queues.value.to_unsigned(), 2, 60
    for queue in range(queues):
        dut.start_valid_i.value, dut.start_queue_i.value = 1, queue
        await cycles(dut)
    dut.start_valid_i.value = 0
    QueueTable(dut, log2)
    refused = [random.random() < 0.1 for _ in range(number)]
    memory = Memory(dut, push_back, refused)
    source = Source(dut, "fin_valid_i", "fin_ready_o", "fin_i", idle)
    irqs = Sink(dut, "irq_valid_o", "irq_ready_i", "irq_vector_o", push_back)
    errors = Sink(dut, "err_valid_o", "err_ready_i", "err_o", push_back)
    counts = Sink(dut, "count_valid_o", "count_ready_i", "count_o", push_back)
    dut.cycle_i.value = 0x1234_5678_9ABC
    finished = [finish(queues) for _ in range(number)]
    source.send(*(pack("finish_t", **f) for f in finished))

    entries = await memory.sink.get(number)
    posted = [0] * queues
    vectors, failed = [], []
    for f, (addr, data), refuse in zip(finished, entries, refused):
        done, entry = f["done"], unpack("cpl_t", data)
        queue = done["queue"]
        assert addr == base(queue) + posted[queue] % (1 << log2) * 64
        assert entry.phase == (posted[queue] >> log2 & 1) ^ 1
        posted[queue] += 1
        ok, result = done["status"] == OK, done["opcode"] in HAS_RESULT
        told = ok or done["status"] == ABORTED
        assert (entry.cid, entry.status, entry.bytes, entry.epoch, entry.seq, entry.sq_head, entry.queue) == (
            done["cid"], done["status"], done["bytes"], done["epoch"], done["seq"], done["sq_head"], queue)
        assert entry.timestamp == 0x1234_5678_9ABC
        assert entry.crc == (f["crc"] if ok and result else 0)
        assert (entry.count, entry.contributors) == ((done["count"], done["contributors"]) if told else (0, 0))
        mean, crc = done["flags"] >> CONST["FlagMean"] & 1, done["flags"] >> CONST["FlagCrc"] & 1
        expected = (f["non_finite"] and ok and result, mean and ok and result, crc and ok)
        assert entry.flags == sum(bool(bit) << i for i, bit in enumerate(expected))
        assert (entry.reserved0, entry.reserved1, entry.reserved2) == (0, 0, 0)
        if refuse:
            failed.append(queue)
        elif done["flags"] >> CONST["FlagIrq"] & 1 or not ok:
            vectors.append(queue + 1)
    assert await irqs.get(len(vectors)) == vectors
    events = await errors.get(len(failed))
    assert [(e.code, e.queue) for e in (unpack("err_ev_t", e) for e in events)] == [
        (CONST["ErrCqWrite"], queue) for queue in failed]
    for f, event in zip(finished, await counts.get(number)):
        event, status = unpack("count_ev_t", event), f["done"]["status"]
        assert event.tenant == f["done"]["tenant"]
        expected = 1 << CONST["CntCompletions"]
        expected |= (1 <= status <= CONST["StTenantOff"]) << CONST["CntRefused"]
        expected |= (status == CONST["StWriteError"]) << CONST["CntDmaErrors"]
        assert event.events == expected
    await cycles(dut, 20)
    assert dut.idle_o.value == 1
    assert len(irqs.words) == len(vectors) and len(errors.words) == len(failed)


@cocotb.test()
async def no_interrupt_before_the_entry_is_in_memory(dut):
    await start(dut)
    dut.start_valid_i.value = 1
    await cycles(dut)
    dut.start_valid_i.value = 0
    QueueTable(dut, 4)
    source = Source(dut, "fin_valid_i", "fin_ready_o", "fin_i")
    entries = Sink(dut, "cpl_valid_o", "cpl_ready_i", "cpl_addr_o")
    irqs = Sink(dut, "irq_valid_o", "irq_ready_i", "irq_vector_o")
    Sink(dut, "count_valid_o", "count_ready_i", "count_o")
    source.send(pack("finish_t", done=dict(flags=1 << CONST["FlagIrq"], opcode=1)))
    await entries.get(1)
    await cycles(dut, 50)
    assert irqs.words == [] and dut.idle_o.value == 0
    dut.cpl_done_valid_i.value = 1
    await cycles(dut)
    dut.cpl_done_valid_i.value = 0
    assert await irqs.get(1, limit=5) == [1]


@pytest.mark.parametrize("queues", [1, 6])
def test_cq_post(queues):
    run("cq_post", Queues=queues)
