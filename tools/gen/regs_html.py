# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""The register reference as one HTML page without scripts or outside references."""

from html import escape

from systemrdl.node import RegfileNode, RegNode

import regs_rust

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: .4rem 0 1.4rem; width: 100%; }
td, th { border-bottom: 1px solid #ccc; padding: .2rem .6rem; text-align: left; vertical-align: top; }
td:first-child { font-family: monospace; white-space: nowrap; width: 5rem; }
h3 { margin-bottom: .1rem; } h3 code { color: #555; font-weight: normal; }
p { margin: .1rem 0; } @media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } }
"""


def page(top, notice, origin):
    """The page."""
    title = escape(top.get_property("name"))
    out = [
        "<!DOCTYPE html>",
        f"<!-- {notice} -->",
        f"<!-- {origin} -->",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{title}</title><style>{STYLE}</style></head><body>",
        f"<h1>{title}</h1><p>{escape(top.get_property('desc'))}</p>",
        "<p>All registers are 32 bits wide, little endian. Fields not listed read as 0.</p>",
    ]
    for child in top.children():
        if isinstance(child, RegfileNode):
            out.append(f"<h2 id={child.inst_name}>{escape(child.get_property('name'))}</h2>")
            out.append(f"<p>{escape(child.get_property('desc') or '')}</p>")
            out += [register(reg) for reg in regs_rust.registers(child)]
        elif isinstance(child, RegNode):
            out.append(register(child))
    out.append("</body></html>")
    return "\n".join(out) + "\n"


def register(reg):
    """One register with its fields."""
    path = ".".join(regs_rust.path_of(reg))
    offset, count, stride = regs_rust.place(reg)
    where = f"{offset:#08x}" + (f" + {stride:#x}·i, i &lt; {count}" if count > 1 else "")
    name = reg.get_property("name")
    heading = escape(path if name == reg.inst_name else f"{path}: {name}")
    rows = []
    for field in reversed(list(reg.children())):
        bits = f"{field.high}" if field.width == 1 else f"{field.high}:{field.low}"
        reset = field.get_property("reset")
        rows.append(
            f"<tr><td>{bits}</td><td><code>{field.inst_name}</code></td>"
            f"<td>{regs_rust.access(field)}</td>"
            f"<td>{'' if reset is None else f'{reset:#x}'}</td>"
            f"<td>{escape(field.get_property('desc') or '')}</td></tr>"
        )
    return (
        f'<h3 id="{path}">{heading} <code>{where}</code></h3>'
        f"<p>{escape(reg.get_property('desc') or '')}</p>\n"
        "<table><tr><th>Bits<th>Field<th>Access<th>Reset<th>Meaning</tr>\n"
        + "\n".join(rows)
        + "</table>"
    )
