# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""admit: each header goes on once, in order, with the right verdict, whatever the table says later."""

import random

import cocotb
from cocotb.triggers import FallingEdge, ReadOnly
from harness import STALLS, Sink, Source, cycles, run, start
from layout import CONST, pack, unpack


class TenantTable:
    """Answers one cycle after the question, with a new configuration each time."""

    def __init__(self, dut):
        self._dut = dut
        self.answers = []
        cocotb.start_soon(self._run())

    async def _run(self):
        while True:
            await FallingEdge(self._dut.clk_i)
            cfg = dict(enable=random.random() < 0.8, workers=random.randrange(1, 9), epoch=random.randrange(2),
                       slot_base=random.getrandbits(10), slot_log2=random.randrange(8))
            self._dut.cfg_i.value = pack("tenant_cfg_t", **cfg)
            self.now = cfg


@cocotb.test()
@cocotb.parametrize(idle=STALLS, push_back=STALLS)
async def judges_each_header(dut, idle, push_back):
    await start(dut)
    table = TenantTable(dut)
    source = Source(dut, "hdr_valid_i", "hdr_ready_o", "hdr_i", idle)
    sink = Sink(dut, "join_valid_o", "join_ready_i", ["join_hdr_o", "join_cfg_o"], push_back)
    sent = []
    for i in range(150):
        status = random.choice([CONST["StOk"], CONST["StReadError"], CONST["StReadError"], CONST["StTenantOff"]])
        sent.append(dict(status=status, tenant=random.getrandbits(6), worker=random.randrange(9),
                         epoch=random.randrange(2), seq=i, bytes=1024, has_data=1, last=i & 1))
    source.send(*(pack("seg_hdr_t", **hdr) for hdr in sent))

    # The configuration that counts is the one answered in the cycle after the header was taken.
    used = []

    async def watch():
        taken = False
        while True:
            await FallingEdge(dut.clk_i)
            await ReadOnly()
            if taken:
                used.append(table.now)
            taken = dut.hdr_valid_i.value == 1 and dut.hdr_ready_o.value == 1

    cocotb.start_soon(watch())
    joins = await sink.get(len(sent))
    verdicts = set()
    for hdr, cfg, (join, join_cfg) in zip(sent, used, joins):
        join, given = unpack("seg_hdr_t", join), unpack("tenant_cfg_t", join_cfg)
        assert (given.workers, given.epoch, given.slot_base) == (cfg["workers"], cfg["epoch"], cfg["slot_base"])
        expected = hdr["status"]
        if not cfg["enable"] or hdr["worker"] >= cfg["workers"]:
            expected = CONST["StTenantOff"]
        elif hdr["epoch"] != cfg["epoch"]:
            expected = CONST["StStaleEpoch"]
        assert join.status == expected, (hdr, cfg)
        assert (join.seq, join.tenant, join.worker, join.last) == (hdr["seq"], hdr["tenant"], hdr["worker"], hdr["last"])
        verdicts.add(expected)
    assert len(verdicts) == 4


@cocotb.test()
async def takes_a_header_every_four_cycles_or_better(dut):
    await start(dut)
    TenantTable(dut)
    source = Source(dut, "hdr_valid_i", "hdr_ready_o", "hdr_i")
    sink = Sink(dut, "join_valid_o", "join_ready_i", "join_hdr_o")
    source.send(*[0] * 50)
    await cycles(dut, 200)
    assert len(sink.words) >= 49


def test_admit():
    run("admit")
