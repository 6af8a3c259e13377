# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""The tables beside a module: look-ups that answer one cycle after the question, and the host's access to them."""

import cocotb
from cocotb.triggers import FallingEdge, ReadOnly
from layout import pack


class Lookup:
    """Answers `answer` port one cycle after `question` port with rows[question] (a packed integer, 0 if missing)."""

    def __init__(self, dut, question, answer, rows):
        self._dut, self.rows = dut, rows
        self._question, self._answer = getattr(dut, question), getattr(dut, answer)
        cocotb.start_soon(self._run())

    async def _run(self):
        asked = 0
        while True:
            await FallingEdge(self._dut.clk_i)
            self._answer.value = self.rows.get(asked, 0)
            # The question may depend on the answer of another table in the same cycle.
            await ReadOnly()
            asked = self._question.value.to_unsigned()


class TableHost:
    """The host's side of a table: tbl_req_t and tbl_rsp_t."""

    def __init__(self, dut, request="req_i", response="rsp_o"):
        self._dut = dut
        self._request, self._response = getattr(dut, request), getattr(dut, response)

    async def _access(self, **fields):
        await FallingEdge(self._dut.clk_i)
        self._request.value = pack("tbl_req_t", valid=1, **fields)
        for _ in range(1000):
            await FallingEdge(self._dut.clk_i)
            answer = self._response.value.to_unsigned()
            if answer >> 32:
                self._request.value = 0
                return answer & 0xFFFF_FFFF
        raise AssertionError("the table does not answer")

    async def write(self, addr, data):
        await self._access(write=1, addr=addr, wdata=data)

    async def read(self, addr):
        return await self._access(write=0, addr=addr)
