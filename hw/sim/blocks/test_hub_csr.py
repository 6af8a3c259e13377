# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""hub_csr over AXI-Lite, with cocotbext-axi as the host: identity, control, tables, errors, counters, slot dump."""

import random

import cocotb
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster
from harness import cycles, run, start
from layout import CONST, pack, unpack

QUEUE_TABLE, TENANT_TABLE, COUNTERS, DOORBELLS = 0x1000, 0x2000, 0x4000, 0x100000


class Host:
    """Dword accesses with a limit."""

    def __init__(self, dut):
        self._axi = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk_i, dut.rst_i)

    async def read(self, addr):
        return await with_timeout(self._axi.read_dword(addr), 2000, "ns")

    async def write(self, addr, value):
        await with_timeout(self._axi.write_dword(addr, value), 2000, "ns")


class SlowTable:
    """A table of the core: answers after some cycles, with what was written or a function of the address."""

    def __init__(self, dut, name):
        self._dut, self._req, self._rsp = dut, getattr(dut, f"{name}_req_o"), getattr(dut, f"{name}_rsp_i")
        self.words, self.writes = {}, []
        cocotb.start_soon(self._run())

    async def _run(self):
        while True:
            await FallingEdge(self._dut.clk_i)
            self._rsp.value = 0
            req = unpack("tbl_req_t", self._req.value)
            if not req.valid:
                continue
            await cycles(self._dut, random.randrange(1, 6))
            assert unpack("tbl_req_t", self._req.value) == req, "a request holds still until it is answered"
            if req.write:
                self.words[req.addr] = req.wdata
                self.writes.append((req.addr, req.wdata))
            self._rsp.value = pack("tbl_rsp_t", ack=1, rdata=self.words.get(req.addr, req.addr ^ 0x5A5A))
            await FallingEdge(self._dut.clk_i)
            self._rsp.value = 0


async def begin(dut):
    await start(dut)
    return Host(dut)


@cocotb.test()
async def identity(dut):
    host = await begin(dut)
    assert await host.read(0x000) == CONST["Magic"]
    assert await host.read(0x004) == CONST["AbiMajor"] << 16 | CONST["AbiMinor"]
    assert await host.read(0x008) == 0x1234ABCD
    assert await host.read(0x00C) == 7
    assert await host.read(0x010) == 8 | 9 << 8 | 6 << 16
    assert await host.read(0x014) == 32
    assert await host.read(0x018) == 3 | 4 << 16
    assert await host.read(0x01C) == 5 | 8 << 16
    await host.write(0x000, 0)
    assert await host.read(0x000) == CONST["Magic"], "read only"


@cocotb.test()
async def control_and_commands(dut):
    host = await begin(dut)
    await host.write(0x020, 1)
    assert dut.enable_o.value == 1
    dut.ready_i.value, dut.busy_i.value = 1, 1
    assert await host.read(0x024) == 0b101
    commands = []

    async def watch():
        while True:
            await FallingEdge(dut.clk_i)
            if dut.cmd_valid_o.value == 1:
                commands.append((dut.cmd_op_o.value.to_unsigned(), dut.cmd_index_o.value.to_unsigned()))

    cocotb.start_soon(watch())
    await host.write(0x030, 1 | 7 << 8)
    await host.write(0x030, 2 | 63 << 8)
    assert commands == [(1, 7), (2, 63)]
    dut.cmd_busy_i.value, dut.cmd_refused_i.value = 1, 0
    assert await host.read(0x034) == 1
    dut.cmd_busy_i.value, dut.cmd_refused_i.value = 0, 1
    assert await host.read(0x034) == 2
    await host.write(0x040, 9 | 77 << 8)
    assert (int(dut.coalesce_count_o.value), int(dut.coalesce_timeout_o.value)) == (9, 77)
    await host.write(0x044, 0xFFFFFFFF)
    assert await host.read(0x044) == 0xFFFFFFFF


@cocotb.test()
async def tables_get_their_accesses(dut):
    host = await begin(dut)
    tables = {
        QUEUE_TABLE: (SlowTable(dut, "queue"), 0x1000),
        TENANT_TABLE: (SlowTable(dut, "tenant"), 0x1000),
        COUNTERS: (SlowTable(dut, "counter"), 0x2000),
        DOORBELLS: (SlowTable(dut, "doorbell"), 0x40000),
    }
    for _ in range(60):
        base, (table, size) = random.choice(list(tables.items()))
        offset = random.choice([0, size - 4, random.randrange(0, size, 4)])
        if random.getrandbits(1):
            value = random.getrandbits(32)
            await host.write(base + offset, value)
            assert table.writes[-1] == (offset, value)
        else:
            assert await host.read(base + offset) == table.words.get(offset, offset ^ 0x5A5A)


@cocotb.test()
async def holes_read_zero(dut):
    host = await begin(dut)
    for addr in (0x048, 0x07C, 0x0F4, 0x3000, 0x6000, 0x0FFFFC, 0x140000, 0x1FFFFC):
        await host.write(addr, 0xFFFFFFFF)
        assert await host.read(addr) == 0, hex(addr)


@cocotb.test()
async def errors_come_out_in_order_with_an_interrupt(dut):
    host = await begin(dut)

    async def report(port, code, queue):
        await FallingEdge(dut.clk_i)
        dut.err_i[port].value = pack("err_ev_t", code=code, queue=queue)
        dut.err_valid_i[port].value = 1
        while True:
            await ReadOnly()
            taken = dut.err_ready_o[port].value == 1
            await FallingEdge(dut.clk_i)
            if taken:
                dut.err_valid_i[port].value = 0
                return

    await cycles(dut)
    assert await host.read(0x02C) == 0 and dut.err_irq_valid_o.value == 0
    await report(0, CONST["ErrDoorbell"], 3)
    await report(2, CONST["ErrCqWrite"], 60)
    assert dut.err_irq_valid_o.value == 1
    dut.err_irq_ready_i.value = 1
    await cycles(dut, 2)
    assert dut.err_irq_valid_o.value == 0
    assert await host.read(0x02C) == 1 << 31 | 3 << 8 | CONST["ErrDoorbell"]
    assert await host.read(0x02C) == 1 << 31 | 60 << 8 | CONST["ErrCqWrite"]
    assert await host.read(0x02C) == 0
    await report(1, CONST["ErrSqRead"], 1)
    dut.soft_rst_i.value = 1
    await cycles(dut, 2)
    dut.soft_rst_i.value = 0
    assert await host.read(0x02C) == 0, "disabling the card forgets errors"


@cocotb.test()
async def counts_events_and_cycles(dut):
    host = await begin(dut)
    names = ["busy", "beat_in", "beat_out", "hazard", "slot", "read", "write"]
    for i, name in enumerate(names):
        await cycles(dut)
        getattr(dut, f"perf_{name}_i").value = 1
        await cycles(dut, 3 * i + 1)
        getattr(dut, f"perf_{name}_i").value = 0
    for i in range(len(names)):
        assert await host.read(0x080 + 8 * i) == 3 * i + 1
        assert await host.read(0x084 + 8 * i) == 0
    dut.cycle_q.value = (5 << 32) - 1
    first = await host.read(0x038)
    high = await host.read(0x03C)
    second = await host.read(0x038)
    assert (high << 32 | first) < (await host.read(0x03C) << 32 | second) < (5 << 32) + 200


@cocotb.test()
async def dumps_a_slot(dut):
    host = await begin(dut)
    await host.write(0x0C0, 17)
    await cycles(dut)
    assert dut.dump_valid_o.value == 1 and dut.dump_slot_o.value.to_unsigned() == 17
    assert await host.read(0x0C4) & 1 == 0, "not there yet"
    dut.dump_ready_i.value = 1
    await RisingEdge(dut.clk_i)
    await FallingEdge(dut.clk_i)
    dut.dump_ready_i.value = 0
    dump = dict(open=1, complete=0, fresh=0, tenant=2, workers=4, pending=1, bytes=1024, seq=0xDEAD, key=0xBEEF,
                joined=0x8000000000000003, contributed=2, left=1 << 40, since=0x123456789)
    dut.dump_rsp_i.value, dut.dump_rsp_valid_i.value = pack("slot_dump_t", **dump), 1
    await FallingEdge(dut.clk_i)
    dut.dump_rsp_valid_i.value = 0
    read = [await host.read(0x0C4 + 4 * i) for i in range(12)]
    assert read == [0b0011 | 2 << 8 | 4 << 16 | 1 << 24, 0xDEAD, 0xBEEF, 1024, 3, 0x80000000, 2, 0, 0, 1 << 8,
                    0x23456789, 1]
    await host.write(0x0C0, 999)
    await cycles(dut, 3)
    assert await host.read(0x0C4) & 1 == 0 and dut.dump_valid_o.value == 0, "no such slot: never valid, not stuck"


def test_hub_csr():
    run("hub_csr", Lanes=8, SegBytes=512, Slots=32, Tenants=3, Workers=4, Queues=5, DescDepth=8, Vectors=6,
        BuildHash="32'h1234abcd")
