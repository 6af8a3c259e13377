# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""quiesce: nothing is changed before the core is at rest, and everything goes on afterwards."""

import random

import cocotb
from cocotb.triggers import FallingEdge, ReadOnly
from harness import Sink, cycles, run, start
from layout import CONST, pack, unpack
from tables import Lookup

ABORT, STOP = 1, 2
SLOT_BASE, SLOT_LOG2 = 40, 3


class Bench:
    @classmethod
    async def create(cls, dut, enabled=True):
        bench = cls()
        bench.dut = dut
        await start(dut)
        rows = {t: pack("tenant_cfg_t", enable=t & 1, slot_base=SLOT_BASE, slot_log2=SLOT_LOG2) for t in range(64)}
        Lookup(dut, "tenant_o", "cfg_i", rows)
        bench.clears = Sink(dut, "clear_valid_o", "clear_ready_i", "clear_slot_o", 0.5)
        bench.bumps = Sink(dut, "bump_valid_o", "bump_ready_i", "bump_tenant_o", 0.5)
        bench.counts = Sink(dut, "count_valid_o", "count_ready_i", "count_o", 0.5)
        bench.flushes, bench.stops = [], set()
        cocotb.start_soon(bench._core())
        await cycles(dut, 4)
        assert dut.soft_rst_o.value == 1 and dut.ready_o.value == 0
        if enabled:
            dut.enable_i.value = 1
            await cycles(dut, 20)
            # Slots are not clear yet.
            assert dut.soft_rst_o.value == 0 and dut.ready_o.value == 0 and dut.pause_o.value == 1
            dut.init_done_i.value = 1
            await cycles(dut, 2)
            assert dut.ready_o.value == 1 and dut.pause_o.value == 0 and dut.busy_o.value == 0
        return bench

    async def _core(self):
        """Work goes on for a while after each pause and each flush, with gaps in which all looks idle."""
        dut = self.dut
        busy = 0
        was = (0, 0)
        while True:
            await FallingEdge(dut.clk_i)
            now = (dut.pause_o.value == 1, dut.flush_valid_o.value == 1)
            if now[0] and not was[0]:
                busy = random.randint(0, 60)
            dut.flush_done_i.value = 0
            if now[1]:
                assert busy == 0, "flush while work is in flight"
                if dut.stop_valid_o.value == 1:
                    self.stops.add(dut.stop_queue_o.value.to_unsigned())
                if random.random() < 0.2:
                    self.flushes.append((int(dut.flush_tenant_o.value), dut.flush_index_o.value.to_unsigned()))
                    dut.flush_done_i.value = 1
                    busy = random.randint(1, 60)
            if dut.clear_valid_o.value == 1 or dut.bump_valid_o.value == 1:
                assert busy == 0, "slots change while work is in flight"
            # Two cycles in a row at most look idle while there is work.
            gap = busy > 3 and busy % 7 in (2, 3)
            dut.idle_i.value = int(gap or (busy == 0 and now[0]))
            busy = max(0, busy - 1)
            was = now

    async def command(self, op, index):
        dut = self.dut
        await FallingEdge(dut.clk_i)
        dut.cmd_op_i.value, dut.cmd_index_i.value, dut.cmd_valid_i.value = op, index, 1
        await FallingEdge(dut.clk_i)
        dut.cmd_valid_i.value = 0
        for _ in range(2000):
            await ReadOnly()
            if dut.cmd_busy_o.value == 0:
                return dut.cmd_refused_o.value == 0
            await FallingEdge(dut.clk_i)
        raise AssertionError("the command does not end")


@cocotb.test()
async def abort_clears_counts_and_goes_on(dut):
    bench = await Bench.create(dut)
    for tenant in (1, 6, 3):
        assert await bench.command(ABORT, tenant)
        slots = list(range(SLOT_BASE, SLOT_BASE + (1 << SLOT_LOG2)))
        # A tenant that is off has no slots.
        assert bench.clears.words == (slots if tenant & 1 else [])
        assert bench.bumps.words == [tenant] and bench.flushes == [(1, tenant)]
        event = unpack("count_ev_t", bench.counts.words[0])
        assert len(bench.counts.words) == 1 and event.tenant == tenant and event.events == 1 << CONST["CntAborts"]
        assert dut.pause_o.value == 0 and dut.ready_o.value == 1 and not bench.stops
        for sink in (bench.clears, bench.bumps, bench.counts):
            sink.words.clear()
        bench.flushes.clear()


@cocotb.test()
async def stop_touches_no_slot(dut):
    bench = await Bench.create(dut)
    assert await bench.command(STOP, 5)
    assert bench.flushes == [(0, 5)] and bench.stops == {5}
    assert not bench.clears.words and not bench.bumps.words and not bench.counts.words


@cocotb.test()
async def refuses_unknown_commands(dut):
    bench = await Bench.create(dut)
    tenants, queues = dut.Tenants.value.to_unsigned(), dut.Queues.value.to_unsigned()
    for op, index in ((0, 0), (3, 0), (255, 1), (ABORT, tenants), (STOP, queues), (ABORT, 255)):
        assert not await bench.command(op, index)
        assert dut.pause_o.value == 0
    assert not bench.flushes
    assert await bench.command(STOP, 0)


@cocotb.test()
async def disable_waits_for_the_drain(dut):
    bench = await Bench.create(dut, enabled=False)
    assert not await bench.command(ABORT, 1), "off"
    await cycles(dut, 1)
    for _ in range(5):
        dut.enable_i.value = 1
        await cycles(dut, random.randint(1, 5))
        dut.init_done_i.value = 1
        await cycles(dut, random.randint(3, 20))
        dut.enable_i.value = 0
        for waited in range(200):
            await FallingEdge(dut.clk_i)
            if dut.soft_rst_o.value == 1:
                break
            assert dut.busy_o.value == 1
        else:
            raise AssertionError("the core is not disabled")
        assert dut.ready_o.value == 0 and waited >= 4
        dut.init_done_i.value = 0
        await cycles(dut, 3)
        assert dut.busy_o.value == 0


def test_quiesce():
    run("quiesce", Tenants=10, Queues=12)
