"""Faults planted in the preparation of batches, each of which a check and a comparison must find.

Each is a function that derives a wrong class from a right one: from the reference for `bt-bench
check`, from a variant for `studies/beside_inputs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

Wrong = Callable[[type[Any]], type[Any]]
Spoil = Callable[[Any, Any, "Step"], Any]


class Step:
    """The arguments of a call, and the state of its requests."""

    def __init__(self, variant: Any, arguments: tuple[Any, ...]) -> None:
        self.rows, self.query_lens, self.prefill_lens, self.has_prefill = arguments[:4]
        self.num_drafts, self.num_reqs_padded, self.num_tokens_padded = arguments[4:]
        self.num_reqs, self.num_tokens = len(self.rows), int(self.query_lens.sum())
        starts = [0, *self.query_lens.cumsum().tolist()]
        computed = variant.requests.num_computed_tokens.tolist()
        drafts = [0] * self.num_reqs if self.num_drafts is None else self.num_drafts.tolist()
        self.requests = [
            (row, first, end, computed[row], prefill, count)
            for row, first, end, prefill, count in zip(
                self.rows.tolist(),
                starts,
                starts[1:],
                self.prefill_lens.tolist(),
                drafts,
                strict=False,
            )
        ]


def after(spoil: Spoil) -> Wrong:
    """Return a fault that spoils what a right call has done; `spoil` returns the batch."""

    def wrong(kind: type[Any]) -> type[Any]:
        class Spoilt(kind):  # type: ignore[misc]  # of a class that is only known here
            def prepare_inputs(self, *arguments: Any) -> Any:
                batch = super().prepare_inputs(*arguments)
                return spoil(self, batch, Step(self, arguments)) or batch

        return Spoilt

    return wrong


def _prompt_is_late(variant: Any, _batch: Any, step: Step) -> None:
    """Tokens of a prompt are those after the right ones."""
    tokens, width = variant.requests.all_token_ids, variant.layout.max_model_len
    for row, first, end, computed, prefill, count in step.requests:
        of_prompt = min(end, first + prefill - computed) - (count if end > first else 0)
        if step.has_prefill and computed < prefill and of_prompt > first:
            place = min(computed + 1, width - 1)
            variant.buffers.input_ids[first] = tokens[row, place]


def _tail_keeps_prompt(variant: Any, _batch: Any, step: Step) -> None:
    """Drafts behind a prompt that ends in the step are not written over its tokens."""
    tokens = variant.requests.all_token_ids
    for row, first, end, computed, prefill, count in step.requests:
        if step.has_prefill and computed < prefill < computed + end - first and count:
            place = computed + end - first - 1
            variant.buffers.input_ids[end - 1] = tokens[row, place]


def _sampled_in_prompt(variant: Any, _batch: Any, step: Step) -> None:
    """The last sampled token is written although its place is still in the prompt."""
    bonus = variant.layout.num_new_sampled_tokens
    sampled = variant.requests.last_sampled_tokens.reshape(-1)
    for row, first, end, computed, prefill, count in step.requests:
        length = computed + end - first
        if bonus and length > prefill > length - bonus - count:
            variant.buffers.input_ids[end - bonus - count] = sampled[row].to(torch.int32)


def _drafts_in_chunk(variant: Any, _batch: Any, step: Step) -> None:
    """Drafts are written although the prompt goes on behind the step."""
    for row, first, end, computed, prefill, count in step.requests:
        if count and computed + end - first <= prefill:
            drafts = variant.requests.draft_tokens[row, :count].to(torch.int32)
            variant.buffers.input_ids[end - count : end] = drafts


def _no_sampled(variant: Any, _batch: Any, step: Step) -> None:
    """The token of the first decode is one off."""
    for _row, _first, end, computed, prefill, count in step.requests:
        if variant.layout.num_new_sampled_tokens and computed >= prefill:
            variant.buffers.input_ids[end - 1 - count] += 1
            return


def _fill_behind(name: str, value: int) -> Spoil:
    def spoil(variant: Any, _batch: Any, step: Step) -> None:
        getattr(variant.buffers, name)[step.num_tokens :] = value

    return spoil


def _positions_of_step(variant: Any, _batch: Any, step: Step) -> None:
    """Positions begin at 0 in each step."""
    for _row, first, end, *_ in step.requests:
        variant.buffers.positions[first:end] = torch.arange(end - first)


def _lengths_behind(variant: Any, _batch: Any, step: Step) -> None:
    """Lengths behind the padded requests are left as they were; here, 1."""
    variant.buffers.seq_lens[step.num_reqs_padded :] = 1


def _length_without_query(variant: Any, _batch: Any, step: Step) -> None:
    variant.buffers.seq_lens[0] -= int(step.query_lens[0])


def _starts_behind(variant: Any, _batch: Any, step: Step) -> None:
    variant.buffers.query_start_loc[step.num_reqs + 1 :] = 0


def _padding_unmarked(variant: Any, _batch: Any, step: Step) -> None:
    if variant.layout.marks_padding:
        variant.buffers.is_padding[step.num_tokens : step.num_tokens_padded] = False


def _padding_behind(variant: Any, _batch: Any, step: Step) -> None:
    """All behind the step is marked, also behind the padding."""
    variant.buffers.is_padding[step.num_tokens_padded :] = True


def _padding_always(variant: Any, _batch: Any, step: Step) -> None:
    variant.buffers.is_padding[: step.num_tokens] = False


def _ahead_not_ended(variant: Any, _batch: Any, step: Step) -> None:
    """Tokens ahead go on behind the end of the prompt."""
    requests, most = variant.requests, variant.layout.num_lookahead
    for row, first, end, computed, prefill, _ in step.requests:
        place = computed + end - first
        if step.has_prefill and computed < prefill and place + most > prefill:
            place = min(place + most - 1, variant.layout.max_model_len - 1)
            requests.next_prefill_tokens[most - 1, row] = requests.all_token_ids[row, place]


def _ahead_of_decodes(variant: Any, _batch: Any, step: Step) -> None:
    """Tokens ahead of a request that is not in prefill become 0."""
    for row, _first, _end, computed, prefill, _ in step.requests:
        if computed >= prefill:
            variant.requests.next_prefill_tokens[:, row] = 0


def _ahead_first_only(variant: Any, _batch: Any, _step: Step) -> None:
    if variant.layout.num_lookahead > 1:
        variant.requests.next_prefill_tokens[1:] = -3


def _local_lengths(variant: Any, _batch: Any, _step: Step) -> None:
    variant.buffers.dcp_local_seq_lens[:] = variant.buffers.seq_lens


def _renumbered(_variant: Any, batch: Any, _step: Step) -> Any:
    """Logits are numbered through the batch."""
    count = len(batch.expanded_local_pos)
    there = batch.expanded_local_pos
    numbers = torch.arange(count, dtype=there.dtype, device=there.device)
    return batch._replace(expanded_local_pos=numbers)


def _replaced(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Spoil:
    return lambda _variant, batch, _step: batch._replace(**{name: change(getattr(batch, name))})


def _logits_of_ends(_variant: Any, batch: Any, _step: Step) -> Any:
    """Each logit is that of the last token of its request."""
    last = batch.logits_indices.clone()
    counts = batch.cu_num_logits.tolist()
    for first, end in pairwise(counts):
        last[first:end] = last[end - 1] if end > first else 0
    return batch._replace(logits_indices=last)


def _not_shared(_variant: Any, batch: Any, _step: Step) -> Any:
    if batch.expanded_idx_mapping is batch.idx_mapping:
        return batch._replace(expanded_idx_mapping=batch.idx_mapping.clone())
    return batch


def _view_from_one(variant: Any, batch: Any, step: Step) -> Any:
    """Positions are returned from another element on."""
    most = min(step.num_tokens_padded + 1, variant.layout.max_num_tokens)
    return batch._replace(positions=variant.buffers.positions[1:most])


def _copied_view(_variant: Any, batch: Any, _step: Step) -> Any:
    return batch._replace(seq_lens=batch.seq_lens.clone())


def reused(name: str, steps: int) -> Wrong:
    """Return a fault: an output that is new in each step lies in a ring of so many steps."""

    def spoil(variant: Any, batch: Any, _step: Step) -> Any:
        ring = variant.__dict__.setdefault("_ring", [])
        tensor = getattr(batch, name)
        if len(ring) < steps:
            ring.append(torch.zeros(16 * 4096, dtype=tensor.dtype, device=tensor.device))
            held = ring[-1]
        else:
            variant.__dict__["_turn"] = turn = variant.__dict__.get("_turn", -1) + 1
            held = ring[turn % steps]
        held[: len(tensor)] = tensor
        view = held[: len(tensor)]
        if name == "idx_mapping" and batch.expanded_idx_mapping is tensor:
            return batch._replace(idx_mapping=view, expanded_idx_mapping=view)
        return batch._replace(**{name: view})

    return after(spoil)


def _tables_without_window(kind: type[Any]) -> type[Any]:
    """Derive a class whose gather does not mask what lies before a sliding window."""

    class Unmasked(kind):  # type: ignore[misc]  # of a class that is only known here
        def prepare(self, *arguments: Any) -> Any:
            batch = super().prepare(*arguments)
            again = self.tables.gather_block_tables(batch.idx_mapping, len(batch.seq_lens))
            return batch._replace(block_tables=again)

    return Unmasked


def _writes_late(kind: type[Any]) -> type[Any]:
    """Derive a class that applies the writes of a step after it."""

    class Late(kind):  # type: ignore[misc]  # of a class that is only known here
        def prepare(self, *arguments: Any) -> Any:
            apply = self.tables.apply_staged_writes
            self.tables.apply_staged_writes = lambda: None
            try:
                return super().prepare(*arguments)
            finally:
                self.tables.apply_staged_writes = apply
                apply()

    return Late


def _slots_of_old_positions(kind: type[Any]) -> type[Any]:
    """Derive a class that computes slots of one position further for the first token."""

    class Further(kind):  # type: ignore[misc]  # of a class that is only known here
        def prepare(self, *arguments: Any) -> Any:
            batch = super().prepare(*arguments)
            batch.slot_mappings[:, 0] += 1
            return batch

    return Further


FAULTS: dict[str, Wrong] = {
    "a prompt's tokens are late by one": after(_prompt_is_late),
    "drafts do not overwrite a prompt's tail": after(_tail_keeps_prompt),
    "a sampled token overwrites a prompt's tail": after(_sampled_in_prompt),
    "drafts are written into a chunk": after(_drafts_in_chunk),
    "a sampled token is wrong": after(_no_sampled),
    "input_ids behind the step are zeroed": after(_fill_behind("input_ids", 0)),
    "positions behind the step are zeroed": after(_fill_behind("positions", 0)),
    "positions begin at 0": after(_positions_of_step),
    "lengths behind the padding stay": after(_lengths_behind),
    "a length lacks its query": after(_length_without_query),
    "starts behind the requests are 0": after(_starts_behind),
    "padding is not marked": after(_padding_unmarked),
    "padding is marked behind the padded step": after(_padding_behind),
    "padding is written although it is off": after(_padding_always),
    "tokens ahead do not end with the prompt": after(_ahead_not_ended),
    "tokens ahead of decodes are zeroed": after(_ahead_of_decodes),
    "only the first token ahead is written": after(_ahead_first_only),
    "local lengths are written": after(_local_lengths),
    "logits are numbered through the batch": after(_renumbered),
    "rows are int32": after(_replaced("idx_mapping", lambda rows: rows.int())),
    "expanded rows are one off": after(_replaced("expanded_idx_mapping", lambda rows: rows + 1)),
    "counts of logits are one off": after(_replaced("cu_num_logits", lambda counts: counts + 1)),
    "logits are of the last token": after(_logits_of_ends),
    "logits are one token late": after(_replaced("logits_indices", lambda tokens: tokens + 1)),
    "expanded rows are a copy without drafts": after(_not_shared),
    "positions are returned from the second on": after(_view_from_one),
    "lengths are returned as a copy": after(_copied_view),
    "rows are in one buffer": reused("idx_mapping", 1),
    "rows are in a ring of two": reused("idx_mapping", 2),
    "logits are in a ring of two": reused("logits_indices", 2),
    "counts of logits are in one buffer": reused("cu_num_logits", 1),
    "numbers of logits are in one buffer": reused("expanded_local_pos", 1),
    "tables are not masked": _tables_without_window,
    "writes are applied late": _writes_late,
    "slots are of other positions": _slots_of_old_positions,
}
"""The faults by what is wrong."""
