# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""Makes everything that follows from hw/regs/hub.rdl.

    tools/gen/regs.py            writes the files below
    tools/gen/regs.py --check    fails if a committed file is not what would be written

Written: the SystemVerilog block and its package, a C header, one HTML page (hw/regs/generated) and the
Rust registers (hw/abi/src/regs/generated.rs).
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from peakrdl_cheader.exporter import CHeaderExporter
from peakrdl_regblock import RegblockExporter
from peakrdl_regblock.cpuif.axi4lite import AXI4Lite_Cpuif_flattened
from peakrdl_regblock.udps import ALL_UDPS
from systemrdl import RDLCompileError, RDLCompiler

import regs_html
import regs_rust

ROOT = Path(__file__).resolve().parents[2]
RDL = ROOT / "hw/regs/hub.rdl"
OUT = ROOT / "hw/regs/generated"
RUST = ROOT / "hw/abi/src/regs/generated.rs"
NOTICE = "Copyright phub contributors. SPDX-License-Identifier: Apache-2.0"
ORIGIN = "Made from hw/regs/hub.rdl by `make regs`: do not edit."


def compile_rdl():
    """Elaborates the register description."""
    compiler = RDLCompiler()
    for udp in ALL_UDPS:
        compiler.register_udp(udp)
    compiler.compile_file(str(RDL))
    return compiler.elaborate()


def generate(root, scratch):
    """All generated files: path -> text."""
    RegblockExporter().export(
        root,
        str(scratch),
        cpuif_cls=AXI4Lite_Cpuif_flattened,
        module_name="hub_regs",
        package_name="hub_regs_pkg",
    )
    CHeaderExporter().export(root, str(scratch / "hub.h"))
    files = {}
    for name in ("hub_regs.sv", "hub_regs_pkg.sv", "hub.h"):
        text = (scratch / name).read_text()
        files[OUT / name] = f"// {NOTICE}\n// {ORIGIN}\n" + tidy(text)
    files[OUT / "hub.html"] = regs_html.page(root.top, NOTICE, ORIGIN)
    files[RUST] = rustfmt(f"// {NOTICE}\n// {ORIGIN}\n" + regs_rust.source(root.top))
    return files


def tidy(text):
    """Without trailing blanks, so that generated files pass the whitespace checks."""
    return re.sub(r"[ \t]+$", "", text, flags=re.M)


def rustfmt(text):
    """What `cargo fmt` would make of it."""
    return subprocess.run(
        ["rustfmt", "--edition", "2024"], input=text, capture_output=True, text=True, check=True
    ).stdout


def main():
    parser = argparse.ArgumentParser(description="Generates what follows from hw/regs/hub.rdl.")
    parser.add_argument("--check", action="store_true", help="fail if a committed file is stale")
    check = parser.parse_args().check
    try:
        root = compile_rdl()
    except RDLCompileError:
        return "hw/regs/hub.rdl: see the messages above"
    with tempfile.TemporaryDirectory() as scratch:
        files = generate(root, Path(scratch))
    stale = [p for p, text in files.items() if not p.exists() or p.read_text() != text]
    known = set(files)
    stray = [p for p in OUT.glob("*") if p not in known]
    if check:
        for path in stale + stray:
            print(f"stale: {path.relative_to(ROOT)}")
        return "run `make regs` and commit the result" if stale or stray else 0
    OUT.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(files[path])
        print(f"wrote {path.relative_to(ROOT)}")
    for path in stray:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
