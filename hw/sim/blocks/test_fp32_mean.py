# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""fp32_mean against this machine's division by 1 to 64."""

from fp32.bench import ROOT, build, compare


def test_fp32_mean():
    source = ROOT / "hw/rtl/egress/fp32_mean.sv"
    compare(build("fp32_mean", source, 6, ["-DUNIT_IS_MEAN"], ROOT / "target/blocks/fp32_mean"))
