# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""tenant_counters: no event is lost or counted twice, whoever sends it and whatever the host reads."""

import random

import cocotb
import pytest
from cocotb.triggers import FallingEdge, ReadOnly
from harness import STALLS, Table, cycles, run, start
from layout import CONST, pack

COUNTERS = CONST["CountersPerTenant"]
BYTES = (CONST["CntBytesIn"], CONST["CntBytesOut"])


class Sources:
    """All event ports, each with its own queue of events."""

    def __init__(self, dut, stall):
        self._dut, self._stall = dut, stall
        self.queues = [[] for _ in range(len(dut.ev_valid_i))]
        cocotb.start_soon(self._run())

    async def sent(self):
        for _ in range(100_000):
            if not any(self.queues):
                return
            await FallingEdge(self._dut.clk_i)
        raise AssertionError("events are not taken")

    async def _run(self):
        ports = range(len(self.queues))
        offered = [False for _ in ports]
        while True:
            await FallingEdge(self._dut.clk_i)
            for i in ports:
                if not offered[i] and self.queues[i] and random.random() >= self._stall:
                    offered[i] = True
                    self._dut.ev_i[i].value = pack("count_ev_t", **self.queues[i][0])
                self._dut.ev_valid_i[i].value = int(offered[i])
            await ReadOnly()
            for i in ports:
                if offered[i] and self._dut.ev_ready_o[i].value == 1:
                    offered[i] = False
                    self.queues[i].pop(0)


async def read(table, tenant, counter):
    low = await table.read(tenant * 0x80 + counter * 8)
    return low | await table.read(tenant * 0x80 + counter * 8 + 4) << 32


@cocotb.test()
@cocotb.parametrize(stall=STALLS)
async def counts_every_event_once(dut, stall):
    await start(dut)
    table, sources = Table(dut), Sources(dut, stall)
    tenants = dut.Tenants.value.to_unsigned()
    expected = {}
    for queue in sources.queues:
        for _ in range(60):
            event = dict(tenant=random.randrange(min(tenants, 3)), events=random.getrandbits(16),
                         bytes=random.getrandbits(14))
            queue.append(event)
            for counter in range(COUNTERS):
                if event["events"] >> counter & 1:
                    place = event["tenant"], counter
                    step = event["bytes"] if counter in BYTES else 1
                    expected[place] = expected.get(place, 0) + step
    # Meanwhile the host reads: neither may starve the other.
    for _ in range(30):
        await table.read(random.randrange(tenants) * 0x80)
    await sources.sent()
    await cycles(dut, 4)
    for tenant in range(min(tenants, 4)):
        for counter in range(COUNTERS):
            assert await read(table, tenant, counter) == expected.get((tenant, counter), 0)


@cocotb.test()
async def carries_into_the_high_half_and_clears(dut):
    await start(dut)
    table, sources = Table(dut), Sources(dut, 0.0)
    tenant = dut.Tenants.value.to_unsigned() - 1
    await cycles(dut, 80)
    row = (1 << 32) - 3 << 64 * CONST["CntAborts"]
    dut.u_rows.mem[tenant].value = row
    sources.queues[0] += [dict(tenant=tenant, events=1 << CONST["CntAborts"])] * 5
    await sources.sent()
    await cycles(dut, 4)
    assert await read(table, tenant, CONST["CntAborts"]) == (1 << 32) + 2
    dut.soft_rst_i.value = 1
    await cycles(dut, 3)
    dut.soft_rst_i.value = 0
    assert await read(table, tenant, CONST["CntAborts"]) == 0
    assert await table.read((tenant + 1) * 0x80) == 0, "beyond the table"


@pytest.mark.parametrize("tenants", [1, 5, 64])
def test_tenant_counters(tenants):
    run("tenant_counters", Tenants=tenants)
