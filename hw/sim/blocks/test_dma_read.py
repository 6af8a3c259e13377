# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""dma_read gives headers and beats in the order of the requests, whatever order the host answers in."""

import random
import zlib

import cocotb
import pytest
from chip import HostMemory
from harness import Sink, Source, cycles, run, start
from layout import CONST, pack, unpack

STALLS = [0.0, 0.4]
HOLE = 0x7F  # reads of addresses with this top byte are refused


class Bench:
    """The module between requests, host memory and its three outputs."""

    @classmethod
    async def create(cls, dut, idle=0.0, push_back=0.0, **host):
        bench = cls()
        await start(dut)
        bench.dut = dut
        bench.beat = len(dut.m_axi_rdata) // 8
        bench.seg = dut.SegBytes.value.to_unsigned()
        bench.memory = HostMemory(refused=lambda address: address >> 56 == HOLE, **host)
        bench.memory.serve_reads(dut)
        bench.requests = Source(dut, "req_valid_i", "req_ready_o", "req_i", idle)
        bench.headers = Sink(dut, "hdr_valid_o", "hdr_ready_i", "hdr_o", push_back)
        bench.beats = Sink(dut, "beat_valid_o", "beat_ready_i", "beat_data_o", push_back)
        bench.descs = Sink(dut, "desc_valid_o", None, ["desc_queue_o", "desc_o", "desc_error_o"])
        bench.expected_headers, bench.expected_beats, bench.expected_descs = [], [], []
        bench.seq = 0
        return bench

    def address(self, size, hole=False):
        """64-byte aligned, often such that the bytes cross a page."""
        page = random.getrandbits(40) << 12
        at = random.choice([0, 64 * random.randrange(64), (4096 - 64 * random.randint(1, 4)) % 4096])
        address = page + at | (HOLE << 56 if hole else 0)
        self.memory.write(address, random.randbytes(size))
        return address

    def descriptor(self, queue, hole=False):
        """A fetch of a submission entry."""
        address = self.address(64, hole)
        self.requests.send(pack("rd_req_t", is_desc=1, queue=queue, addr=address, bytes=64))
        data = int.from_bytes(self.memory.read(address, 64), "little")
        self.expected_descs.append((queue, data, int(hole)))

    def chunk(self, queue, lengths, crc=None, hole=None, has_data=True):
        """Requests of one descriptor, one for each of `lengths`. `crc`: None, "good" or "bad"; `hole`: index refused."""
        addresses = [self.address(n, i == hole) for i, n in enumerate(lengths)]
        payload = b"".join(self.memory.read(a, n) for a, n in zip(addresses, lengths))
        stated = (zlib.crc32(payload) ^ (crc == "bad")) if crc else 0
        for i, (address, length) in enumerate(zip(addresses, lengths)):
            last = i == len(lengths) - 1
            self.seq += 1
            header = dict(
                queue=queue,
                seq=self.seq,
                key=random.getrandbits(32),
                bytes=length,
                has_data=int(has_data),
                first=int(i == 0),
                last=int(last),
                crc_en=int(crc is not None),
                crc_check=int(crc is not None and last),
                crc=stated,
            )
            request = dict(queue=queue, addr=address, bytes=length if has_data else 0, hdr=header)
            status = CONST["StOk"]
            if i == hole:
                status = CONST["StReadError"]
            elif last and crc == "bad":
                status = CONST["StCrcError"]
            beats = []
            if has_data:
                data = self.memory.read(address, length)
                data += bytes(-length % self.beat)
                beats = [int.from_bytes(data[j : j + self.beat], "little") for j in range(0, len(data), self.beat)]
            yield request, header | dict(status=status), beats

    def send(self, segment):
        request, header, beats = segment
        self.requests.send(pack("rd_req_t", **request))
        self.expected_headers.append(pack("seg_hdr_t", **header))
        self.expected_beats += beats

    async def check(self):
        await self.headers.get(len(self.expected_headers))
        await self.beats.get(len(self.expected_beats))
        await self.descs.get(len(self.expected_descs))
        await cycles(self.dut, 4)
        for got, want in zip(self.headers.words, self.expected_headers):
            assert got == want, (unpack("seg_hdr_t", got), unpack("seg_hdr_t", want))
        assert self.beats.words == self.expected_beats
        assert self.descs.words == self.expected_descs
        assert self.dut.idle_o.value == 1


@cocotb.test()
@cocotb.parametrize(idle=STALLS, push_back=STALLS, host=STALLS)
async def keeps_order_over_a_host_that_does_not(dut, idle, push_back, host):
    bench = await Bench.create(dut, idle, push_back, latency=20, jitter=60, reorder=True, stall=host)
    queues = dut.Queues.value.to_unsigned()
    lines = {}  # queue -> segments still to be requested, in order
    for _ in range(60 if bench.seg <= 1024 else 12):
        queue = random.randrange(queues)
        if random.random() < 0.2:
            bench.descriptor(queue, hole=random.random() < 0.2)
            continue
        if not lines.get(queue):
            count = random.randint(1, 3)
            lengths = [bench.seg] * (count - 1) + [4 * random.randint(1, bench.seg // 4)]
            hole = random.randrange(count) if random.random() < 0.15 else None
            has_data = random.random() < 0.8
            crc = random.choice([None, "good", "bad"]) if has_data and hole is None else None
            lines[queue] = list(bench.chunk(queue, lengths, crc, hole if has_data else None, has_data))
        bench.send(lines[queue].pop(0))
    await bench.check()


@cocotb.test()
async def hides_the_latency_of_the_host(dut):
    """Full segments leave without a gap if the read buffer holds more than the latency."""
    bench = await Bench.create(dut, latency=60)
    beats = bench.seg // bench.beat
    for segment in bench.chunk(0, [bench.seg] * (512 // beats + 8)):
        bench.send(segment)
    marks = []
    for _ in range(2000):
        await cycles(dut)
        if len(bench.beats.words) > len(marks):
            marks.append(_)
    await bench.check()
    rate = (len(marks) - 100) / (marks[-50] - marks[50] + 1)
    cocotb.log.info("%.3f beats a cycle", rate)
    # A segment needs a cycle to be requested and two for its header.
    if dut.ReadTags.value.to_unsigned() * beats >= 256 and beats >= 4:
        assert rate > 0.95


@pytest.mark.parametrize(
    "parameters",
    [
        dict(Lanes=16, SegBytes=1024, ReadTags=32, Queues=5),
        dict(Lanes=1, SegBytes=64, ReadTags=2, Queues=1),
        dict(Lanes=16, SegBytes=64, ReadTags=4, Queues=2),
        dict(Lanes=16, SegBytes=8192, ReadTags=4, Queues=3),
    ],
    ids=["default", "tiny", "one-beat", "long"],
)
def test_dma_read(parameters):
    run("dma_read", **parameters)
