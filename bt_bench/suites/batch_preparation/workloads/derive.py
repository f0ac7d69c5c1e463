"""Batches with drafts and prompts, derived from the steps of a workload of block tables.

A step of block tables says which tokens of which request rows are computed, but neither which of
them are drafts nor how long prompts are. These rules add that:

- A request that computes `1 + drafts` tokens is a decode, and the last `drafts` of them are drafts.
  Any other request is in prefill.
- The prompt of a decode ends at a random place before the step.
- The prompt of a request in prefill ends with the step, unless the next step that has its row goes
  on with a prefill. In the last step that has it, it goes on behind the step half of the time.
- The first `prompt_tails` decodes of a step are in the last tokens of their prompt: it ends at the
  first token of the step or behind it, before the last one. The other tokens are drafts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bt_bench.base.errors import UsageError
from bt_bench.suites.batch_preparation.workloads.workload import (
    InputStep,
    InputWorkload,
    num_tokens_needed,
    tokens_of,
)
from bt_bench.suites.block_tables.workloads.steps import Int32Array, Step
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.batch_inputs.layout import InputLayout


def with_inputs(
    tables: Workload, layout: InputLayout, drafts: int, prompt_tails: int, seed: int
) -> InputWorkload:
    """Return the batches of a workload of block tables.

    Args:
        tables: gives tables, writes, rows and positions.
        layout: sizes and flags of the inputs.
        drafts: draft tokens of each decode.
        prompt_tails: decodes in each step that are in the last tokens of their prompt.
        seed: of prompt lengths and tokens.

    Raises:
        UsageError: for a step that no engine prepares, naming it.
    """
    rng = np.random.default_rng((seed, 56))
    steps = tuple(_derived(tables.steps, drafts, prompt_tails, layout.max_model_len, rng))
    tokens = tokens_of(rng, num_tokens_needed(layout, len(steps)))
    return InputWorkload(tables.layout, layout, tokens, tables.setup, steps, remarks=tables.remarks)


def longest_sequence(tables: Workload) -> int:
    """Return the most tokens of a sequence after any step."""
    return max((int(step.positions.max(initial=0)) + 1 for step in tables.steps), default=1)


def _derived(
    steps: tuple[Step, ...],
    drafts: int,
    prompt_tails: int,
    max_model_len: int,
    rng: np.random.Generator,
) -> Iterator[InputStep]:
    goes_on = _goes_on(steps, drafts)
    for index, step in enumerate(steps):
        _refuse_unprepared(index, step)
        query_lens = np.diff(step.query_start_loc).astype(np.int32)
        computed = step.positions[step.query_start_loc[:-1]].astype(np.int32)
        is_decode = query_lens == 1 + drafts
        ends = computed + query_lens
        # A decode's prompt ends before the step; one without a past is a prompt of one token.
        prefill_lens = rng.integers(np.minimum(computed, 1), computed + 1).astype(np.int32)
        alone = is_decode & (computed == 0)
        behind = goes_on[index] & ~is_decode
        further = np.minimum(ends + rng.integers(1, 2048, len(ends)), max_model_len)
        prefill_lens = np.where(is_decode, prefill_lens, np.where(behind, further, ends))
        prefill_lens = np.where(alone, 1, prefill_lens)
        tails = np.flatnonzero(is_decode)[:prompt_tails]
        inside = rng.integers(1, max(drafts, 1) + 1, len(tails))
        prefill_lens[tails] = computed[tails] + inside
        num_drafts = None
        if drafts and is_decode.any():
            num_drafts = np.where(is_decode, drafts, 0).astype(np.int32)
            num_drafts[tails] = query_lens[tails] - inside
        yield InputStep(
            step.appends,
            step.idx_mapping,
            computed,
            query_lens,
            prefill_lens.astype(np.int32),
            num_drafts,
            step.num_reqs_padded,
            step.num_tokens_padded,
        )


def _goes_on(steps: tuple[Step, ...], drafts: int) -> list[np.ndarray]:
    """Return for each step, by request, whether its prefill goes on in a later step."""
    following: dict[int, tuple[int, bool]] = {}  # by row: first position and kind, of a later step
    found: list[np.ndarray] = []
    for step in reversed(steps):
        lengths: Int32Array = np.diff(step.query_start_loc)
        firsts = step.positions[np.minimum(step.query_start_loc[:-1], len(step.positions) - 1)]
        goes_on = np.zeros(len(lengths), dtype=np.bool_)
        triples = zip(step.idx_mapping.tolist(), firsts.tolist(), lengths.tolist(), strict=True)
        for number, (row, first, length) in enumerate(triples):
            later = following.get(row)
            # Without a later step, by turns.
            goes_on[number] = later == (first + length, True) if later else number % 2 == 1
            following[row] = first, length != 1 + drafts
        found.append(goes_on)
    return found[::-1]


def _refuse_unprepared(index: int, step: Step) -> None:
    """Refuse a step whose inputs no engine prepares in one batch."""
    lengths = np.diff(step.query_start_loc)
    firsts = step.query_start_loc[:-1]
    if not len(lengths) or (lengths < 1).any():
        raise UsageError(
            f"step {index} has a request without tokens, or no request; expected one token or more "
            "of every request; choose another window"
        )
    if (step.idx_mapping < 0).any():
        raise UsageError(
            f"step {index} has a request without a row; expected none, since inputs are prepared "
            "for requests alone; choose another window"
        )
    consecutive = np.repeat(step.positions[firsts] - firsts, lengths) + np.arange(lengths.sum())
    if not np.array_equal(consecutive, step.positions):
        raise UsageError(
            f"step {index} has positions that are not consecutive; expected each request to "
            "continue its sequence; choose another window"
        )
