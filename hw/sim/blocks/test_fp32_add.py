# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""fp32_add against this machine's addition."""

import subprocess

from fp32.bench import ROOT, build, compare

LATENCY = 7
SOURCE = ROOT / "hw/rtl/aggregate/fp32_add.sv"


def test_fp32_add():
    compare(build("fp32_add", SOURCE, LATENCY, [], ROOT / "target/blocks/fp32_add"))


def test_a_wrong_adder_is_found(tmp_path):
    """The bench sees an adder that loses the sticky bit."""
    broken = SOURCE.read_text().replace("|aligned[27:0]", "aligned[27]")
    assert broken != SOURCE.read_text()
    (tmp_path / "fp32_add.sv").write_text(broken)
    program = build("fp32_add", tmp_path / "fp32_add.sv", LATENCY, [], tmp_path / "build")
    result = subprocess.run([program, "1", "1"], capture_output=True, text=True, timeout=600)
    assert result.returncode == 1 and "expected" in result.stdout
