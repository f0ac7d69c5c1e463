"""Classes of instructions, and waits, by the barriers that instructions name."""

from __future__ import annotations

import pytest

from bt_bench.analysis.code.sass import read_code

PTX = '.file 1 "/x/mine.py"\n' + "".join(f".loc 1 {line} 1\n" for line in range(2, 12))


class Code:
    """Text as nvdisasm prints it."""

    def __init__(self):
        self._lines = []
        self._number = 0

    def add(self, text, *, signals=7, waits=(), line=1):
        upper = signals << 46 | sum(1 << 52 + number for number in waits)
        self._lines += [
            f'\t//## File ".nv_debug_ptx_txt", line {line}',
            f"        /*{self._number:04x}*/                   {text} ;"
            "                  /* 0x0000000000000000 */",
            f"                         /* 0x{upper:016x} */",
        ]
        self._number += 16
        return self

    def label(self, name):
        self._lines.append(f"{name}:")
        return self

    def read(self):
        return read_code("\n".join(self._lines), PTX)


def test_classes():
    code = Code()
    for text in (
        "LDG.E.64 R2, desc[UR4][R2.64]",
        "@P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64]",
        "LDG.E.U16 R4, desc[UR4][R2.64]",
        "LD.E R4, [R2.64]",
        "LDS.128 R4, [R2]",
        "LDC.64 R4, c[0x0][0x210]",
        "LDCU UR4, c[0x0][0x358]",
        "STG.E desc[UR4][R2.64], R4",
        "STL.64 [R1], R4",
        "LDL R4, [R1]",
        "ATOMG.E.ADD.STRONG.GPU PT, R4, desc[UR4][R2.64], R5",
        "BAR.SYNC.DEFER_BLOCKING 0x0",
        "@P0 BRA `(.L_x_0)",
        "NOP",
        "EXIT",
    ):
        code.add(text)
    found = code.label(".L_x_0").add("EXIT").read()
    assert found.loads == {
        "any:32": 1, "constant:32": 1, "constant:64": 1, "global:128": 1, "global:16": 1,
        "global:64": 1, "local:32": 1, "shared:128": 1,
    }  # fmt: skip
    assert found.stores == {"global:32": 1, "local:64": 1}
    assert (found.atomics, found.barriers, found.branches) == (1, 1, 1)
    assert found.instructions == 15


def test_loads_before_one_wait_take_their_time_together():
    code = Code().add("LDG.E R2, [R4]", signals=0, line=3).add("LDG.E R3, [R4]", signals=1, line=4)
    code.add("IADD3 R5, R2, R3, RZ", waits=[0, 1]).add("EXIT")
    assert code.read().waits == [["mine.py:3", "mine.py:4"]]
    code = Code().add("LDG.E R2, [R4]", signals=0, line=3).add("LDG.E R3, [R4]", signals=1, line=4)
    code.add("IADD3 R5, R2, R2, RZ", waits=[0]).add("IADD3 R5, R3, R3, RZ", waits=[1]).add("EXIT")
    assert code.read().waits == [["mine.py:3"]]


def test_a_load_behind_a_wait_is_waited_for_again():
    code = Code().add("LDG.E R2, [R4]", signals=0, line=3)
    code.add("LDG.E R3, [R2]", signals=0, waits=[0], line=4)
    code.add("STG.E [R4], R3", waits=[0]).add("EXIT")
    assert code.read().waits == [["mine.py:3"], ["mine.py:4"]]


def test_what_is_no_load_from_global_memory_is_not_counted():
    code = Code().add("S2R R2, SR_TID.X", signals=0).add("LDS R3, [R2]", signals=1, waits=[0])
    assert code.add("STG.E [R4], R3", waits=[1]).add("EXIT").read().waits == []


def test_the_way_with_the_most_waits():
    code = Code().add("LDG.E R2, [R4]", signals=0, line=3)
    code.add("@P0 BRA `(.L_x_1)", waits=[0])
    code.add("LDG.E R2, [R4]", signals=0, line=4).add("IADD3 R2, R2, R2, RZ", waits=[0])
    code.add("BRA `(.L_x_2)")
    code.label(".L_x_1").add("IADD3 R2, R2, R2, RZ")
    code.label(".L_x_2").add("@P1 EXIT").add("LDG.E R2, [R4]", signals=0, line=5)
    code.add("STG.E [R4], R2", waits=[0]).add("EXIT")
    code.label(".L_x_3").add("BRA `(.L_x_3)")
    assert code.read().waits == [["mine.py:3"], ["mine.py:4"], ["mine.py:5"]]


def test_a_wait_that_is_an_instruction_of_its_own():
    code = Code().add("LDGSTS.E [R2], [R4]", signals=0, line=3).add("DEPBAR.LE SB0, 0x0")
    assert code.add("EXIT").read().waits == [["mine.py:3"]]


def test_text_without_instructions_is_refused():
    with pytest.raises(ValueError, match="nvdisasm printed no instruction, but 'oh'"):
        read_code("oh", "")
