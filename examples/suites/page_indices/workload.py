"""The workloads: the rows scheduled in each step, and their lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from bt_bench.protocol import Operation, Traffic, Workload

Int32Array = npt.NDArray[np.int32]

ANY_PAGE_SIZE = "any_page_size"
"""Feature: the page size need not be a power of two."""

_ITEM = 4  # bytes of an int32


@dataclass(frozen=True)
class Step:
    """One step of the engine.

    Args:
        rows: `[S]`, the request rows whose lengths are staged; all are different.
        lengths: `[S]`, their lengths in tokens, including the tokens of this step.
        idx_mapping: `[R]`, the row of each request of the batch; all are different.
    """

    rows: Int32Array
    lengths: Int32Array
    idx_mapping: Int32Array


@dataclass(frozen=True)
class PageWorkload(Workload):
    """Steps over a constant page table.

    Args:
        page_size: tokens of a page.
        page_table: `[max_num_reqs, width]`, page ids; unused entries have ids, too, which exposes
            variants that copy too many.
        lengths: `[max_num_reqs]`, of all rows before the first step, in tokens.
        steps: the steps.
    """

    page_size: int
    page_table: Int32Array
    lengths: Int32Array
    steps: tuple[Step, ...]

    @property
    def features(self) -> frozenset[str]:
        """See the base class."""
        return features_of(self.page_size)

    def sizes(self) -> Mapping[str, list[int]]:
        """See the base class."""
        return {
            "num_reqs": [len(step.idx_mapping) for step in self.steps],
            "num_tokens": [int(lengths.sum()) for lengths in self._batches],
            "num_pages": [
                int(pages_of(lengths, self.page_size).sum()) for lengths in self._batches
            ],
        }

    def varied(self, rng: np.random.Generator) -> Self:
        """Return a workload with other page ids, and other lengths with as many pages."""
        return replace(
            self,
            page_table=random_page_ids(rng, *self.page_table.shape),
            lengths=_other_lengths(rng, self.lengths, self.page_size),
            steps=tuple(
                replace(step, lengths=_other_lengths(rng, step.lengths, self.page_size))
                for step in self.steps
            ),
        )

    def traffic(self, operation: Operation) -> list[Traffic] | None:
        """See the base class; staging moves nothing in device memory."""
        if operation.traits.on_host:
            return None
        sizes = self.sizes()
        return [
            Traffic(
                read=_ITEM * (2 * num_reqs + num_pages),  # idx_mapping, lengths, page_table
                written=_ITEM * ((num_reqs + 1) + num_pages + num_reqs),
            )
            for num_reqs, num_pages in zip(sizes["num_reqs"], sizes["num_pages"], strict=True)
        ]

    @cached_property
    def _batches(self) -> list[Int32Array]:
        """The length of each request of the batch, `[R]`, for each step."""
        lengths = self.lengths.copy()
        found = []
        for step in self.steps:
            lengths[step.rows] = step.lengths
            found.append(lengths[step.idx_mapping])
        return found


def features_of(page_size: int) -> frozenset[str]:
    """Return the features that a variant needs for pages of this size."""
    return frozenset() if page_size & (page_size - 1) == 0 else frozenset({ANY_PAGE_SIZE})


def pages_of(lengths: Int32Array, page_size: int) -> Int32Array:
    """Return the number of pages of requests of these lengths."""
    return -(-lengths // page_size)


def random_page_ids(rng: np.random.Generator, max_num_reqs: int, width: int) -> Int32Array:
    """Draw `[max_num_reqs, width]` random page ids, including large ones."""
    return rng.integers(0, 2**31, (max_num_reqs, width), dtype=np.int32)


def _other_lengths(rng: np.random.Generator, lengths: Int32Array, page_size: int) -> Int32Array:
    """Draw lengths with as many pages each; about half of them fill their last page."""
    in_last = rng.integers(1, page_size + 1, len(lengths), dtype=np.int32)
    in_last[rng.random(len(lengths)) < 0.5] = page_size
    others = (pages_of(lengths, page_size) - 1) * page_size + in_last
    return np.where(lengths > 0, others, 0).astype(np.int32)
