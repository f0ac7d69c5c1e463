"""A workload: layouts of tables and inputs, and the batches to prepare with them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from bt_bench.protocol import Operation, Traffic
from bt_bench.protocol import Workload as CommonWorkload
from bt_bench.suites.batch_preparation.operations import INPUTS
from bt_bench.suites.block_tables.workloads.relabel import relabelling
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_kernels.batch_inputs.layout import InputLayout
from bt_kernels.layout import TableLayout

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

TOKEN_SHIFT = 61
"""Tokens by which the sequence of a request row is ahead of the row before; a prime number."""


@dataclass(frozen=True)
class InputStep:
    """One step: writes to stage, and the scheduler's decisions.

    Args:
        appends: staged before the step, in this order.
        rows: `[R]` int64, the row of each request.
        computed: `[R]` int32, tokens of each request computed before the step.
        query_lens: `[R]` int32, tokens of each request in the step.
        prefill_lens: `[R]` int32, tokens that each request came with.
        num_drafts: `[R]` int32, draft tokens of each request; `None`: the step has none.
        num_reqs_padded: requests that the engine reads (R, or the size of its captured graph).
        num_tokens_padded: tokens that the engine reads, likewise.
    """

    appends: tuple[Append, ...]
    rows: Int64Array
    computed: Int32Array
    query_lens: Int32Array
    prefill_lens: Int32Array
    num_drafts: Int32Array | None
    num_reqs_padded: int
    num_tokens_padded: int

    @property
    def num_reqs(self) -> int:
        """Return R."""
        return len(self.rows)

    @property
    def num_tokens(self) -> int:
        """Return T."""
        return int(self.query_lens.sum())

    @property
    def has_prefill(self) -> bool:
        """Return whether any request is in prefill."""
        return bool((self.computed < self.prefill_lens).any())

    @property
    def is_tail(self) -> npt.NDArray[np.bool_]:
        """Return `[R]` whether the prompt of a request ends within the step, before its end."""
        ends = self.computed + self.query_lens
        found: npt.NDArray[np.bool_] = (self.computed < self.prefill_lens) & (
            self.prefill_lens < ends
        )
        return found


@dataclass(frozen=True)
class InputWorkload(CommonWorkload):
    """A window of steps, and the appends that bring fresh tables to the state before it.

    Args:
        table_layout: sizes and options of the block tables.
        layout: sizes and flags of the inputs.
        tokens: `[max_model_len + max_num_reqs * TOKEN_SHIFT + ...]` int64: token i of the sequence
            in row r is number `r * TOKEN_SHIFT + i`. Sampled tokens and drafts are elsewhere in it.
        setup: appends that build the state before the first step.
        steps: the window, in order.
        large: see the base class.
        remarks: see the base class.
    """

    table_layout: TableLayout
    layout: InputLayout
    tokens: Int64Array
    setup: tuple[Append, ...]
    steps: tuple[InputStep, ...]
    large: bool = False
    remarks: tuple[str, ...] = field(default=(), compare=False, metadata={"digest": False})

    @property
    def features(self) -> frozenset[str]:
        """Return the names that a variant needs to run this, of tables and of inputs."""
        return self.table_layout.features | self.layout.features

    def sizes(self) -> dict[str, list[int]]:
        """Return the requests, tokens, drafts and requests in prefill of each step."""
        drafts = [0 if s.num_drafts is None else int(s.num_drafts.sum()) for s in self.steps]
        return {
            "num_reqs": [step.num_reqs for step in self.steps],
            "num_tokens": [step.num_tokens for step in self.steps],
            "num_drafts": drafts,
            "num_prefills": [int((s.computed < s.prefill_lens).sum()) for s in self.steps],
        }

    def varied(self, rng: np.random.Generator) -> Self:
        """See the base class: other tokens, and other block ids, whose slots still fit int32."""
        largest = max(self.table_layout.tokens_per_block, default=1)
        relabelled = relabelling(rng, 31 - (largest - 1).bit_length())
        return replace(
            self,
            tokens=tokens_of(rng, len(self.tokens)),
            setup=relabelled(self.setup),
            steps=tuple(replace(s, appends=relabelled(s.appends)) for s in self.steps),
        )

    def traffic(self, operation: Operation) -> list[Traffic] | None:
        """See the base class; `None` for all but inputs alone."""
        if operation != INPUTS:
            return None
        return [self._traffic_of(step) for step in self.steps]

    def _traffic_of(self, step: InputStep) -> Traffic:
        """Return the bytes that the inputs of a step take; prompts lie in pinned memory."""
        layout, reqs = self.layout, step.num_reqs
        bonus = layout.num_new_sampled_tokens
        drafts = np.zeros(reqs, dtype=np.int64) if step.num_drafts is None else step.num_drafts
        in_prefill = step.computed < step.prefill_lens
        generates = step.computed + step.query_lens > step.prefill_lens
        # Sampled tokens and drafts, int64; a prompt's tail has drafts alone.
        read = int(drafts[generates].sum()) + bonus * int((~in_prefill).sum())
        ids = int(np.where(in_prefill, step.query_lens, drafts + bonus).sum())
        ahead = layout.num_lookahead * int(in_prefill.sum())
        per_logit = 4 + 8 + (0 if step.num_drafts is None else 8)
        logits = int((drafts + bonus).sum())
        new = 8 * reqs + 4 * (reqs + 1) + per_logit * logits
        padding = step.num_tokens_padded if layout.marks_padding else 0
        kept = 4 * (layout.max_num_reqs + 1) + 4 * layout.max_num_reqs + 8 * step.num_tokens
        return Traffic(4 * reqs + 8 * read, new + kept + padding + 4 * (ids + ahead))

    def figures(self) -> dict[str, int]:
        """Return how many steps have drafts, prefills, and prompts whose tail has drafts."""
        steps = self.steps
        drafts = [0 if s.num_drafts is None else int(s.num_drafts.sum()) for s in steps]
        tails = [
            s.num_drafts is not None and bool((s.is_tail & (s.num_drafts > 0)).any()) for s in steps
        ]
        return {
            "steps": len(steps),
            "steps_with_drafts": sum(s.num_drafts is not None for s in steps),
            "most_drafts": max(drafts, default=0),
            "steps_with_prefill": sum(s.has_prefill for s in steps),
            "steps_with_prompt_tails": sum(tails),
            "steps_padded": sum(s.num_tokens_padded > s.num_tokens for s in steps),
        }


def tokens_of(rng: np.random.Generator, count: int) -> Int64Array:
    """Return random token ids, as int64."""
    return rng.integers(0, 2**31, count, dtype=np.int64)


def num_tokens_needed(layout: InputLayout, num_steps: int) -> int:
    """Return how many `tokens` a workload needs: of all rows, sampled ones and drafts."""
    rows = layout.max_num_reqs
    sequences = layout.max_model_len + layout.num_lookahead + rows * TOKEN_SHIFT
    return sequences + num_steps + rows * (1 + layout.num_speculative_steps)
