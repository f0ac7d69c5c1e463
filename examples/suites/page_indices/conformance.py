"""Small workloads for the corner cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .workload import PageWorkload, Step, random_page_ids

_ManySteps = Sequence[tuple[Mapping[int, int], Sequence[int]]]


def conformance_workloads(seed: int) -> dict[str, PageWorkload]:
    """Return workloads by name; `seed` determines page ids and orders."""
    rng = np.random.default_rng(seed)
    many = [int(row) for row in rng.permutation(150)]
    return {
        # Batches that grow, shrink and are empty; rows out of order; lengths of 0, of full pages,
        # and next to them; rows that are staged but not in the batch, and vice versa.
        "corners": _workload(
            rng,
            page_size=16,
            max_num_reqs=7,
            max_model_len=70,
            steps=[
                ({}, []),
                ({3: 1}, [3]),
                ({0: 16, 5: 17, 3: 2, 1: 15, 6: 0}, [5, 0, 6, 3, 1]),
                ({6: 32, 2: 64, 4: 0}, [4, 2]),
                ({2: 65, 4: 1}, [6, 2, 4, 0, 5, 1, 3]),
                ({}, [0]),
                ({0: 0}, [0]),
                ({1: 16}, []),
            ],
        ),
        "one_page": _workload(
            rng,
            page_size=32,
            max_num_reqs=4,
            max_model_len=32,
            steps=[({0: 1, 1: 32, 2: 0, 3: 31}, [2, 1, 3, 0]), ({2: 1}, [2])],
        ),
        "all_full": _workload(
            rng,
            page_size=8,
            max_num_reqs=5,
            max_model_len=40,
            steps=[(dict.fromkeys(range(5), 40), [4, 0, 3, 1, 2]), ({0: 40}, [0])],
        ),
        # Rows of more pages than a program copies at once.
        "tokens_as_pages": _workload(
            rng,
            page_size=1,
            max_num_reqs=3,
            max_model_len=1100,
            steps=[({0: 255, 1: 1, 2: 1100}, [2, 0, 1]), ({0: 256, 1: 257}, [1, 0])],
        ),
        "odd_page_size": _workload(
            rng,
            page_size=48,
            max_num_reqs=6,
            max_model_len=500,
            steps=[({0: 48, 1: 49, 2: 96, 3: 500, 4: 0, 5: 47}, [3, 5, 0, 4, 2, 1])],
        ),
        # More requests than one sum covers.
        "many": _workload(
            rng,
            page_size=4,
            max_num_reqs=150,
            max_model_len=12,
            steps=[({row: int(rng.integers(0, 13)) for row in many}, many[:135])],
        ),
    }


def _workload(
    rng: np.random.Generator,
    page_size: int,
    max_num_reqs: int,
    max_model_len: int,
    steps: _ManySteps,
) -> PageWorkload:
    """Build a workload; each step gives the staged lengths by row, and the rows of the batch."""
    page_table = random_page_ids(rng, max_num_reqs, -(-max_model_len // page_size))
    return PageWorkload(
        page_size,
        page_table,
        np.zeros(max_num_reqs, dtype=np.int32),
        tuple(
            Step(
                np.array(list(staged), dtype=np.int32),
                np.array(list(staged.values()), dtype=np.int32),
                np.array(batch, dtype=np.int32),
            )
            for staged, batch in steps
        ),
    )
