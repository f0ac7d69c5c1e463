"""Rotary embedding of queries and keys, and the write of keys and values into the paged cache.

Between the projection to queries, keys and values and the attention, engines rotate the heads of
queries and keys by angles that grow with the token's position, in place. Then they write keys and
values to the slots of the paged cache that the block tables give. They do both in every layer of
every step. A step that is padded to the size of a CUDA graph has tokens without a slot.

A head is rotated by halves ("neox"): `(x1 * cos - x2 * sin, x2 * cos + x1 * sin)`, computed in
float32 and rounded once. Products of two numbers of 16 bits are exact in float32, so fused
multiply-add changes nothing. Results are equal bit for bit on all devices, without a tolerance. A
function that computes in 16 bits needs one: `@bt_bench.benchmark(…, tolerance={"qkv": …})`.

Arguments of a call; those of floats are of dtype `DTYPE`:

- `qkv`, `[tokens, (q_heads + 2 * kv_heads) * head_dim]`: heads of queries, of keys and of
  values. Queries and keys are rotated in place, and values stay as they are.
- `positions`, `[tokens]`, int64: the position of each token in its request.
- `cos_sin`, `[max_position, head_dim]`: of each position, `head_dim / 2` cosines and as many
  sines.
- `slot_mapping`, `[tokens]`, int64: the slot of each token, `block * block_size + offset`. -1 is
  skipped: nothing is written.
- `key_cache` and `value_cache`, `[num_blocks, block_size, kv_heads, head_dim]`. Other slots keep
  their contents.
"""

import torch
import triton
import triton.language as tl

import bt_bench

DTYPE = torch.float16
"""Or bfloat16, on a GPU: Triton's interpreter does not round to it, it cuts bits off."""

HEAD_DIM = 128
BLOCK_SIZE = 16
HEAD_TILE = 8


@bt_bench.benchmark(
    inputs=[
        # Decoding, a token for each request: a model of 70B on 8 GPUs, and one of 8B on one.
        {"tokens": 5, "requests": 5, "q_heads": 8, "kv_heads": 1, "max_position": 256},
        {"tokens": 64, "requests": 64, "q_heads": 32, "kv_heads": 8, "max_position": 8192},
        {"tokens": 256, "requests": 256, "q_heads": 32, "kv_heads": 8, "max_position": 8192},
        # Chunks of prefills.
        {"tokens": 2048, "requests": 4, "q_heads": 32, "kv_heads": 8, "max_position": 8192},
        {"tokens": 8192, "requests": 2, "q_heads": 8, "kv_heads": 1, "max_position": 8192},
    ]
)
def rotary_cache(tokens, requests, q_heads, kv_heads, max_position):
    """Continue requests at random positions, in random blocks; the last tokens are padding.

    The first token gets slot 0, which a function may take for none.
    """
    each = tokens // requests
    first = torch.randint(max_position - each, (requests, 1))
    first[0] -= first[0] % BLOCK_SIZE
    positions = first + torch.arange(each)
    blocks_each = (each + BLOCK_SIZE - 2) // BLOCK_SIZE + 1
    num_blocks = requests * blocks_each + 4
    table = torch.randperm(num_blocks)[: requests * blocks_each].view(requests, blocks_each)
    table = (table - table[0, 0]) % num_blocks
    blocks = table.gather(1, positions // BLOCK_SIZE - first // BLOCK_SIZE)
    slots = (blocks * BLOCK_SIZE + positions % BLOCK_SIZE).flatten()
    positions = positions.flatten()
    padding = max(1, tokens // 16)
    positions[-padding:], slots[-padding:] = 0, -1
    cache = num_blocks, BLOCK_SIZE, kv_heads, HEAD_DIM
    return {
        "qkv": torch.randn(tokens, (q_heads + 2 * kv_heads) * HEAD_DIM).to(DTYPE),
        "positions": positions,
        "cos_sin": _cos_sin(max_position),
        "slot_mapping": slots,
        "key_cache": torch.randn(cache).to(DTYPE),
        "value_cache": torch.randn(cache).to(DTYPE),
    }


def _cos_sin(max_position):
    frequencies = 500_000.0 ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.arange(max_position)[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], 1).to(DTYPE)


@rotary_cache.reference(timed=False)  # it waits for the GPU at each token
def one_token_at_a_time(qkv, positions, cos_sin, slot_mapping, key_cache, value_cache, q_heads):
    _, block_size, kv_heads, head_dim = key_cache.shape
    half = head_dim // 2
    for token, (position, slot) in enumerate(
        zip(positions.tolist(), slot_mapping.tolist(), strict=True)
    ):
        heads = qkv[token].view(-1, head_dim)
        rotated = heads[: q_heads + kv_heads]
        cos, sin = cos_sin[position, :half].float(), cos_sin[position, half:].float()
        x1, x2 = rotated[:, :half].float(), rotated[:, half:].float()
        rotated[:, :half] = x1 * cos - x2 * sin
        rotated[:, half:] = x2 * cos + x1 * sin
        if slot >= 0:
            block, offset = divmod(slot, block_size)
            key_cache[block, offset] = heads[q_heads : q_heads + kv_heads]
            value_cache[block, offset] = heads[q_heads + kv_heads :]


@rotary_cache.variant(name="baseline")
def torch_ops(qkv, positions, cos_sin, slot_mapping, key_cache, value_cache, q_heads):
    """Several operations of torch; none waits for the GPU."""
    kv_heads, head_dim = key_cache.shape[2:]
    heads = qkv.view(qkv.shape[0], -1, head_dim)
    rotated = heads[:, : q_heads + kv_heads]
    cos, sin = cos_sin[positions].float()[:, None].chunk(2, -1)
    x1, x2 = rotated.float().chunk(2, -1)
    rotated.copy_(torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1))
    # Only the device knows how many tokens have a slot. So all are written: those without write
    # what the first token writes, to its slot. Padding is at the end, so the first token has one.
    has_slot = slot_mapping >= 0
    source = torch.where(has_slot, torch.arange(len(qkv), device=qkv.device), 0)
    slots = slot_mapping[source]
    written = heads[source]
    key_cache.flatten(0, 1)[slots] = written[:, q_heads : q_heads + kv_heads]
    value_cache.flatten(0, 1)[slots] = written[:, q_heads + kv_heads :]


@triton.jit
def fused_kernel(qkv, positions, cos_sin, slot_mapping, key_cache, value_cache, q_heads,
                 KV_HEADS: tl.constexpr, HALF: tl.constexpr, HEAD_TILE: tl.constexpr):  # fmt: skip
    """Rotate some heads of a token and write its keys and values.

    Grid `(tokens, tiles of the heads of queries and keys)`. Whoever rotates a head of keys copies
    the head of values as well.
    """
    HEAD_DIM: tl.constexpr = 2 * HALF
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * HEAD_TILE + tl.arange(0, HEAD_TILE)[:, None]
    columns = tl.arange(0, HALF)[None, :]
    real = heads < q_heads + KV_HEADS
    position = tl.load(positions + token)
    cos = tl.load(cos_sin + position * HEAD_DIM + columns).to(tl.float32)
    sin = tl.load(cos_sin + position * HEAD_DIM + HALF + columns).to(tl.float32)

    own = qkv + token * (q_heads + 2 * KV_HEADS) * HEAD_DIM + heads * HEAD_DIM + columns
    x1 = tl.load(own, mask=real).to(tl.float32)
    x2 = tl.load(own + HALF, mask=real).to(tl.float32)
    y1 = (x1 * cos - x2 * sin).to(qkv.dtype.element_ty)
    y2 = (x2 * cos + x1 * sin).to(qkv.dtype.element_ty)
    tl.store(own, y1, mask=real)
    tl.store(own + HALF, y2, mask=real)

    slot = tl.load(slot_mapping + token)
    written = real & (heads >= q_heads) & (slot >= 0)
    values = own + KV_HEADS * HEAD_DIM
    v1 = tl.load(values, mask=written)
    v2 = tl.load(values + HALF, mask=written)
    place = (slot * KV_HEADS + heads - q_heads) * HEAD_DIM + columns
    tl.store(key_cache + place, y1, mask=written)
    tl.store(key_cache + place + HALF, y2, mask=written)
    tl.store(value_cache + place, v1, mask=written)
    tl.store(value_cache + place + HALF, v2, mask=written)


@rotary_cache.variant(name="triton")
def fused(qkv, positions, cos_sin, slot_mapping, key_cache, value_cache, q_heads):
    """One kernel, with a program for every 8 heads of a token."""
    _, _, kv_heads, head_dim = key_cache.shape
    fused_kernel[(len(qkv), triton.cdiv(q_heads + kv_heads, HEAD_TILE))](
        qkv, positions, cos_sin, slot_mapping, key_cache, value_cache, q_heads,
        KV_HEADS=kv_heads, HALF=head_dim // 2, HEAD_TILE=HEAD_TILE,
    )  # fmt: skip
