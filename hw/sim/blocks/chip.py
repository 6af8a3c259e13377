# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""The whole core in a block test: its registers, rings and host memory, in the words of hw/regs/hub.rdl.

    card = await Card.power_on(dut, HostMemory(latency=250))
    await card.tenant(0, workers=2, slots_log2=4)
    queue = await card.queue(0, tenant=0, worker=0)
    await queue.submit(opcode=PUSH_PULL, src=..., dst=..., length=2560)
    completion = await queue.completion()
"""

import random
import struct
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

PUSH, PULL, PUSH_PULL = 1, 2, 3
MEAN, CRC, IRQ, WAIVE = 1, 2, 4, 8

CTRL, STATUS, ERROR_FIFO, CMD, CMD_STATUS, COALESCE = 0x20, 0x24, 0x2C, 0x30, 0x34, 0x40
PERF, DEBUG = 0x80, 0xC0
QUEUES, TENANTS, COUNTERS, DOORBELLS = 0x1000, 0x2000, 0x4000, 0x100000
ABORT, STOP = 1, 2


class HostMemory:
    """AXI slave of the core: bytes by address, with latency, reordering and refusals.

    `latency` cycles from AR to the first beat, `jitter` more at random; with `reorder` the beats of different IDs come in
    any order. `refused` addresses (a predicate) answer DECERR. `stall` is the probability that a channel is not ready, or
    not valid, in a cycle.
    """

    def __init__(self, latency=8, jitter=0, reorder=False, stall=0.0, refused=lambda address: False):
        self.latency, self.jitter, self.reorder, self.stall = latency, jitter, reorder, stall
        self.refused = refused
        self.bytes = {}  # 64-byte lines
        self.reads = self.writes = 0

    def read(self, address, size):
        out = bytearray()
        while size:
            line, at = address & ~63, address & 63
            take = min(size, 64 - at)
            out += self.bytes.get(line, bytes(64))[at : at + take]
            address, size = address + take, size - take
        return bytes(out)

    def write(self, address, data):
        for i in range(0, len(data)):
            line = self.bytes.setdefault((address + i) & ~63, bytearray(64))
            line[(address + i) & 63] = data[i]

    def start(self, dut):
        self.serve_reads(dut)
        self.serve_writes(dut)

    def serve_reads(self, dut):
        cocotb.start_soon(self._reads(dut))

    def serve_writes(self, dut):
        cocotb.start_soon(self._writes(dut))

    def _pause(self):
        return self.stall and random.random() < self.stall

    async def _reads(self, dut):
        width = len(dut.m_axi_rdata) // 8
        pending = []  # [due cycle, id, address, beats left], in order
        offered = None
        now = 0
        while True:
            # What stands between a falling edge and the next rising one is what that edge sees, and no output of the
            # core depends on our inputs within a cycle.
            await FallingEdge(dut.clk_i)
            now += 1
            if offered is None and not self._pause():
                offered = self._next_beat(pending, now)
                if offered:
                    ident, address, last = offered
                    dut.m_axi_rid.value = ident
                    dut.m_axi_rdata.value = int.from_bytes(self.read(address, width), "little")
                    dut.m_axi_rresp.value = 3 if self.refused(address) else 0
                    dut.m_axi_rlast.value = last
            dut.m_axi_rvalid.value = int(offered is not None)
            if dut.m_axi_rready.value == 1:
                offered = None
            ready = not self._pause()
            dut.m_axi_arready.value = int(ready)
            if ready and dut.m_axi_arvalid.value == 1:
                due = now + self.latency + random.randint(0, self.jitter)
                address, beats = int(dut.m_axi_araddr.value), int(dut.m_axi_arlen.value) + 1
                assert address % 4096 + beats * width <= 4096, "burst crosses 4 KiB"
                pending.append([due, int(dut.m_axi_arid.value), address, beats, width])
                self.reads += 1

    def _next_beat(self, pending, now):
        firsts = {}
        for burst in pending:
            firsts.setdefault(burst[1], burst)  # one ID keeps its order
        due = [b for b in (firsts.values() if self.reorder else pending[:1]) if b[0] <= now]
        if not due:
            return None
        burst = random.choice(due)
        address = burst[2]
        burst[2] += burst[4]
        burst[3] -= 1
        if burst[3] == 0:
            pending[:] = [b for b in pending if b is not burst]
        return burst[1], address, int(burst[3] == 0)

    async def _writes(self, dut):
        width = len(dut.m_axi_wdata) // 8
        bursts, beats, acks = deque(), deque(), deque()
        acking = False
        now = 0
        while True:
            await FallingEdge(dut.clk_i)
            now += 1
            if not acking and acks and acks[0][0] <= now and not self._pause():
                acking = True
                dut.m_axi_bid.value = 0
                dut.m_axi_bresp.value = acks[0][1]
            dut.m_axi_bvalid.value = int(acking)
            if acking and dut.m_axi_bready.value == 1:
                acking = False
                acks.popleft()
            awready, wready = not self._pause(), not self._pause()
            dut.m_axi_awready.value = int(awready)
            dut.m_axi_wready.value = int(wready)
            if awready and dut.m_axi_awvalid.value == 1:
                address, length = int(dut.m_axi_awaddr.value), int(dut.m_axi_awlen.value) + 1
                assert address % 4096 + length * width <= 4096, "burst crosses 4 KiB"
                bursts.append([address, length, self.refused(address)])
                self.writes += 1
            if wready and dut.m_axi_wvalid.value == 1:
                names = ("wdata", "wstrb", "wlast")
                beats.append([int(getattr(dut, f"m_axi_{name}").value) for name in names])
            while bursts and beats:
                data, strobes, last = beats.popleft()
                burst = bursts[0]
                if not burst[2]:
                    self._store(burst[0], data.to_bytes(width, "little"), strobes)
                burst[0] += width
                burst[1] -= 1
                assert bool(last) == (burst[1] == 0), "WLAST on the wrong beat"
                if last:
                    acks.append((now + self.latency // 2, 3 if burst[2] else 0))
                    bursts.popleft()

    def _store(self, address, data, strobes):
        count = strobes.bit_length()
        assert strobes == (1 << count) - 1, "strobes with holes"
        self.write(address, data[:count])


class Card:
    """The core, powered on and enabled."""

    @classmethod
    async def power_on(cls, dut, memory=None):
        card = cls()
        card.dut, card.memory = dut, memory or HostMemory()
        card.interrupts, card.trace, card.queues = [], [], {}
        Clock(dut.clk_i, 4, "ns").start()
        dut.irq_ready_i.value = 1
        dut.rst_i.value = 1
        card.memory.start(dut)
        card.axil = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk_i, dut.rst_i)
        for _ in range(8):
            await FallingEdge(dut.clk_i)
        dut.rst_i.value = 0
        cocotb.start_soon(card._watch())
        assert await card.read32(0) == 0x42554850
        await card.enable()
        return card

    async def _watch(self):
        dut = self.dut
        while True:
            await FallingEdge(dut.clk_i)
            if dut.irq_valid_o.value == 1:
                self.interrupts.append(int(dut.irq_vector_o.value))
            if dut.trace_valid_o.value == 1:
                self.trace.append(
                    SimpleNamespace(
                        **{k: int(getattr(dut, f"trace_{k}_o").value) for k in ("worker", "seq", "slot", "first", "abstain")}
                    )
                )

    async def read32(self, address):
        return int.from_bytes((await self.axil.read(address, 4)).data, "little")

    async def write32(self, address, value):
        await self.axil.write(address, value.to_bytes(4, "little"))

    async def read64(self, address):
        return await self.read32(address) | await self.read32(address + 4) << 32

    async def until(self, address, mask, value, limit=2000):
        for _ in range(limit):
            if await self.read32(address) & mask == value:
                return
        raise AssertionError(f"register {address:#x} & {mask:#x} is not {value:#x}")

    async def enable(self, on=True):
        await self.write32(CTRL, int(on))
        await self.until(STATUS, 1, int(on))

    async def tenant(self, index, workers, slots_log2, base=0, epoch=1):
        at = TENANTS + 0x40 * index
        await self.write32(at + 4, base | slots_log2 << 16)
        await self.write32(at + 16, epoch)
        await self.write32(at, 1 | workers << 8)

    async def queue(self, index, tenant, worker, log2=4, window=(0, 1 << 40)):
        queue = Queue(self, index, log2)
        await queue.start(tenant, worker, window)
        return queue

    async def command(self, op, index):
        await self.write32(CMD, op | index << 8)
        await self.until(CMD_STATUS, 1, 0)
        return not await self.read32(CMD_STATUS) & 2

    async def counter(self, tenant, number):
        return await self.read64(COUNTERS + 0x80 * tenant + 8 * number)

    async def rest(self, limit=50_000):
        """Waits until the core says that nothing will happen."""
        for _ in range(limit):
            await FallingEdge(self.dut.clk_i)
            if self.dut.busy_o.value == 0:
                return
        raise AssertionError(f"busy after {limit} cycles")


@dataclass
class Queue:
    """A queue pair with its rings at 0x4000_0000 + 0x10_0000 * index."""

    card: Card
    index: int
    log2: int

    async def start(self, tenant, worker, window):
        self.sq = 0x4000_0000 + 0x10_0000 * self.index
        self.cq = self.sq + 0x8_0000
        self.tail = self.head = 0
        self.phase = 1
        self.cid = 0
        size = 1 << self.log2
        self.card.memory.write(self.cq, bytes(64 * size))
        at = QUEUES + 0x40 * self.index
        low, high = 0xFFFF_FFFF, 32
        for offset, value in (
            (0x08, self.sq & low),
            (0x0C, self.sq >> high),
            (0x10, self.cq & low),
            (0x14, self.cq >> high),
            (0x18, window[0] & low),
            (0x1C, window[0] >> high),
            (0x20, window[1] & low),
            (0x24, window[1] >> high),
            (0x28, 1 + self.index),
            (0x00, 1 | self.log2 << 4 | self.log2 << 8 | tenant << 16 | worker << 24),
        ):
            await self.card.write32(at + offset, value)

    async def submit(self, opcode, seq, length, src=0, dst=0, key=7, flags=IRQ, epoch=1, crc=0, ring=True):
        self.cid += 1
        entry = struct.pack("<BBHIIIQQII24x", opcode, flags, self.cid, epoch, seq, key, src, dst, length, crc)
        self.card.memory.write(self.sq + 64 * self.tail, entry)
        self.tail = (self.tail + 1) % (1 << self.log2)
        if ring:
            await self.ring()
        return self.cid

    async def ring(self):
        await self.card.write32(DOORBELLS + 0x1000 * self.index, self.tail)

    async def completion(self, limit=20_000):
        for _ in range(limit):
            entry = self.card.memory.read(self.cq + 64 * self.head, 64)
            if entry[60] & 1 == self.phase:
                break
            await FallingEdge(self.card.dut.clk_i)
        else:
            raise AssertionError(f"queue {self.index}: no completion after {limit} cycles")
        self.head = (self.head + 1) % (1 << self.log2)
        self.phase ^= self.head == 0
        await self.card.write32(DOORBELLS + 0x1000 * self.index + 4, self.head)
        names = "cid status flags bytes epoch crc contributors timestamp seq count sq_head queue"
        return SimpleNamespace(**dict(zip(names.split(), struct.unpack("<HBBIIIQQIHHH", entry[:42]))))

    async def silent(self, cycles):
        """Checks that no completion comes for a while."""
        for _ in range(cycles):
            await FallingEdge(self.card.dut.clk_i)
        assert self.card.memory.read(self.cq + 64 * self.head, 64)[60] & 1 != self.phase
