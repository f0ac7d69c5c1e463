"""A kernel's machine code: instructions by class, and its waits for memory.

The 128 bits of an instruction name the one of six barriers that it signals when its result has
arrived (bits 46 to 48 of the upper 64), and the barriers that it waits for before it begins (bits
52 to 57): Jia, Maggioni, Staiger and Scarpazza, "Dissecting the NVIDIA Volta GPU architecture via
microbenchmarking" (2018), chapter 2. Instructions of a warp issue in order, so all loads that are
issued before a wait overlap.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from bt_bench.analysis.code.flow import Block, Instruction, blocks_of, flow_of, successors_of
from bt_bench.analysis.code.ptx import dependent_loads, places_of
from bt_bench.results import KernelCode

_PTX_LINE = re.compile(r'//## File "\.nv_debug_ptx_txt", line (\d+)')
_LABEL = re.compile(r"^([.$\w]+):\s*$")
_CODE = re.compile(r"^/\*[0-9a-f]{4,}\*/\s+(.*?);\s*/\* 0x([0-9a-f]{16}) \*/")
_UPPER = re.compile(r"^/\* 0x([0-9a-f]{16}) \*/")
_TARGET = re.compile(r"`\(([^)]+)\)")
_COUNTED = re.compile(r"SB(\d)")

_SIGNALS, _WAITS = 46, 52  # first bits of the upper half
_BARRIERS = 6
_NONE = 7  # instead of a barrier's number

# Spaces by the letters of loads and stores, such as LDG; without one, any space.
_SPACES = {"G": "global", "S": "shared", "L": "local", "C": "constant", "CU": "constant", "": "any"}
_LOAD = re.compile(r"^U?LD(GSTS|CU|[GSLC]?)$")
_STORE = re.compile(r"^ST([GSL]?)$")
_BITS = {"8": 8, "16": 16, "64": 64, "128": 128, "256": 256}
_WORD = 32
_ATOMICS = re.compile(r"^(ATOM[GS]?|RED[GS]?|REDUX_ATOM)$")
_FETCHES = re.compile(r"^(U?LDG?|LDGSTS|ATOMG?)$")
_BARS = re.compile(r"^(BAR|B2R|WARPSYNC|UCGABAR_\w+|SYNCS)$")
_BRANCHES = re.compile(r"^(BRA|BRX|JMP|JMX|CALL|RET|BRXU|JMXU)$")


@dataclass(frozen=True)
class _Instruction(Instruction):
    """One instruction.

    Args:
        signals: the barrier that it signals when its result has arrived; `None` if it signals none.
        waits: barriers that it waits for.
    """

    signals: int | None
    waits: tuple[int, ...]


@dataclass(frozen=True)
class _Fetched:
    """Loads tracked by one barrier.

    Args:
        behind: number of waits before the last of them was issued.
        places: files and lines.
    """

    behind: int
    places: tuple[str, ...]


@dataclass(frozen=True)
class _State:
    """The state on one path through the code: pending loads by barrier, and each wait's loads."""

    pending: tuple[_Fetched | None, ...] = (None,) * _BARRIERS
    waits: tuple[tuple[str, ...], ...] = ()

    def passed(self, instruction: _Instruction) -> _State:
        """Return the state after an instruction."""
        done = len(self.waits)
        # Loads issued before the last wait are assumed to have arrived with it.
        late = [
            fetched
            for barrier in instruction.waits
            if (fetched := self.pending[barrier]) is not None and fetched.behind == done
        ]
        state = self
        if late:
            at = dict.fromkeys(place for fetched in late for place in fetched.places)
            state = replace(state, waits=(*state.waits, tuple(at)))
        pending = list(state.pending)
        for barrier in instruction.waits:
            pending[barrier] = None
        if instruction.signals is not None and _FETCHES.match(instruction.name):
            before = pending[instruction.signals]
            places = (*(before.places if before else ()), instruction.place)
            pending[instruction.signals] = _Fetched(len(state.waits), places)
        return replace(state, pending=tuple(pending))


def read_code(text: str, ptx: str) -> KernelCode:
    """Count a kernel's instructions by class, and locate its waits and dependent loads.

    Args:
        text: output of `nvdisasm -c -gp -hex` for the kernel.
        ptx: the PTX that it was compiled from, with line information.

    Raises:
        ValueError: for text without instructions.
    """
    blocks = blocks_of(_instructions(text.splitlines(), places_of(ptx)))
    found = [each for block in blocks for each in block.instructions if each.name != "NOP"]
    if not found:
        raise ValueError(f"nvdisasm printed no instruction, but {text[:200]!r}")
    loads: Counter[str] = Counter()
    stores: Counter[str] = Counter()
    for each in found:
        if letters := _LOAD.match(each.name):
            space = "global" if letters[1] == "GSTS" else _SPACES[letters[1]]
            loads[f"{space}:{_bits(each.opcode)}"] += 1
        elif letters := _STORE.match(each.name):
            stores[f"{_SPACES[letters[1]]}:{_bits(each.opcode)}"] += 1
    return KernelCode(
        instructions=len(found),
        loads=dict(sorted(loads.items())),
        stores=dict(sorted(stores.items())),
        atomics=sum(bool(_ATOMICS.match(each.name)) for each in found),
        barriers=sum(bool(_BARS.match(each.name)) for each in found),
        branches=sum(bool(_BRANCHES.match(each.name)) for each in found),
        dependent_loads=dependent_loads(ptx),
        waits=[list(places) for places in _waits(blocks)],
    )


def _bits(opcode: str) -> int:
    """Return the width of an access in bits: 32 unless the opcode has a width."""
    for part in opcode.split(".")[1:]:
        if (bits := _BITS.get(part.lstrip("US"))) is not None and part not in ("U", "S"):
            return bits
    return _WORD


def _waits(blocks: list[Block[_Instruction]]) -> tuple[tuple[str, ...], ...]:
    """Return the loads behind each wait, on the path with the most waits."""
    flow = flow_of(successors_of(blocks))
    ends: dict[int, _State] = {}
    for index in flow.order:
        states = [ends[each] for each in flow.before[index]]
        state = max(states, key=lambda each: len(each.waits), default=_State())
        for instruction in blocks[index].instructions:
            state = state.passed(instruction)
        ends[index] = state
    return max((state.waits for state in ends.values()), key=len, default=())


def _instructions(lines: Iterable[str], places: list[str]) -> Iterator[_Instruction | str]:
    """Yield instructions and labels, in order; an instruction spans two lines.

    Args:
        lines: of the machine code.
        places: source file and line of each line of PTX.
    """
    place = "?"
    code = ""
    for line in map(str.strip, lines):
        if found := _PTX_LINE.match(line):
            number = int(found[1])
            place = places[number - 1] if number <= len(places) else "?"
        elif found := _LABEL.match(line):
            yield found[1]
        elif found := _CODE.match(line):
            code = found[1].strip()
        elif code and (found := _UPPER.match(line)):
            yield _instruction(code, int(found[1], 16), place)
            code = ""


def _instruction(code: str, upper: int, place: str) -> _Instruction:
    guarded = code.startswith("@")
    if guarded:
        code = code.partition(" ")[2].strip()
    opcode, _, operands = code.partition(" ")
    name, target = opcode.partition(".")[0], None
    if _BRANCHES.match(name) and name != "CALL":  # a call returns
        label = _TARGET.search(operands)
        target = label[1] if label else ""
        # The branch depends on a uniform predicate, or on whether lanes have diverged.
        guarded |= "," in operands.partition("`")[0]
    signals = upper >> _SIGNALS & 7
    waits = [number for number in range(_BARRIERS) if upper >> _WAITS + number & 1]
    if opcode.startswith("DEPBAR"):
        waits += [int(number) for number in _COUNTED.findall(operands)]
    return _Instruction(
        opcode, guarded, target, place, None if signals == _NONE else signals, tuple(waits)
    )
