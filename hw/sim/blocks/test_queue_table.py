# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""queue_table: what the host writes is what all ports read, and a queue that cannot work is not enabled."""

import random

import cocotb
import pytest
from cocotb.triggers import FallingEdge
from harness import Sink, cycles, run, start
from layout import CONST, pack, unpack
from tables import TableHost

CTRL, STATUS, POINTERS = 0x00, 0x04, 0x2C
ENABLE, FAILED = 1, 1


async def bench(dut):
    await start(dut)
    host = TableHost(dut)
    starts = Sink(dut, "start_valid_o", None, ["start_queue_o", "start_tenant_o"])
    errors = Sink(dut, "err_valid_o", "err_ready_i", "err_o")
    return host, starts, errors


def control(dut, **wrong):
    limits = [getattr(dut, name).value.to_unsigned() for name in ("Tenants", "Workers")]
    fields = dict(sq_log2=random.randint(1, 12), cq_log2=random.randint(1, 12))
    fields |= dict(tenant=random.randrange(limits[0]), worker=random.randrange(limits[1])) | wrong
    word = fields["sq_log2"] << 4 | fields["cq_log2"] << 8 | fields["tenant"] << 16 | fields["worker"] << 24
    return word, fields


async def ask(dut, queue):
    for port in dut.queue_i:
        port.value = queue
    await cycles(dut, 2)
    answers = {port.value.to_unsigned() for port in dut.cfg_o}
    assert len(answers) == 1
    return unpack("queue_cfg_t", answers.pop())


@cocotb.test()
async def all_ports_read_what_was_written(dut):
    host, starts, errors = await bench(dut)
    queues = dut.Queues.value.to_unsigned()
    vectors = dut.Vectors.value.to_unsigned()
    written = {}
    for queue in random.sample(range(queues), queues):
        words = {0x08 + 4 * i: random.getrandbits(32) for i in range(8)} | {0x28: random.randrange(vectors)}
        for offset, word in words.items():
            await host.write(0x40 * queue + offset, word)
        word, fields = control(dut)
        assert not (await ask(dut, queue)).enable
        await host.write(0x40 * queue + CTRL, word | ENABLE)
        await cycles(dut, 2)
        assert starts.words.pop() == (queue, fields["tenant"]) and not starts.words
        for offset, value in (words | {CTRL: word | ENABLE}).items():
            assert await host.read(0x40 * queue + offset) == value
        written[queue] = words | fields
    for queue, row in written.items():
        cfg = await ask(dut, queue)
        assert cfg.enable and cfg.vector == row[0x28]
        for name in ("sq_log2", "cq_log2", "tenant", "worker"):
            assert getattr(cfg, name) == row[name]
        for name, offset in (("sq_base", 0x08), ("cq_base", 0x10), ("win_base", 0x18), ("win_size", 0x20)):
            assert getattr(cfg, name) == row[offset] | row[offset + 4] << 32
    # An enabled queue does not begin anew by being written again.
    await host.write(CTRL, (await host.read(CTRL)))
    await cycles(dut, 2)
    assert not starts.words and not errors.words
    # Outside the table: zeros, and no effect.
    await host.write(0x40 * queues + CTRL, 0xFFFF_FFFF)
    assert await host.read(0x40 * queues + CTRL) == 0
    dut.soft_rst_i.value = 1
    await cycles(dut, 2)
    dut.soft_rst_i.value = 0
    for queue in written:
        assert not (await ask(dut, queue)).enable


@cocotb.test()
async def refuses_what_is_out_of_range(dut):
    host, starts, errors = await bench(dut)
    queue = dut.Queues.value.to_unsigned() - 1
    at = 0x40 * queue
    vectors = dut.Vectors.value.to_unsigned()
    limits = [getattr(dut, name).value.to_unsigned() for name in ("Tenants", "Workers")]
    wrong = [dict(sq_log2=0), dict(sq_log2=13), dict(cq_log2=0), dict(cq_log2=15)]
    wrong += [dict(tenant=limits[0])] if limits[0] < 64 else []
    wrong += [dict(worker=limits[1])] if limits[1] < 64 else []
    cases = [(fields, 0) for fields in wrong] + [({}, vectors)]
    for fields, vector in cases:
        await host.write(at + 0x28, vector)
        await host.write(at + CTRL, control(dut, **fields)[0] | ENABLE)
        await errors.get(1)
        assert unpack("err_ev_t", errors.words.pop()).__dict__ == dict(code=CONST["ErrQueueConfig"], queue=queue)
        assert await host.read(at + STATUS) == FAILED | CONST["ErrQueueConfig"] << 8
        assert await host.read(at + CTRL) & 1 == 0 and not (await ask(dut, queue)).enable
    await host.write(at + 0x28, 0)
    await host.write(at + CTRL, control(dut)[0] | ENABLE)
    await cycles(dut, 2)
    assert len(starts.words) == 1 and await host.read(at + STATUS) == 0
    assert (await ask(dut, queue)).enable


@cocotb.test()
async def failure_and_stop_disable(dut):
    host, starts, _ = await bench(dut)
    await host.write(0x28, 0)
    await host.write(CTRL, control(dut)[0] | ENABLE)
    for code in ("ErrSqRead", "ErrCqWrite"):
        dut.fail_i.value = pack("err_ev_t", code=CONST[code], queue=0)
        dut.fail_valid_i.value = 1
        await FallingEdge(dut.clk_i)
        dut.fail_valid_i.value = 0
    assert not (await ask(dut, 0)).enable
    # The first failure is the one that counts.
    assert await host.read(STATUS) == FAILED | CONST["ErrSqRead"] << 8
    dut.stop_queue_i.value = 0
    dut.stop_valid_i.value = 1
    await FallingEdge(dut.clk_i)
    dut.stop_valid_i.value = 0
    assert await host.read(CTRL) & 1 == 0
    await host.write(CTRL, control(dut)[0] | ENABLE)
    await cycles(dut, 2)
    assert len(starts.words) == 2 and (await ask(dut, 0)).enable and await host.read(STATUS) == 0
    dut.ptr_sq_head_i.value = 0x123
    dut.ptr_cq_tail_i.value = 0x456
    assert await host.read(POINTERS) == 0x456_0123


@pytest.mark.parametrize(
    "parameters",
    [dict(), dict(Queues=1, Tenants=1, Workers=1, Vectors=2, NumPorts=2), dict(Queues=5, Tenants=3, Workers=6, Vectors=6)],
    ids=["default", "tiny", "odd"],
)
def test_queue_table(parameters):
    run("queue_table", **parameters)
