"""Other block ids for the writes of a workload, in the same places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bt_bench.suites.block_tables.workloads.steps import Append

Relabel = Callable[[tuple[Append, ...]], tuple[Append, ...]]


def relabelling(rng: np.random.Generator, bits: int = 31) -> Relabel:
    """Return a function that replaces block ids by a random bijection of `[0, 2**bits)`.

    Args:
        rng: chooses the bijection.
        bits: ids of this many bits stay apart; of larger ids, the other bits are lost.
    """
    factor = int(rng.integers(0, 2**30)) * 2 + 1
    offset = int(rng.integers(0, 2**31))
    mask = (1 << bits) - 1

    def relabelled(append: Append) -> Append:
        ids = (np.asarray(i, dtype=np.uint64) * factor + offset for i in append.block_ids)
        return replace(append, block_ids=tuple((i & mask).tolist() for i in ids))

    return lambda appends: tuple(map(relabelled, appends))
