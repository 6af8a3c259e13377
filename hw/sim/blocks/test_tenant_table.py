# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""tenant_table: what the host writes is what look-ups give; nonsense reads as disabled; epochs advance."""

import random

import cocotb
import pytest
from cocotb.triggers import FallingEdge
from harness import Table, cycles, run, start
from layout import unpack

CTRL, SLOTS, TOKEN_LO, TOKEN_HI, EPOCH = range(0, 20, 4)


async def look(dut, tenant, port=0):
    dut.tenant_i[port].value = tenant
    await FallingEdge(dut.clk_i)
    return unpack("tenant_cfg_t", dut.cfg_o[port].value)


async def create(table, tenant, workers, base, log2, epoch=0, token=0, enable=1):
    for offset, value in [
        (SLOTS, base | log2 << 16),
        (TOKEN_LO, token & 0xFFFFFFFF),
        (TOKEN_HI, token >> 32),
        (EPOCH, epoch),
        (CTRL, enable | workers << 8),
    ]:
        await table.write(tenant * 0x40 + offset, value)


@cocotb.test()
async def gives_what_was_written(dut):
    await start(dut)
    table, made = Table(dut), {}
    tenants, workers = dut.Tenants.value.to_unsigned(), dut.Workers.value.to_unsigned()
    slots = dut.Slots.value.to_unsigned()
    for tenant in random.sample(range(tenants), min(tenants, 12)):
        log2 = random.randrange(slots.bit_length())
        base = random.randrange(slots - (1 << log2) + 1)
        made[tenant] = (random.randrange(1, workers + 1), base, log2,
                        random.getrandbits(32), random.getrandbits(64))
        await create(table, tenant, *made[tenant])
    for tenant in range(tenants):
        cfg = await look(dut, tenant, random.randrange(len(dut.cfg_o)))
        assert cfg.enable == (tenant in made)
        if tenant in made:
            assert (cfg.workers, cfg.slot_base, cfg.slot_log2, cfg.epoch, cfg.token) == made[tenant]
            assert await table.read(tenant * 0x40 + EPOCH) == made[tenant][3]
            assert await table.read(tenant * 0x40 + CTRL) & 0x7F01 == 1 | made[tenant][0] << 8


@cocotb.test()
async def nonsense_is_disabled(dut):
    await start(dut)
    table = Table(dut)
    workers, slots = dut.Workers.value.to_unsigned(), dut.Slots.value.to_unsigned()
    full = slots.bit_length() - 1
    cases = {
        (1, 0, full): 1, (workers, slots - 1, 0): 1, (1, 1, full): 0, (1, slots, 0): 0, (1, 0, 31): 0,
        (1, 0xFFFF, 16): 0, (0, 0, 0): 0, (workers + 1, 0, 0): 0,
    }
    for case, enabled in cases.items():
        await create(table, 0, *case)
        assert (await look(dut, 0)).enable == enabled, case


@cocotb.test()
async def epochs_advance_and_wrap(dut):
    await start(dut)
    table = Table(dut)
    await create(table, 0, 1, 0, 0, epoch=0xFFFFFFFE)
    for expected in (0xFFFFFFFF, 0, 1):
        dut.bump_valid_i.value = 1
        await FallingEdge(dut.clk_i)
        dut.bump_valid_i.value = 0
        assert (await look(dut, 0)).epoch == expected


@cocotb.test()
async def other_addresses_are_empty(dut):
    await start(dut)
    table = Table(dut)
    await create(table, 0, 1, 0, 0, epoch=7)
    tenants = dut.Tenants.value.to_unsigned()
    for addr in (0x14, 0x20, 0x3C, tenants * 0x40, tenants * 0x40 + EPOCH, 0x20000):
        await table.write(addr, 0xFFFFFFFF)
        assert await table.read(addr) == 0, hex(addr)
    cfg = await look(dut, 0)
    assert (cfg.enable, cfg.epoch) == (1, 7)


@cocotb.test()
async def a_soft_reset_disables_all(dut):
    await start(dut)
    table = Table(dut)
    await create(table, 0, 1, 0, 0)
    dut.soft_rst_i.value = 1
    await cycles(dut, 2)
    dut.soft_rst_i.value = 0
    assert (await look(dut, 0)).enable == 0
    assert await table.read(CTRL) & 1 == 0


@pytest.mark.parametrize("tenants, workers, slots", [(1, 1, 4), (5, 12, 64), (64, 64, 1024)])
def test_tenant_table(tenants, workers, slots):
    run("tenant_table", Tenants=tenants, Workers=workers, Slots=slots)
