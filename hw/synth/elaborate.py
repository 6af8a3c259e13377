# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""Elaborates the core for synthesis, at its default and at its smallest size: every process must become
flip-flops, no latch, and the big arrays must stay memories.

    hw/synth/elaborate.py [MODULE]    (phub_core if none is named)
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RTL = ROOT / "hw/rtl"

# Parameters of the core for each size.
SIZES = {
    "default": {},
    "tiny": dict(Lanes=1, SegBytes=64, Slots=4, Tenants=1, Workers=1, Queues=1, DescDepth=2, ReadTags=2),
}

# Arrays that must be inferred as memories (instance path inside the core ends with the name), at default size.
MEMORIES = ["u_rob.mem", "u_ex_ram.mem", "u_cl_ram.mem", "u_slot_ctrl.u_rows.mem", "u_counters.u_rows.mem"]


def sources():
    """The packages and modules, packages first."""
    rtl = sorted(RTL.rglob("*.sv")) + sorted((ROOT / "hw/regs/generated").glob("*.sv"))
    packages = sorted((f for f in rtl if f.stem.endswith("_pkg")), key=lambda f: f.stem != "phub_pkg")
    return packages + [f for f in rtl if not f.stem.endswith("_pkg")]


def elaborate(top, parameters, memories):
    """Runs in a process of its own: Yosys keeps its state, and leaves on errors."""
    from pyosys import libyosys as ys

    files = " ".join(str(f) for f in sources())
    overrides = " ".join(f"-G {name}={value}" for name, value in parameters.items())
    design = ys.Design()

    def run(command):
        ys.run_pass(command, design)

    run(f"read_slang --top {top} {overrides} -I {RTL / 'pkg'} --ignore-assertions {files}")
    run(f"hierarchy -check -top {top}")
    run("proc")
    run("flatten")
    run("opt_clean")
    run("check -assert")
    run("select -assert-none t:$dlatch t:$adlatch t:$dlatchsr t:$sr")
    run("memory_dff")
    run("memory_collect")
    for name in memories:
        run(f"select -assert-count 1 t:$mem_v2 c:*{name} %i")
    run("stat")


def main():
    if len(sys.argv) > 3 and sys.argv[1] == "--child":
        _, _, size, top = sys.argv
        core = top == "phub_core"
        elaborate(top, SIZES[size] if core else {}, MEMORIES if core and size == "default" else [])
        return 0
    top = sys.argv[1] if len(sys.argv) > 1 else "phub_core"
    failed = 0
    for size in SIZES if top == "phub_core" else ["default"]:
        with tempfile.TemporaryFile("w+") as log:
            child = [sys.executable, __file__, "--child", size, top]
            code = subprocess.run(child, stdout=log, stderr=subprocess.STDOUT, timeout=600).returncode
            log.seek(0)
            text = log.read()
        if code:
            failed += 1
            print(text[-6000:])
        elif "-v" in sys.argv:
            print(text)
        print(f"{top}, {size}: {'failed' if code else 'elaborates, no latch, memories stay memories'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
