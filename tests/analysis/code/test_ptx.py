"""The longest chain of loads in a kernel's PTX."""

from __future__ import annotations

from bt_bench.analysis.code.ptx import dependent_loads, places_of

HEAD = """.version 9.0
.file 1 "/somewhere/mine.py"
.visible .entry kernel(.param .u64 kernel_param_0)
{
"""


def chain(body):
    return dependent_loads(f"{HEAD}{body}\n\tret;\n}}\n")


def load(line, written, address, guard=""):
    return f".loc 1 {line} 5\n\t{guard}ld.global.b32 {{ {written} }}, [ {address} + 0 ];\n"


def test_loads_of_parameters_and_constants_do_not_count():
    text = "ld.param.b64 %rd1, [kernel_param_0];\nld.const.b32 %r1, [table];\n"
    assert chain(text) == []
    assert chain(text + load(7, "%r2", "%rd1")) == ["mine.py:7"]


def test_by_address_also_through_arithmetic():
    text = load(1, "%r1", "%rd1") + "mad.wide.s32 %rd2, %r1, 4, %rd1;\n" + load(2, "%r2", "%rd2")
    assert chain(text) == ["mine.py:1", "mine.py:2"]
    apart = load(1, "%r1", "%rd1") + load(2, "%r2", "%rd1")
    assert len(chain(apart)) == 1


def test_what_is_overwritten_is_waited_for_no_more():
    text = load(1, "%r1", "%rd1") + "mov.b32 %r1, 0;\nadd.s64 %rd2, %rd1, %r1;\n"
    assert len(chain(text + load(2, "%r2", "%rd2"))) == 1


def test_by_a_guard_and_by_a_value_that_is_kept():
    compared = load(1, "%r1", "%rd1") + "setp.lt.s32 %p1, %r1, 9;\n"
    assert len(chain(compared + load(2, "%r2", "%rd1", "@%p1 "))) == 2
    assert len(chain(compared + load(2, "%r2", "%rd1", "@!%p1 "))) == 2
    # What a guarded load leaves may be of before.
    kept = load(1, "%r1", "%rd1") + load(2, "%r1", "%rd1", "@%p9 ") + load(3, "%r2", "%r1")
    assert len(chain(kept)) == 2


def test_by_a_branch_that_it_stands_behind():
    compared = load(1, "%r1", "%rd1") + "setp.lt.s32 %p1, %r1, 9;\n"
    behind = compared + "@%p1 bra $L1;\n" + load(2, "%r2", "%rd1") + "$L1:\n"
    assert chain(behind) == ["mine.py:1", "mine.py:2"]
    # Not what is run either way.
    after = compared + "@%p1 bra $L1;\nmov.b32 %r3, 0;\n$L1:\n" + load(2, "%r2", "%rd1")
    assert len(chain(after)) == 1


def test_loops_are_passed_once():
    text = load(1, "%rd1", "%rd1") + "$L1:\n" + load(2, "%rd1", "%rd1")
    assert len(chain(f"{text}setp.ne.b64 %p1, %rd1, 0;\n@%p1 bra $L1;\n")) == 2


def test_through_shared_memory():
    text = load(1, "%r1", "%rd1") + "st.shared.b32 [ %r9 + 0 ], { %r1 };\nbar.sync 0;\n"
    text += "ld.shared.b32 %r2, [%r9];\n" + load(3, "%r3", "%r2")
    assert chain(text) == ["mine.py:1", "mine.py:3"]


def test_vectors_generic_addresses_and_atomics():
    text = ".loc 1 4 1\n\tld.global.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];\n"
    text += ".loc 1 5 1\n\tld.b32 %r3, [%r2];\n.loc 1 6 1\n\tatom.global.add.u32 %r4, [%r3], 1;\n"
    assert chain(text + load(7, "%r5", "%r4")) == [f"mine.py:{line}" for line in (4, 5, 6, 7)]


def test_all_of_inline_assembly_is_of_one_line():
    text = (
        f"{HEAD}.loc 1 8 3\n// begin inline asm\n.loc 1 8 3\nmov.u32 %r1, 0x0;\n.loc 1 9 3\n"
        "ld.global.b32 { %r1 }, [ %rd1 + 0 ];\n// end inline asm\nmov.b32 %r2, 0;\n.loc 1 11 0\n"
    )
    assert places_of(text)[-5:] == ["mine.py:8"] * 4 + ["mine.py:11"]
    assert chain(text.removeprefix(HEAD)) == ["mine.py:8"]
    assert dependent_loads("ld.global.b32 %r1, [%rd1];") == ["?"]
