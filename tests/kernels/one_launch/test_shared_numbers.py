"""Numbers that Python, kernels and C share are the same in all of them."""

from __future__ import annotations

import re
from pathlib import Path

import bt_kernels
from bt_kernels import device_code, layout, one_launch, staging
from bt_kernels.launches import ALIGNMENT
from bt_kernels.launches.kernels import ROW_BLOCK
from bt_kernels.one_launch import carrying, shapes
from bt_kernels.staging import writes

NATIVE = Path(bt_kernels.__file__).parent / "native"
SOURCES = "\n".join(path.read_text() for path in sorted(NATIVE.glob("*.[ch]")))
DEFINED = {
    name: int(number)
    for name, number in re.findall(r"^#define (\w+) (-?\d+)\b", SOURCES, re.MULTILINE)
}
IN_PYTHON = {
    name: getattr(number, "value", number)
    for module in (layout, device_code, shapes, staging, writes, one_launch)
    for name, number in vars(module).items()
    if name.isupper()
} | {"ALIGNMENT": ALIGNMENT, "NUM_LEADING": carrying.NUM_LEADING}


def enumerated(first):
    """Return the names of the enumeration in C that begins with one, but a last comma."""
    (names,) = re.findall(rf"enum {{\s*({first}\b[^}}]*)}}", SOURCES)
    return re.findall(r"\w+", names)


def test_what_c_defines_is_what_python_has():
    shared = DEFINED.keys() & IN_PYTHON.keys()
    assert shared >= {
        *("RECORD_FIELDS", "STEP_RECORD_FIELDS", "MARK_FIELDS", "BITMAP_ROWS", "PIECE_IDS"),
        *("ALIGNED_IDS", "MOST_WORDS", "NULL_BLOCK_ID", "ALIGNMENT", "MAX_NUM_BATCHED_TOKENS"),
    }
    assert {name: DEFINED[name] for name in shared} == {name: IN_PYTHON[name] for name in shared}


def test_c_counts_shapes_and_kinds_as_python_does():
    assert DEFINED["NUM_SHAPES"] == len(shapes.SHAPES)
    assert DEFINED["NUM_KINDS"] == len(one_launch.KINDS)
    assert [getattr(shapes, name) for name in enumerated("FEW")] == list(shapes.SHAPES)
    assert [getattr(one_launch, name) for name in enumerated("SINGLE_IDS")] == list(
        one_launch.KINDS
    )
    *_, last = enumerated("DESCRIPTORS")
    assert last == "NUM_LEADING"
    assert len(enumerated("DESCRIPTORS")) - 1 == IN_PYTHON["NUM_LEADING"]


def test_what_is_copied_at_a_time_is_a_multiple_of_four():
    """Columns before what is staged are copied in fours, wherever a program begins."""
    for columns in (
        *(shapes.WIDE_COLUMNS, shapes.OWN_COLUMNS),
        *(shape.columns for shape in (*shapes.SHAPES, shapes.FIXED)),
    ):
        assert columns % 4 == 0


def test_int32_counts_tokens_columns_and_ids_past_the_last():
    """Loops over them end once they are past the last, by a step of all programs of a group."""
    steps = (
        shapes.MAX_SPANS * shapes.SPAN,
        shapes.MAX_PADS * shapes.BLOCK,
        shapes.MAX_CHUNKS * shapes.WIDE_COLUMNS + shapes.OWN_COLUMNS,
        ROW_BLOCK,
    )
    assert steps[0] == 131_072  # as `MAX_NUM_BATCHED_TOKENS` says
    most = max(layout.MAX_NUM_BATCHED_TOKENS, layout.MAX_WIDTH)
    assert most + 2 * max(steps) <= layout.INT32_MAX
    assert layout.INT32_MAX + max(steps) > 2**31  # so that a limit is needed


def test_a_header_holds_the_most_there_can_be():
    """`num_chunks` and `num_pads` have eight bits of it, requests and rows sixteen.

    The highest bit is left, since words are signed.
    """
    assert shapes.MAX_CHUNKS < 2**7
    assert shapes.MAX_PADS < 2**8
    assert layout.MAX_NUM_REQS < 2**15
    assert staging.BITMAP_ROWS + 16 == 64  # and as many bits count intervals
