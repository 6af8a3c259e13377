# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""dma_write puts results and completions into host memory in legal bursts, and tells when they are there.

The host is cocotbext-axi's slave, which also checks bursts (4 KiB, WLAST).
"""

import random

import cocotb
import pytest
from cocotb.triggers import FallingEdge, ReadOnly
from cocotbext.axi import AxiSlaveWrite, AxiWriteBus
from harness import STALLS, Sink, Source, cycles, run, start
from layout import CONST, pack

CPL_BYTES = 64


class Memory:
    """Bytes written, each once; pages in `refused` answer with an error."""

    def __init__(self):
        self.bytes, self.refused = {}, set()

    async def write(self, address, data):
        if address >> 12 in self.refused:
            raise ValueError("refused")
        for i, byte in enumerate(data):
            assert address + i not in self.bytes, f"{address + i:#x} written twice"
            self.bytes[address + i] = byte


class Bench:
    async def begin(self, dut, idle=0.0, push_back=0.0):
        self.dut = dut
        self.lanes = dut.Lanes.value.to_unsigned()
        self.beat = 4 * self.lanes
        self.queues = dut.Queues.value.to_unsigned()
        await start(dut, m_axi_awready=0, m_axi_wready=0, m_axi_bvalid=0)
        self.memory = Memory()
        self.host = AxiSlaveWrite(AxiWriteBus.from_prefix(dut, "m_axi"), dut.clk_i, dut.rst_i, self.memory)
        for channel in (self.host.aw_channel, self.host.w_channel, self.host.b_channel):
            if push_back:
                channel.set_pause_generator(iter(lambda: random.random() < push_back, None))
        self.wr = Source(dut, "wr_valid_i", "wr_ready_o", "wr_i", idle)
        self.beats = Source(dut, "wbeat_valid_i", "wbeat_ready_o", "wbeat_data_i", idle)
        self.ends = Source(dut, "end_valid_i", "end_ready_o", "end_i", idle)
        self.cpl = Source(dut, "cpl_valid_i", "cpl_ready_o", ["cpl_addr_i", "cpl_data_i"], idle)
        self.fins = Sink(dut, "fin_valid_o", "fin_ready_i", "fin_o", push_back)
        self.done = Sink(dut, "cpl_done_valid_o", None, "cpl_done_error_o")
        self.expected, self.due_fins, self.due_done = {}, [], []
        self.failed = {}  # queue -> a write of its descriptor was refused
        self.page = 0x10_0000
        self.number = 0
        cocotb.start_soon(self._watch())
        return self

    async def _watch(self):
        """What AXI and the contract ask of the write address channel."""
        while True:
            await FallingEdge(self.dut.clk_i)
            await ReadOnly()
            if self.dut.m_axi_awvalid.value == 1:
                assert self.dut.m_axi_awid.value == 0 and self.dut.m_axi_awburst.value == 1
                assert 1 << int(self.dut.m_axi_awsize.value) == self.beat

    def place(self):
        """A fresh address, often just before the end of a page."""
        self.page += 8
        return self.page << 12 | random.choice([0, 4096 - 64, random.randrange(64) * 64])

    def write(self, queue=0, size=0, last=True, refuse=False, status="StOk"):
        """One write of `size` bytes, and the end of the descriptor if `last`."""
        address = self.place() if size else 0
        if refuse:
            self.memory.refused.update(range(address >> 12, (address + size - 1 >> 12) + 1))
        self.wr.send(pack("wr_req_t", addr=address, bytes=size, queue=queue, last=last))
        data = random.randbytes(size)
        for at in range(0, size, self.beat):
            part = data[at : at + self.beat]
            rest = random.randbytes(self.beat - len(part))  # noise that must not be written
            self.beats.send(int.from_bytes(part + rest, "little"))
        if not refuse:
            self.expected.update(zip(range(address, address + size), data))
        self.failed[queue] = self.failed.get(queue, False) or refuse
        if last:
            done = {"queue": queue, "cid": self.number, "status": CONST[status], "bytes": random.getrandbits(30)}
            crc = random.getrandbits(32)
            self.ends.send(pack("finish_t", done=done, crc=crc))
            if self.failed.pop(queue) and status == "StOk":
                done["status"] = CONST["StWriteError"]
            self.due_fins.append(pack("finish_t", done=done, crc=crc))
            self.number += 1

    def completion(self, refuse=False):
        address = self.place()
        if refuse:
            self.memory.refused.add(address >> 12)
        data = random.randbytes(CPL_BYTES)
        self.cpl.send((address, int.from_bytes(data, "little")))
        if not refuse:
            self.expected.update(zip(range(address, address + CPL_BYTES), data))
        self.due_done.append(int(refuse))

    async def check(self):
        assert await self.fins.get(len(self.due_fins), 20_000) == self.due_fins
        assert await self.done.get(len(self.due_done), 20_000) == self.due_done
        await cycles(self.dut, 20)
        assert len(self.fins.words) == len(self.due_fins) and len(self.done.words) == len(self.due_done)
        assert self.memory.bytes == self.expected
        assert self.dut.idle_o.value == 1


@cocotb.test()
@cocotb.parametrize(idle=STALLS, push_back=STALLS)
async def everything_arrives(dut, idle, push_back):
    """Writes of all lengths of several queues, completions among them, some refused."""
    bench = await Bench().begin(dut, idle, push_back)
    sizes = [4, 64, 100, 12 * bench.beat, 16 * bench.beat, random.randrange(4, 16 * bench.beat, 4)]
    for _ in range(25):
        queue, last = random.randrange(bench.queues), random.random() < 0.5
        size = 0 if last and random.random() < 0.2 else random.choice(sizes)
        status = "StAborted" if random.random() < 0.1 else "StOk"
        bench.write(queue, size, last, refuse=size > 0 and random.random() < 0.15, status=status)
        if random.random() < 0.4:
            bench.completion(refuse=random.random() < 0.2)
    for queue in range(bench.queues):
        bench.write(queue, 64)
    await bench.check()


@cocotb.test()
async def long_writes_are_cut(dut):
    """At pages, and after 256 beats."""
    bench = await Bench().begin(dut)
    for size in (8192, 4096, 4100):
        bench.write(size=min(size, 300 * bench.beat))
    await bench.check()


@cocotb.test()
async def a_beat_a_cycle(dut):
    bench = await Bench().begin(dut)
    segment = 16 * bench.beat
    for i in range(30):
        bench.write(i % bench.queues, segment, last=i % 4 == 3)
    for queue in range(bench.queues):
        bench.write(queue, segment)
    sent = []
    for now in range(1000):
        await FallingEdge(dut.clk_i)
        await ReadOnly()
        if dut.m_axi_wvalid.value == 1 and dut.m_axi_wready.value == 1:
            sent.append(now)
    cocotb.log.info("%d beats in %d cycles", len(sent), sent[-1] - sent[0] + 1)
    gaps = sent[-1] - sent[0] + 1 - len(sent)
    assert len(sent) == (30 + bench.queues) * 16 and gaps <= len(sent) // 50
    await bench.check()


@cocotb.test()
async def nobody_waits_for_finished_descriptors_to_be_taken(dut):
    """While nobody takes `fin`, all that was accepted is acknowledged, and completions go on."""
    bench = await Bench().begin(dut)
    bench.fins._stall = 1.0
    for _ in range(60):
        bench.write(size=64)
    await cycles(dut, 1000)
    assert bench.wr.accepted < 60 and not bench.fins.words
    for _ in range(20):
        bench.completion()
    assert await bench.done.get(20, 2000) == [0] * 20
    bench.fins._stall = 0.0
    await bench.check()


@cocotb.test()
async def completions_pass_results(dut):
    """A completion waits for the write before it and no other."""
    bench = await Bench().begin(dut)
    for _ in range(40):
        bench.write(size=16 * bench.beat, last=False)
    await cycles(dut, 20)
    bench.completion()
    taken = bench.wr.accepted
    await bench.cpl.sent()
    assert bench.wr.accepted <= taken + 2
    bench.write(size=64)
    await bench.check()


@cocotb.test()
async def an_end_may_come_before_its_write_is_accepted(dut):
    """With the host stalled, short results wait in egress with their CRC known."""
    bench = await Bench().begin(dut)
    bench.host.aw_channel.pause = True
    for _ in range(12):
        bench.write(size=64)
    await cycles(dut, 200)
    bench.host.aw_channel.pause = False
    await bench.check()


@cocotb.test()
async def an_error_stays_with_its_descriptor(dut):
    bench = await Bench().begin(dut)
    for refuse in (False, True, False):
        bench.write(size=64, last=False, refuse=refuse)
        bench.write(size=0, last=True)
    bench.write(size=min(8192, 300 * bench.beat), last=True, refuse=True)
    bench.write(size=64, last=True, refuse=True, status="StAborted")
    bench.write(size=64, last=True)
    await bench.check()


@pytest.mark.parametrize("lanes", [16, 2, 1])
def test_dma_write(lanes):
    run("dma_write", Lanes=lanes, Queues=3)
