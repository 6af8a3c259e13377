# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
"""Rust registers: one `register!` (hw/abi/src/regs/mod.rs) for each register of the map."""

from systemrdl.node import FieldNode, RegNode


def source(top):
    """The text of generated.rs, without its head."""
    return "use super::Register;\n" + "".join(one(reg) for reg in registers(top))


def registers(top):
    """Registers in order of address; a table counts once."""
    return [n for n in top.descendants(unroll=False) if isinstance(n, RegNode)]


def path_of(reg):
    """Path without the top level and the `entry` of a table."""
    names = reg.get_path(empty_array_suffix="").split(".")[1:]
    return [n for n in names if n != "entry"]


def place(reg):
    """Offset of the first one, how many, and the distance between them."""
    count, stride, node = 1, 0, reg
    while node.parent is not None and hasattr(node, "is_array"):
        if node.is_array:
            assert count == 1, f"{reg.get_path()}: only tables of one dimension"
            (count,) = node.array_dimensions
            stride = node.array_stride
            node = node.parent
        else:
            node = node.parent
    offset, node = 0, reg
    while hasattr(node, "raw_address_offset"):
        offset += node.raw_address_offset
        node = node.parent
    return offset, count, stride


def sentence(text):
    text = " ".join(text.split())
    return text if text.endswith(".") else text + "."


def doc(node, otherwise):
    """Doc comment from `name` and `desc`."""
    name = node.get_property("name")
    desc = node.get_property("desc")
    has_name = name != node.inst_name
    parts = [sentence(name)] if has_name else []
    parts += [sentence(desc)] if desc else []
    return " ".join(parts) or sentence(otherwise)


def access(field):
    readable, writable = field.is_sw_readable, field.is_sw_writable
    return "read and write" if readable and writable else "write only" if writable else "read only"


def one(reg):
    path = path_of(reg)
    name = "".join(word.capitalize() for part in path for word in part.split("_"))
    offset, count, stride = place(reg)
    lines = [f"\nregister! {{\n    /// {doc(reg, f'`{chr(46).join(path)}`')}"]
    lines.append(f'    {name} "{".".join(path)}" @ {offset:#x}, {count} x {stride:#x} {{')
    for field in reg.children():
        assert isinstance(field, FieldNode)
        kind = "bool" if field.width == 1 else "u32"
        what = doc(field, f"`{field.inst_name}`").rstrip(".")
        lines.append(f"        /// {what} ({access(field)}).")
        lines.append(
            f"        {field.inst_name}, with_{field.inst_name}: {kind} [{field.high}:{field.low}],"
        )
    lines.append("    }\n}\n")
    return "\n".join(lines)
