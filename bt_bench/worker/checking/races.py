"""Races between the programs of one launch, which Triton's interpreter alone cannot show.

The interpreter runs the programs of a launch one after another. If one program reads an element
that another writes, it finds the same value every time; on a GPU the two may run in any order or at
once. All reads and writes of every program are therefore recorded. No program may access an element
that another program of the same launch writes, whatever the values are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


class Access(StrEnum):
    """A kind of access to an address, as a verb."""

    READ = "reads"
    WRITE = "writes"
    ATOMIC = "updates"  # by an atomic operation; two of these do not race


@dataclass(frozen=True)
class Race:
    """Two programs that access one address, at least one of them writing.

    Args:
        address: the address.
        program: number of the program that accesses it.
        access: the kind of that access.
        writer: number of the program that writes it.
        writes: the kind of that write: plain or atomic.
    """

    address: int
    program: int
    access: Access
    writer: int
    writes: Access


@dataclass(frozen=True)
class _Note:
    """Addresses `[N]` of elements of `size` bytes that one program accessed in one operation."""

    program: int
    size: int
    addresses: Int64Array


@dataclass(frozen=True)
class _Touched:
    """Units of memory, and the program that accessed each; arrays of equal length."""

    units: Int64Array
    programs: Int64Array


class Accesses:
    """The accesses of one launch."""

    def __init__(self) -> None:
        self._notes: dict[Access, list[_Note]] = {access: [] for access in Access}

    def add(self, access: Access, program: int, size: int, addresses: Int64Array) -> None:
        """Record the elements that one program accesses in one operation.

        Args:
            access: the kind of access.
            program: the program's number in the launch.
            size: bytes of an element, a power of 2.
            addresses: the elements' addresses, `[N]`.
        """
        if len(addresses):
            self._notes[access].append(_Note(program, size, addresses))

    def race(self) -> Race | None:
        """Return the first race of the launch, or `None`. Two atomic operations do not race."""
        if not (self._notes[Access.WRITE] or self._notes[Access.ATOMIC]):
            return None
        unit = _unit_bytes(note for notes in self._notes.values() for note in notes)
        touched = {access: _touched(notes, unit) for access, notes in self._notes.items()}
        for writes, access in (
            (Access.WRITE, Access.WRITE),
            (Access.WRITE, Access.READ),
            (Access.WRITE, Access.ATOMIC),
            (Access.ATOMIC, Access.READ),
        ):
            found = _first_race(touched[writes], touched[access])
            if found is not None:
                place, writer = found
                others = touched[access]
                program = int(others.programs[place])
                return Race(int(others.units[place]) * unit, program, access, writer, writes)
        return None


def _unit_bytes(notes: Iterable[_Note]) -> int:
    """Return the largest power of 2 that divides all addresses and sizes."""
    bits = 0
    for note in notes:
        bits |= note.size | int(np.bitwise_or.reduce(note.addresses))
    return bits & -bits


def _touched(notes: list[_Note], unit: int) -> _Touched:
    if not notes:
        return _Touched(np.zeros(0, np.int64), np.zeros(0, np.int64))
    elements = [len(note.addresses) for note in notes]
    programs = np.repeat(np.array([note.program for note in notes]), elements)
    lengths = np.repeat(np.array([note.size // unit for note in notes]), elements)
    first = np.concatenate([note.addresses for note in notes]) // unit
    ends = np.cumsum(lengths)
    # 0, 1, … within each element
    within = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    return _Touched(np.repeat(first, lengths) + within, np.repeat(programs, lengths))


def _first_race(writers: _Touched, others: _Touched) -> tuple[int, int] | None:
    """Return the index of the first racing access in `others`, and the program that writes there.

    `None` if no unit in `others` is written by another program.
    """
    if not (len(writers.units) and len(others.units)):
        return None
    order = np.lexsort((writers.programs, writers.units))
    units, programs = writers.units[order], writers.programs[order]
    # The writers of a unit are in ascending order. If both the first and the last are the
    # accessing program itself, all are.
    first = np.searchsorted(units, others.units, side="left")
    last = np.searchsorted(units, others.units, side="right") - 1
    place = np.flatnonzero(first <= last)
    lowest, highest = programs[first[place]], programs[last[place]]
    own = others.programs[place]
    racing = np.flatnonzero((lowest != own) | (highest != own))
    if not len(racing):
        return None
    one = racing[0]
    writer = highest[one] if lowest[one] == own[one] else lowest[one]
    return int(place[one]), int(writer)
