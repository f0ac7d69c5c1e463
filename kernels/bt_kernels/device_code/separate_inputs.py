"""The Triton code that prepares inputs of batches, one kernel for each kind of output.

Every kernel has a program for each request. `num_computed` are the tokens computed before the step
and `prefill_len` the tokens that a request came with, both by request row.
"""

from __future__ import annotations

import triton
import triton.language as tl

_SIZES = ["token_stride", "next_stride", "num_lookahead", "draft_stride", "max_num_reqs"]


@triton.jit(do_not_specialize=_SIZES)
def prompt_tokens_kernel(
    idx_mapping,
    query_start_loc,
    num_computed,
    prefill_len,
    all_token_ids,
    token_stride,
    input_ids,
    next_prefill_tokens,
    next_stride,
    num_lookahead,
    BLOCK: tl.constexpr,
    LOOKAHEAD: tl.constexpr,
):
    """Copy the tokens of requests in prefill, and those that follow; grid `(R,)`."""
    batch = tl.program_id(0)
    row = tl.load(idx_mapping + batch)
    computed = tl.load(num_computed + row)
    prompt_end = tl.load(prefill_len + row)
    if computed < prompt_end:
        begin = tl.load(query_start_loc + batch)
        length = tl.load(query_start_loc + batch + 1) - begin
        tokens = all_token_ids + row * token_stride + computed
        for done in range(0, length, BLOCK):
            nth = done + tl.arange(0, BLOCK)
            mask = nth < length
            tl.store(input_ids + begin + nth, tl.load(tokens + nth, mask=mask), mask=mask)
        ahead = tl.arange(0, LOOKAHEAD)
        known = (ahead < num_lookahead) & (computed + length + ahead < prompt_end)
        following = tl.load(tokens + length + ahead, mask=known, other=0)
        target = next_prefill_tokens + ahead * next_stride + row
        tl.store(target, following, mask=ahead < num_lookahead)


@triton.jit(do_not_specialize=_SIZES)
def positions_kernel(
    idx_mapping,
    query_start_loc,
    num_computed,
    positions,
    seq_lens,
    max_num_reqs,
    BLOCK: tl.constexpr,
):
    """Write positions and lengths of sequences; grid `(R + 1,)`, the last one zeroes the rest."""
    batch = tl.program_id(0)
    num_reqs = tl.num_programs(0) - 1
    if batch < num_reqs:
        computed = tl.load(num_computed + tl.load(idx_mapping + batch))
        begin = tl.load(query_start_loc + batch)
        length = tl.load(query_start_loc + batch + 1) - begin
        tl.store(seq_lens + batch, computed + length)
        for done in range(0, length, BLOCK):
            nth = done + tl.arange(0, BLOCK)
            tl.store(positions + begin + nth, computed + nth, mask=nth < length)
    else:
        for done in range(num_reqs, max_num_reqs, BLOCK):
            nth = done + tl.arange(0, BLOCK)
            tl.store(seq_lens + nth, tl.zeros_like(nth), mask=nth < max_num_reqs)


@triton.jit(do_not_specialize=_SIZES)
def combine_kernel(
    idx_mapping,
    query_start_loc,
    cu_num_logits,
    seq_lens,
    prefill_len,
    last_sampled_tokens,
    draft_tokens,
    draft_stride,
    input_ids,
    logits_indices,
    BONUS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write sampled and draft tokens, and the tokens with logits; grid `(R,)`."""
    batch = tl.program_id(0)
    row = tl.load(idx_mapping + batch)
    first_logit = tl.load(cu_num_logits + batch)
    num_logits = tl.load(cu_num_logits + batch + 1) - first_logit
    first_token = tl.load(query_start_loc + batch + 1) - num_logits
    nth = tl.arange(0, BLOCK)
    has_logits = nth < num_logits
    indices = (first_token + nth).to(tl.int64)
    tl.store(logits_indices + first_logit + nth, indices, mask=has_logits)
    length = tl.load(seq_lens + batch)
    prompt_end = tl.load(prefill_len + row)
    if length > prompt_end:
        # The first of these tokens was sampled, unless it is still of the prompt. Drafts follow.
        is_draft = has_logits & (nth >= BONUS)
        drafts = tl.load(draft_tokens + row * draft_stride + nth - BONUS, mask=is_draft)
        tl.store(input_ids + first_token + nth, drafts.to(tl.int32), mask=is_draft)
        if BONUS:  # noqa: SIM102  # it is known when compiled, the other condition is not
            if length - num_logits >= prompt_end:
                sampled = tl.load(last_sampled_tokens + row)
                tl.store(input_ids + first_token, sampled.to(tl.int32))


@triton.jit
def expand_kernel(
    idx_mapping, cu_num_logits, expanded_idx_mapping, expanded_local_pos, BLOCK: tl.constexpr
):
    """Repeat the row of each request for its logits, and number these; grid `(R,)`."""
    batch = tl.program_id(0)
    first = tl.load(cu_num_logits + batch)
    nth = tl.arange(0, BLOCK)
    mask = nth < tl.load(cu_num_logits + batch + 1) - first
    rows = tl.zeros_like(nth).to(tl.int64) + tl.load(idx_mapping + batch)
    tl.store(expanded_idx_mapping + first + nth, rows, mask=mask)
    tl.store(expanded_local_pos + first + nth, nth, mask=mask)
