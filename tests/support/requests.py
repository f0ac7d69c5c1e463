"""Random requests as an engine stages them, and odd ones: of other types, or wrong."""

from __future__ import annotations

from array import array
from enum import IntEnum

import numpy as np

from bt_kernels.layout import INT32_MAX, INT32_MIN


class Number:
    """An integer that runs code when it is read."""

    def __init__(self, value, before=lambda: None):
        self.value = value
        self.before = before

    def __index__(self):
        self.before()
        return self.value


class Listed(list):
    """A list that is not read as one: its items are those of an iteration."""

    def __iter__(self):
        return reversed([*super().__iter__()])


class Named(IntEnum):
    """An integer of another class."""

    NINE = 9


# CPython keeps an integer from 2**30 on in two digits.
PLAIN = (0, 1, 7, -1, 2, 3, 4, 2**30 - 1, 1 - 2**30)
VALUES = (*PLAIN, True, np.int32(5), np.int64(6), Named.NINE)
VALUES += (INT32_MAX, INT32_MIN, 2**30, -(2**30))
NO_VALUES = (1.5, None, "7", INT32_MAX + 1, INT32_MIN - 1, 2**70, np.int64(2**40), np.float32(1))


def ids_for(rng, odd):
    """A list of ids, at times of another kind, and at times wrong."""
    ids = rng.choices(rng.choice((PLAIN, PLAIN, VALUES)), k=rng.choice((0, 1, 1, 1, 2, 5)))
    if odd and rng.random() < 0.05:
        ids = [*ids, rng.choice(NO_VALUES)]
    elif odd and rng.random() < 0.2:
        small = bytes(abs(int(value)) % 256 for value in ids)
        kinds = (tuple(ids), np.array(list(small)), small, array("b", [1]), iter(ids), Listed(ids))
        ids = rng.choice((*kinds, (value for value in small)))
    elif odd and rng.random() < 0.02:
        ids = rng.choice((None, 3, "", "12"))
    return ids


def request_for(rng, num_groups, num_rows, odd, rows=None):
    """A row, if given one of some, its ids, and whether to overwrite."""
    row = rng.randrange(num_rows) if rows is None else rng.choice(rows)
    overwrite = rng.random() < 0.3
    if odd and rng.random() < 0.1:
        row = rng.choice((np.int32(2), True, Number(3), -1, num_rows, 2**70, 1.5, None))
    if odd and rng.random() < 0.1:
        overwrite = rng.choice((0, 1, np.True_, "", [0]))
    if odd and rng.random() < 0.05:
        num_groups += rng.choice((-1, 1))
    ids = [ids_for(rng, odd) for _ in range(num_groups)]
    return row, ids if rng.random() < 0.5 else tuple(ids), overwrite
