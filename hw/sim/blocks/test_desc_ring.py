# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""desc_ring against a list for each queue: what is pushed is what desc_exec and egress_sched see, in order, with
the first error of its segments."""

import random

import cocotb
import pytest
from cocotb.triggers import FallingEdge, ReadOnly
from harness import cycles, run, start
from layout import CONST, pack, unpack

OK = CONST["StOk"]


class Entry:
    """One descriptor as the model keeps it."""

    def __init__(self, didx, status):
        self.didx = didx
        self.desc = dict(opcode=random.randrange(256), flags=random.getrandbits(4), cid=random.getrandbits(16),
                         epoch=random.getrandbits(32), seq=random.getrandbits(32), key=random.getrandbits(32),
                         src=random.getrandbits(64), dst=random.getrandbits(64), length=random.getrandbits(30),
                         crc=random.getrandbits(32))
        self.sq_head = random.getrandbits(12)
        self.status, self.done = status, status != OK
        self.seq = (self.desc["seq"] - (status == OK)) % (1 << 32)

    def retire(self, last, status, seq):
        if self.status == OK:
            self.status, self.seq = status, seq
        self.done = self.done or last


class Model:
    def __init__(self, queues, depth):
        self.queues, self.depth = queues, depth
        self.entries = [[] for _ in range(queues)]
        self.executed = [0] * queues  # of those in the list
        self.pushed = [0] * queues


async def clear_inputs(dut):
    for name in ("start_valid_i", "push_valid_i", "ex_next_i", "cl_next_i", "cl_flush_i", "retire_valid_i"):
        getattr(dut, name).value = 0


@cocotb.test()
async def behaves_as_the_model(dut):
    await start(dut)
    queues, depth = dut.Queues.value.to_unsigned(), dut.DescDepth.value.to_unsigned()
    model = Model(queues, depth)
    closed = errors = 0
    for _ in range(1500):
        await FallingEdge(dut.clk_i)
        await clear_inputs(dut)
        q = random.randrange(queues)
        entries, ahead = model.entries[q], model.executed[q]
        action = random.choice(["push", "push", "execute", "retire", "retire", "close", "flush", "look", "start"])
        if action == "push" and len(entries) < depth:
            entry = Entry(model.pushed[q] % depth, random.choice([OK] * 5 + [CONST["StBadAlign"]]))
            dut.push_valid_i.value, dut.push_queue_i.value = 1, q
            dut.push_desc_i.value = pack("desc_t", **entry.desc)
            dut.push_status_i.value, dut.push_sq_head_i.value = entry.status, entry.sq_head
            await ReadOnly()
            assert dut.push_ready_o.value == 1
            entries.append(entry)
            model.pushed[q] += 1
        elif action == "retire" and any(not e.done for e in entries[:ahead]):
            entry = random.choice([e for e in entries[:ahead] if not e.done])
            status = random.choice([OK, OK, CONST["StMismatch"], CONST["StStaleSeq"]])
            fact = dict(last=random.getrandbits(1), status=status, seq=random.getrandbits(32))
            dut.retire_valid_i.value = 1
            dut.retire_i.value = pack("retire_t", queue=q, didx=entry.didx, **fact)
            await ReadOnly()
            assert dut.push_ready_o.value == 0, "a retirement has precedence"
            entry.retire(**fact)
        elif action == "start" and random.random() < 0.1:
            dut.start_valid_i.value, dut.start_queue_i.value = 1, q
            model.entries[q], model.executed[q], model.pushed[q] = [], 0, 0
        else:
            # Look at the queue from both sides, then perhaps move on.
            dut.ex_queue_i.value, dut.cl_queue_i.value = q, q
            await FallingEdge(dut.clk_i)
            assert dut.ex_empty_o.value == (ahead == len(entries))
            assert dut.cl_empty_o.value == (not entries)
            if ahead < len(entries):
                entry = entries[ahead]
                assert dut.ex_didx_o.value.to_unsigned() == entry.didx
                assert vars(unpack("desc_t", dut.ex_desc_o.value)) == {**entry.desc, "reserved": 0}
                if action == "execute":
                    dut.ex_next_i.value = 1
                    model.executed[q] += 1
            if entries:
                entry = entries[0]
                assert dut.cl_didx_o.value.to_unsigned() == entry.didx
                assert vars(unpack("desc_t", dut.cl_desc_o.value)) == {**entry.desc, "reserved": 0}
                assert dut.cl_sq_head_o.value.to_unsigned() == entry.sq_head
                assert dut.cl_done_o.value == (entry.done and ahead > 0), "not before desc_exec is past it"
                assert dut.cl_status_o.value.to_unsigned() == entry.status
                assert dut.cl_seq_o.value.to_unsigned() == entry.seq
                may_close = action == "close" and ahead > 0 and entry.done
                if may_close or action == "flush":
                    dut.cl_next_i.value, dut.cl_flush_i.value = 1, int(action == "flush")
                    entries.pop(0)
                    model.executed[q] = max(0, model.executed[q] - 1)
                    closed += 1
                    errors += entry.status != OK
    assert closed > 50 and errors > 5
    await cycles(dut)


@pytest.mark.parametrize("queues, depth", [(1, 2), (5, 4), (64, 16)])
def test_desc_ring(queues, depth):
    run("desc_ring", Queues=queues, DescDepth=depth)
