"""The preparation of inputs by programs of a one-launch step.

A launch that prepares inputs has the requests of its batch as its first words, one for each and one
behind them, and then the words of `INPUT_FIELDS`; see `fields`. Every program needs only these
words and the state of the requests. So none reads the output of another.

A part prepares `FEATURES.few` requests, or `FEATURES.span` tokens, or all that is behind the
requests. Each element of an output has one writer. Where several operations of vLLM write to the
same element, that writer selects the value of the last one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.fields import (
    COMPUTED,
    CU_LOGITS,
    DRAFT_STRIDE,
    DRAFTS,
    EXPANDED,
    HAS_PREFILL,
    INPUT_IDS,
    IS_PADDING,
    LENGTHS,
    LOCAL_POS,
    LOGITS,
    MAPPED,
    MAX_NUM_REQS,
    NEXT,
    NEXT_STRIDE,
    NUM_LOOKAHEAD,
    NUM_PADDED,
    POSITIONS,
    PREFILL_LEN,
    SAMPLED,
    STARTS,
    TOKEN_STRIDE,
    TOKENS,
)
from bt_kernels.device_code.mapping import _input, _request_of
from bt_kernels.device_code.staged_rows import _logit_in, _parameter, _row_in, _start, _start_in

BEHIND = tl.constexpr(1024)  # elements behind the requests that are written at a time


@triton.jit
def _num_input_parts(batch, FEATURES: tl.constexpr):
    """Return the number of programs that prepare inputs."""
    num_tokens = _input(batch, NUM_PADDED, FEATURES).to(tl.int32)
    num_tiles = (batch.num_reqs + FEATURES.few - 1) // FEATURES.few
    return num_tiles + 1 + (num_tokens + FEATURES.span - 1) // FEATURES.span


@triton.jit
def _prepare_part(part, batch, FEATURES: tl.constexpr):
    """Prepare the inputs of one part."""
    num_tiles = (batch.num_reqs + FEATURES.few - 1) // FEATURES.few
    if part < num_tiles:
        _prepare_requests(batch, part, FEATURES)
    elif part == num_tiles:
        _prepare_behind(batch, FEATURES)
    else:
        _prepare_tokens(batch, part - num_tiles - 1, FEATURES)


@triton.jit
def _at(batch, field: tl.constexpr, kind: tl.constexpr, FEATURES: tl.constexpr):
    """Return a field that is an address, as a pointer to elements of a dtype."""
    return _input(batch, field, FEATURES).to(tl.pointer_type(kind))


@triton.jit
def _prepare_requests(batch, tile, FEATURES: tl.constexpr):
    """Write the outputs with an element for each request, and for each logit, of a few requests."""
    place = tile * FEATURES.few + tl.arange(0, FEATURES.few)
    live = place < batch.num_reqs
    word = _parameter(batch.words, tl.where(live, place, 0), FEATURES.indexed)
    following = _parameter(batch.words, tl.where(live, place + 1, 0), FEATURES.indexed)
    row = _row_in(word)
    start = _start_in(word)
    length = _start_in(following) - start
    computed = tl.load(_at(batch, COMPUTED, tl.int32, FEATURES) + row, mask=live, other=0)
    if _input(batch, HAS_PREFILL, FEATURES) != 0:
        _prepare_next(batch, row, live, computed, length, FEATURES)
    tl.store(_at(batch, MAPPED, tl.int64, FEATURES) + place, row.to(tl.int64), mask=live)
    tl.store(_at(batch, STARTS, tl.int32, FEATURES) + place, start, mask=live)
    tl.store(_at(batch, LENGTHS, tl.int32, FEATURES) + place, computed + length, mask=live)

    first = _logit_in(word)
    num_logits = tl.where(live, _logit_in(following) - first, 0)
    counts = _at(batch, CU_LOGITS, tl.int32, FEATURES)
    tl.store(counts + place, first, mask=live & (counts.to(tl.int64) != 0))
    begin = start + length - num_logits
    expanded = _at(batch, EXPANDED, tl.int64, FEATURES)
    local_pos = _at(batch, LOCAL_POS, tl.int32, FEATURES)
    indices = _at(batch, LOGITS, tl.int64, FEATURES)
    for done in range(0, tl.max(num_logits, axis=0), FEATURES.logits):
        nth = done + tl.arange(0, FEATURES.logits)[None, :]
        mask = nth < num_logits[:, None]
        at = first[:, None] + nth
        repeated = row[:, None] + tl.zeros_like(nth)
        tl.store(expanded + at, repeated.to(tl.int64), mask=mask & (expanded.to(tl.int64) != 0))
        tl.store(local_pos + at, nth + tl.zeros_like(at), mask=mask & (local_pos.to(tl.int64) != 0))
        token = (begin[:, None] + nth).to(tl.int64)
        tl.store(indices + at, token, mask=mask & (indices.to(tl.int64) != 0))


@triton.jit
def _prepare_next(batch, row, live, computed, length, FEATURES: tl.constexpr):
    """Write the next tokens of prompts, which follow the tokens of the step."""
    prompt_end = tl.load(_at(batch, PREFILL_LEN, tl.int32, FEATURES) + row, mask=live, other=0)
    in_prefill = live & (computed < prompt_end)
    tokens = _at(batch, TOKENS, tl.int32, FEATURES)
    tokens += row.to(tl.int64) * _input(batch, TOKEN_STRIDE, FEATURES)
    target = _at(batch, NEXT, tl.int32, FEATURES)
    stride = _input(batch, NEXT_STRIDE, FEATURES)
    num_ahead = _input(batch, NUM_LOOKAHEAD, FEATURES).to(tl.int32)
    for done in range(0, num_ahead, FEATURES.lookahead):
        ahead = done + tl.arange(0, FEATURES.lookahead)[None, :]
        mask = in_prefill[:, None] & (ahead < num_ahead)
        place = (computed + length)[:, None] + ahead
        known = mask & (place < prompt_end[:, None])
        token = tl.load(tokens[:, None] + place, mask=known, other=0)
        tl.store(target + ahead * stride + row[:, None], token, mask=mask)


@triton.jit
def _prepare_behind(batch, FEATURES: tl.constexpr):
    """Write all elements behind the last request."""
    index = tl.zeros([1], dtype=tl.int32) + batch.num_reqs
    last = _parameter(batch.words, index, FEATURES.indexed)
    counts = _at(batch, CU_LOGITS, tl.int32, FEATURES)
    tl.store(counts + index, _logit_in(last), mask=index * 0 + counts.to(tl.int64) != 0)
    num_tokens = tl.sum(_start_in(last), axis=0)
    starts = _at(batch, STARTS, tl.int32, FEATURES)
    lengths = _at(batch, LENGTHS, tl.int32, FEATURES)
    most = _input(batch, MAX_NUM_REQS, FEATURES).to(tl.int32)
    for done in range(batch.num_reqs, most + 1, BEHIND):
        place = done + tl.arange(0, BEHIND)
        tl.store(starts + place, tl.zeros_like(place) + num_tokens, mask=place <= most)
        tl.store(lengths + place, tl.zeros_like(place), mask=place < most)


@triton.jit
def _prepare_tokens(batch, span, FEATURES: tl.constexpr):
    """Write the outputs with an element for each token, of a span."""
    token = span * FEATURES.span + tl.arange(0, FEATURES.span)
    num_tokens = _start(batch, batch.num_reqs, FEATURES)
    mask = token < num_tokens
    request = _request_of(batch, token, 0, batch.num_reqs, FEATURES)
    word = _parameter(batch.words, request, FEATURES.indexed)
    following = _parameter(batch.words, request + 1, FEATURES.indexed)
    row = _row_in(word)
    nth = token - _start_in(word)
    length = _start_in(following) - _start_in(word)
    num_logits = _logit_in(following) - _logit_in(word)
    computed = tl.load(_at(batch, COMPUTED, tl.int32, FEATURES) + row, mask=mask, other=0)
    prompt_end = tl.load(_at(batch, PREFILL_LEN, tl.int32, FEATURES) + row, mask=mask, other=0)

    # A draft comes before a sampled token, and that before a token of the prompt.
    is_past = mask & (computed + length > prompt_end)
    nth_logit = nth - (length - num_logits)
    is_draft = is_past & (nth_logit >= FEATURES.bonus)
    drafts = _at(batch, DRAFTS, tl.int64, FEATURES)
    drafts += row.to(tl.int64) * _input(batch, DRAFT_STRIDE, FEATURES)
    draft = tl.load(drafts + (nth_logit - FEATURES.bonus), mask=is_draft, other=0)
    is_sampled = is_past & (nth_logit == 0) & (computed + length - num_logits >= prompt_end)
    if FEATURES.bonus == 0:
        is_sampled = is_draft & (nth_logit < 0)  # never
    sampled = tl.load(_at(batch, SAMPLED, tl.int64, FEATURES) + row, mask=is_sampled, other=0)
    has_prefill = _input(batch, HAS_PREFILL, FEATURES) != 0
    of_prompt = mask & (computed < prompt_end) & has_prefill & (~is_draft) & (~is_sampled)
    prompts = _at(batch, TOKENS, tl.int32, FEATURES)
    prompts += row.to(tl.int64) * _input(batch, TOKEN_STRIDE, FEATURES)
    prompt = tl.load(prompts + (computed + nth), mask=of_prompt, other=0)

    # Nothing that is stored may lie between reads, or they would wait for each other.
    positions = (computed + nth).to(tl.int64)
    tl.store(_at(batch, POSITIONS, tl.int64, FEATURES) + token, positions, mask=mask)
    chosen = tl.where(is_draft, draft.to(tl.int32), sampled.to(tl.int32))
    chosen = tl.where(of_prompt, prompt, chosen)
    written = is_draft | is_sampled | of_prompt
    tl.store(_at(batch, INPUT_IDS, tl.int32, FEATURES) + token, chosen, mask=written)
    marks = _at(batch, IS_PADDING, tl.int8, FEATURES)
    num_padded = _input(batch, NUM_PADDED, FEATURES)
    marked = (token < num_padded) & (marks.to(tl.int64) != 0)
    tl.store(marks + token, (token >= num_tokens).to(tl.int8), mask=marked)
