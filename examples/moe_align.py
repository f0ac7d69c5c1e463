"""Aligning tokens to experts, before the matrix product of a mixture of experts.

The router of such a layer chooses `topk` experts for each token. The product that follows works on
blocks of `block_size` rows, each with the weights of one expert. So engines first sort all choices
by expert, and pad those of each expert to whole blocks. They do this in every layer of every step,
without waiting for the GPU: buffers have the size of the worst case.

A choice is an index into the flattened `topk_ids`: choice `i` is of token `i // topk`.

Arguments of a call, all int32:

- `topk_ids`, `[tokens, topk]`: experts of each token, different ones, from 0 to `experts - 1`.
- `sorted_ids`, `[blocks * block_size]`, output: choices by expert, and in ascending order within
  an expert, which makes results equal bit for bit. Padding is `tokens * topk`, up to the end.
- `expert_ids`, `[blocks]`, output: the expert of each block; -1 behind the last that is used.
- `num_padded`, `[1]`, output: the number of choices after padding.
"""

import torch
import triton
import triton.language as tl

import bt_bench

TILE = 32


@bt_bench.benchmark(
    inputs=[
        # Decoding: Mixtral, Qwen3 with 128 experts, DeepSeek-V3 with 256.
        {"tokens": 24, "topk": 2, "experts": 8, "block_size": 16},
        {"tokens": 64, "topk": 8, "experts": 128, "block_size": 16},
        {"tokens": 256, "topk": 8, "experts": 256, "block_size": 16},
        # Chunks of prefills, with blocks that fill the tensor cores; Qwen2 has 60 experts.
        {"tokens": 2048, "topk": 4, "experts": 60, "block_size": 64},
        {"tokens": 8192, "topk": 8, "experts": 256, "block_size": 128},
    ]
)
def moe_align(tokens, topk, experts, block_size):
    """Choose experts as a router does: at random, and some much more often than others."""
    scores = torch.randn(experts) - torch.empty(tokens, experts).exponential_().log()
    choices = tokens * topk
    blocks = min(choices, (choices + experts * (block_size - 1)) // block_size)
    return {
        "topk_ids": scores.topk(topk).indices.int(),
        "sorted_ids": torch.empty(blocks * block_size, dtype=torch.int32),
        "expert_ids": torch.empty(blocks, dtype=torch.int32),
        "num_padded": torch.empty(1, dtype=torch.int32),
    }


@moe_align.reference(timed=False)  # it waits for the GPU at each expert
def one_expert_at_a_time(topk_ids, sorted_ids, expert_ids, num_padded, experts, block_size):
    chosen = topk_ids.flatten()
    sorted_ids.fill_(chosen.numel())
    expert_ids.fill_(-1)
    start = 0
    for expert in range(experts):
        choices = (chosen == expert).nonzero().flatten()
        end = start + -(-choices.numel() // block_size) * block_size
        sorted_ids[start : start + choices.numel()] = choices
        expert_ids[start // block_size : end // block_size] = expert
        start = end
    num_padded.fill_(start)


@moe_align.variant(name="baseline", graph=True)
def torch_ops(topk_ids, sorted_ids, expert_ids, num_padded, experts, block_size):
    """A stable sort and several operations of torch; none waits for the GPU."""
    chosen = topk_ids.flatten()
    by_expert, choices = chosen.sort(stable=True)
    by_expert = by_expert.long()  # of indices
    ones = torch.ones_like(by_expert)
    counts = ones.new_zeros(experts).scatter_add_(0, by_expert, ones)  # bincount would wait
    padded = (counts + block_size - 1) // block_size * block_size
    ends = padded.cumsum(0)
    shift = ends - padded - (counts.cumsum(0) - counts)
    places = torch.arange(chosen.numel(), device=chosen.device) + shift[by_expert]
    sorted_ids.fill_(chosen.numel()).scatter_(0, places, choices.int())
    starts = torch.arange(0, sorted_ids.numel(), block_size, device=chosen.device)
    found = torch.searchsorted(ends, starts, right=True)
    expert_ids.copy_(found.masked_fill_(found == experts, -1))
    num_padded.copy_(ends[-1:])


@triton.jit
def count_kernel(topk_ids, counts, sorted_ids, num_choices, num_sorted,
                 EXPERTS: tl.constexpr, CHUNK: tl.constexpr):  # fmt: skip
    """Count the choices of each expert in a chunk, and fill `sorted_ids`; grid `(chunks,)`."""
    chunk = tl.program_id(0)
    choices = chunk * CHUNK + tl.arange(0, CHUNK)
    real = choices < num_choices
    chosen = tl.load(topk_ids + choices, mask=real, other=0)
    histogram = tl.histogram(chosen, EXPERTS, mask=real)
    tl.store(counts + chunk * EXPERTS + tl.arange(0, EXPERTS), histogram)
    for start in range(chunk * CHUNK, num_sorted, tl.num_programs(0) * CHUNK):
        places = start + tl.arange(0, CHUNK)
        tl.store(sorted_ids + places, num_choices, mask=places < num_sorted)


@triton.jit
def place_kernel(topk_ids, counts, sorted_ids, expert_ids, num_padded, num_choices, num_blocks,
                 BLOCK_SIZE: tl.constexpr, EXPERTS: tl.constexpr,
                 CHUNK: tl.constexpr, TILE: tl.constexpr):  # fmt: skip
    """Place the choices of a chunk, and the experts of some blocks; grid `(chunks,)`."""
    chunk = tl.program_id(0)
    num_chunks = tl.num_programs(0)
    experts = tl.arange(0, EXPERTS)
    before = tl.zeros((EXPERTS,), tl.int32)
    total = tl.zeros((EXPERTS,), tl.int32)
    for other in range(num_chunks):
        count = tl.load(counts + other * EXPERTS + experts)
        total += count
        before += tl.where(other < chunk, count, 0)
    padded = tl.cdiv(total, BLOCK_SIZE) * BLOCK_SIZE
    ends = tl.cumsum(padded, 0)
    num_used = tl.sum(padded)
    if chunk == 0:
        tl.store(num_padded, num_used)

    choices = chunk * CHUNK + tl.arange(0, CHUNK)
    real = choices < num_choices
    chosen = tl.load(topk_ids + choices, mask=real, other=0)
    rank = tl.zeros((CHUNK,), tl.int32)  # among those of the same expert in this chunk
    for start in range(chunk * CHUNK, (chunk + 1) * CHUNK, TILE):
        others = start + tl.arange(0, TILE)
        theirs = tl.load(topk_ids + others, mask=others < num_choices, other=-1)
        earlier = others[None, :] < choices[:, None]
        same = theirs[None, :] == chosen[:, None]
        rank += tl.sum((earlier & same).to(tl.int32), 1)
    places = tl.gather(ends - padded + before, chosen, 0) + rank
    tl.store(sorted_ids + places, choices, mask=real)

    for first in range(chunk * TILE, num_blocks, num_chunks * TILE):
        blocks = first + tl.arange(0, TILE)
        starts = blocks * BLOCK_SIZE
        # As many experts end before a block as its own has predecessors.
        expert = tl.sum((ends[None, :] <= starts[:, None]).to(tl.int32), 1)
        tl.store(expert_ids + blocks, tl.where(starts < num_used, expert, -1),
                 mask=blocks < num_blocks)  # fmt: skip


@moe_align.variant(name="triton", graph=True)
def two_kernels(topk_ids, sorted_ids, expert_ids, num_padded, experts, block_size):
    """A kernel that counts and one that places, both by chunks of 32 to 256 choices."""
    num_choices = topk_ids.numel()
    # About 32 chunks: each program reads the counts of all, and compares the choices of its own.
    chunk = min(256, max(TILE, triton.next_power_of_2(triton.cdiv(num_choices, 32))))
    chunks = triton.cdiv(num_choices, chunk)
    padded_experts = max(32, triton.next_power_of_2(experts))
    counts = topk_ids.new_empty(chunks, padded_experts)
    count_kernel[(chunks,)](
        topk_ids, counts, sorted_ids, num_choices, sorted_ids.numel(),
        EXPERTS=padded_experts, CHUNK=chunk,
    )  # fmt: skip
    place_kernel[(chunks,)](
        topk_ids, counts, sorted_ids, expert_ids, num_padded, num_choices, expert_ids.numel(),
        BLOCK_SIZE=block_size, EXPERTS=padded_experts, CHUNK=chunk, TILE=TILE, num_warps=8,
    )  # fmt: skip
