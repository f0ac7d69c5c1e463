"""Chains of dependent loads from global memory, read from a kernel's PTX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bt_bench.analysis.code.flow import Instruction, blocks_of, flow_of, successors_of

_FILE = re.compile(r'^\.file\s+(\d+)\s+"([^"]*)"')
_PLACE = re.compile(r"^\.loc\s+(\d+)\s+(\d+)\s")
_BEGIN, _END = "// begin inline asm", "// end inline asm"
_LABEL = re.compile(r"^([$\w.]+):")
_GUARD = re.compile(r"^@(!?)(\S+)\s+")
_NAME = re.compile(r"%?[A-Za-z_$][\w$.]*")
_LOADS = ("ld", "ldu", "atom", "cp")
# Loads of these spaces do not count. A generic address may point anywhere, so it counts.
_NEARER = {"param", "shared", "const", "local"}


@dataclass(frozen=True)
class _Instruction(Instruction):
    """One instruction.

    Args:
        written: registers that it writes.
        read: registers that it reads, including its guard.
    """

    written: tuple[str, ...]
    read: tuple[str, ...]

    @property
    def loads(self) -> bool:
        """Return whether it waits for memory that all programs share."""
        return self.name in _LOADS and not _NEARER.intersection(self.opcode.split(".")[1:2])


_Chain = tuple[str, ...]  # files and lines of loads; each needs a value of the one before
_Chains = dict[str, _Chain]  # by register
_SHARED = "(shared memory)"  # a pseudo-register for all of it


def dependent_loads(text: str) -> list[str]:
    """Return the longest chain of loads, each needing a value of the one before.

    The value may be needed as an address, as a guard, or by a branch that decides whether the load
    runs; it may also pass through shared memory. Loops are passed once. Loads of parameters,
    constants, shared and local memory do not count.

    Args:
        text: PTX of one kernel, with line information.

    Returns:
        File and line of each load, in order; `?` where there is no line information.
    """
    blocks = blocks_of(_instructions(text))
    flow = flow_of(successors_of(blocks))
    ends: dict[int, _Chains] = {}
    decided: dict[int, _Chain] = {}  # by block, the loads that its branch waits for
    longest: _Chain = ()
    for index in flow.order:
        chains = _merged(ends[each] for each in flow.before[index])
        behind = _longest(decided[each] for each in flow.deciders[index])
        for instruction in blocks[index].instructions:
            needed = _longest([behind, *(chains.get(name, ()) for name in instruction.read)])
            if instruction.target is not None:
                decided[index] = needed
            written = _written(instruction, needed, chains)
            if instruction.loads:
                longest = _longest([longest, written])
        decided.setdefault(index, ())
        ends[index] = chains
    return list(longest)


def _written(instruction: _Instruction, needed: _Chain, chains: _Chains) -> _Chain:
    """Record the chains behind the written registers, and return the longest."""
    is_shared = "shared" in instruction.opcode.split(".")
    if instruction.name in ("st", "red"):
        if is_shared:
            chains[_SHARED] = _longest([needed, chains.get(_SHARED, ())])
        return ()
    if is_shared or instruction.name == "ldmatrix":
        needed = _longest([needed, chains.get(_SHARED, ())])
    found = needed
    if instruction.loads:
        found = (*needed, instruction.place)
        if instruction.name == "cp":
            chains[_SHARED] = _longest([found, chains.get(_SHARED, ())])
    for name in instruction.written:
        kept = chains.get(name, ()) if instruction.guarded else ()
        chains[name] = _longest([found, kept])
    return found


def _longest(chains: Iterable[_Chain]) -> _Chain:
    return max(chains, key=len, default=())


def _merged(sides: Iterable[_Chains]) -> _Chains:
    merged: _Chains = {}
    for side in sides:
        for name, chain in side.items():
            if len(chain) > len(merged.get(name, ())):
                merged[name] = chain
    return merged


def places_of(text: str) -> list[str]:
    """Return the source file and line of each line of PTX; `?` where they are unknown.

    In inline assembly only the first position counts: LLVM increments the source line for each line
    of assembly, though all of them come from one line of Triton.
    """
    lines = [line.strip() for line in text.splitlines()]
    files = {
        found[1]: found[2].rpartition("/")[2] for line in lines if (found := _FILE.match(line))
    }
    places = []
    place, inline, known = "?", False, False
    for line in lines:
        if line in (_BEGIN, _END):
            inline, known = line == _BEGIN, False
        # Line 0 is the compiler's own.
        elif (found := _PLACE.match(line)) and found[2] != "0" and not (inline and known):
            place, known = f"{files.get(found[1], '?')}:{found[2]}", True
        places.append(place)
    return places


def _instructions(text: str) -> Iterator[_Instruction | str]:
    """Yield instructions and labels, in order."""
    for line, place in zip(text.splitlines(), places_of(text), strict=True):
        code = line.partition("//")[0].strip()
        if found := _LABEL.match(code):
            yield found[1]
        elif code.endswith(";") and not code.startswith((".", "{", "}")):
            yield _instruction(code.removesuffix(";"), place)


def _instruction(code: str, place: str) -> _Instruction:
    guard = _GUARD.match(code)
    read = [] if guard is None else [guard[2]]
    opcode, _, operands = code[guard.end() if guard else 0 :].partition(" ")
    kind = opcode.split(".")[0]
    given = split_outside_brackets(operands)
    target = given[-1] if kind in ("bra", "brx") and given else None
    written: list[str] = []
    if kind in ("st", "red", "bra", "brx", "bar", "barrier", "fence", "membar") or not given:
        sources = given[:-1] if target else given
    else:
        written = _NAME.findall(given[0].replace("|", " "))
        sources = given[1:]
    read += [name for each in sources for name in _NAME.findall(each)]
    return _Instruction(opcode, guard is not None, target, place, tuple(written), tuple(read))


def split_outside_brackets(operands: str) -> list[str]:
    """Split operands, or the parameters of a signature, at the commas outside of brackets."""
    depth = 0
    found = [""]
    for character in operands:
        depth += (character in "[{(") - (character in "]})")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return [each.strip() for each in found if each.strip()]
