"""What is read of a cubin without a tool."""

from __future__ import annotations

import struct

import pytest

from bt_bench.worker.compiling.machine_code import code_of


def elf(sections):
    """A file of sections, given by name and contents."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _ in sections) + b".names\0"
    contents = [*(data for _, data in sections), names]
    places, at = [], 64
    for data in contents:
        places.append((at, len(data)))
        at += len(data)
    head = bytearray(64)
    struct.pack_into("<Q", head, 0x28, at)
    struct.pack_into("<HHH", head, 0x3A, 64, len(contents), len(contents) - 1)
    table, offset = b"", 1
    for (name, _), (place, length) in zip([*sections, (".names", b"")], places, strict=True):
        entry = bytearray(64)
        struct.pack_into("<I", entry, 0, offset)
        struct.pack_into("<QQ", entry, 0x18, place, length)
        table += bytes(entry)
        offset += len(name) + 1
    return bytes(head) + b"".join(contents) + table


def test_only_the_instructions_count():
    one = elf([(".debug_line", b"here"), (".text.kernel", b"code"), (".text.other", b"more")])
    other = elf([(".debug_line", b"there, longer"), (".text.kernel", b"code")])
    assert code_of(one) == b"codemore"
    assert code_of(other) == b"code"


@pytest.mark.parametrize("data", [b"", b"\x7fELF", elf([(".text.kernel", b"code")])[:-40]])
def test_what_is_no_cubin_is_refused(data):
    with pytest.raises(ValueError, match="not a cubin"):
        code_of(data)
