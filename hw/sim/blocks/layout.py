# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""Packs and unpacks the structs of hw/rtl/pkg/phub_pkg.sv, read from that file, so that tests name members.

    pack("seg_hdr_t", tenant=1, seq=7)  -> int (members not given are 0)
    unpack("agg_cmd_t", value)          -> object with the members; structs inside are such objects, too
    CONST["StOk"], CONST["CntAborts"]   -> constants and enum members
"""

import re
from pathlib import Path
from types import SimpleNamespace

PACKAGE = Path(__file__).resolve().parents[2] / "rtl/pkg/phub_pkg.sv"

STRUCTS = {}  # name -> [(member, type name or None, bits)], most significant first
WIDTHS = {}  # type name -> bits
CONST = {}


def _number(text):
    text = text.strip().replace("_", "")
    match = re.fullmatch(r"\d*'s?([hdb])([0-9a-fA-F]+)", text)
    if match:
        return int(match[2], {"h": 16, "d": 10, "b": 2}[match[1]])
    return int(text) if text.isdigit() else None


def _bits(kind, span):
    if kind == "logic":
        return int(span[0]) - int(span[1]) + 1 if span else 1
    return WIDTHS[kind]


def _load():
    text = re.sub(r"//.*", "", PACKAGE.read_text())
    for match in re.finditer(r"localparam\s+[^=;]*?(\w+)\s*=\s*([^;]+);", text):
        value = _number(match[2])
        if value is not None:
            CONST[match[1]] = value
    for match in re.finditer(r"typedef\s+(.*?)(\{.*?\})?\s*(\w+)\s*;", text, re.S):
        head, body, name = match[1], match[2], match[3]
        span = re.search(r"\[(\d+):(\d+)\]", head)
        if head.startswith("struct"):
            members = []
            for line in body.strip("{} \n").split(";"):
                part = re.fullmatch(r"\s*(\w+)\s*(?:\[(\d+):(\d+)\])?\s*(\w+)\s*", line)
                if part:
                    kind = part[1]
                    bits = _bits(kind, (part[2], part[3]) if part[2] else None)
                    members.append((part[4], kind if kind in STRUCTS else None, bits))
            STRUCTS[name] = members
            WIDTHS[name] = sum(bits for _, _, bits in members)
        elif head.startswith("enum"):
            WIDTHS[name] = int(span[1]) - int(span[2]) + 1 if span else 32
            for member, value in re.findall(r"(\w+)\s*=\s*([\w']+)", body):
                CONST[member] = _number(value)
        else:
            WIDTHS[name] = _bits("logic", (span[1], span[2]) if span else None)


_load()


def pack(name, /, **members):
    """The struct as an integer."""
    value = 0
    for member, inner, bits in STRUCTS[name]:
        given = members.pop(member, 0)
        if inner and isinstance(given, dict):
            given = pack(inner, **given)
        given = int(given)
        assert 0 <= given < 1 << bits, f"{name}.{member} has {bits} bits, {given:#x} does not fit"
        value = value << bits | given
    assert not members, f"{name} has no {list(members)}"
    return value


def unpack(name, value):
    """The members of an integer."""
    value = int(value)
    assert value < 1 << WIDTHS[name], f"{name} has {WIDTHS[name]} bits"
    out = {}
    for member, inner, bits in reversed(STRUCTS[name]):
        part = value & ((1 << bits) - 1)
        out[member] = unpack(inner, part) if inner else part
        value >>= bits
    return SimpleNamespace(**out)
