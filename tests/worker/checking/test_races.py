"""What counts as a race between programs of a launch, on addresses that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from bt_bench.worker.checking.races import Access, Accesses, Race

READ, WRITE, ATOMIC = Access


def race_of(*accesses):
    """The race of accesses `(how, program, bytes of an element, addresses)`."""
    noted = Accesses()
    for access, program, size, addresses in accesses:
        noted.add(access, program, size, np.array(addresses, dtype=np.int64))
    return noted.race()


@pytest.mark.parametrize(
    "accesses",
    [
        [],
        [(READ, 0, 4, [16, 20]), (READ, 1, 4, [16, 20])],
        [(WRITE, 0, 4, [16, 20]), (WRITE, 1, 4, [24, 28]), (READ, 2, 4, [32])],
        [(WRITE, 0, 4, [16, 20]), (READ, 0, 4, [16, 20]), (WRITE, 0, 4, [16])],
        [(ATOMIC, 0, 4, [16]), (ATOMIC, 1, 4, [16]), (ATOMIC, 2, 4, [16])],
        [(ATOMIC, 0, 4, [16]), (READ, 0, 4, [16]), (WRITE, 0, 4, [16])],
        [(WRITE, 0, 4, [16]), (READ, 1, 4, []), (WRITE, 1, 8, [24])],
    ],
)
def test_no_race(accesses):
    assert race_of(*accesses) is None


@pytest.mark.parametrize(
    ("accesses", "race"),
    [
        # The order of the programs does not matter, nor which of them came first.
        ([(WRITE, 0, 4, [16]), (READ, 1, 4, [8, 16])], Race(16, 1, READ, 0, WRITE)),
        ([(READ, 0, 4, [16]), (WRITE, 1, 4, [8, 16])], Race(16, 0, READ, 1, WRITE)),
        # Whatever is written: two writes of one value are a race.
        ([(WRITE, 0, 4, [16]), (WRITE, 1, 4, [16])], Race(16, 0, WRITE, 1, WRITE)),
        # A program that writes it too, of three, and one that wrote it itself before.
        (
            [(WRITE, 2, 4, [16]), (WRITE, 5, 4, [20]), (READ, 5, 4, [20, 16])],
            Race(16, 5, READ, 2, WRITE),
        ),
        # Elements of unequal sizes that overlap.
        ([(WRITE, 0, 8, [16]), (READ, 1, 4, [20])], Race(20, 1, READ, 0, WRITE)),
        ([(WRITE, 0, 1, [23]), (READ, 1, 8, [16])], Race(23, 1, READ, 0, WRITE)),
        # An atomic operation beside a plain access.
        ([(ATOMIC, 0, 4, [16]), (READ, 1, 4, [16])], Race(16, 1, READ, 0, ATOMIC)),
        ([(ATOMIC, 0, 4, [16]), (WRITE, 1, 4, [16])], Race(16, 0, ATOMIC, 1, WRITE)),
    ],
)
def test_race(accesses, race):
    assert race_of(*accesses) == race


def test_random_accesses_against_plain_code():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(300):
        accesses = [
            (
                list(Access)[rng.integers(0, 3)],
                int(rng.integers(0, 3)),
                size := int(2 ** rng.integers(0, 4)),
                rng.integers(0, 16, rng.integers(0, 3)) * size,
            )
            for _ in range(rng.integers(1, 5))
        ]
        found.append(race_of(*accesses) is not None)
        assert found[-1] == races_plainly(accesses), accesses
    assert 0 < sum(found) < len(found)


def races_plainly(accesses):
    touched = [
        (int(address) + byte, program, access)
        for access, program, size, addresses in accesses
        for address in addresses
        for byte in range(size)
    ]
    return any(
        one == other and program != another and (READ, READ) != (how, how_too) != (ATOMIC, ATOMIC)
        for one, program, how in touched
        for other, another, how_too in touched
    )
