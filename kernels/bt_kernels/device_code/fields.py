"""The layouts that kernels and host code share: fields of descriptors, records, marks, headers."""

from __future__ import annotations

import triton.language as tl

DESCRIPTOR_FIELDS = tl.constexpr(16)  # those below, and two unused: 128 bytes
# Columns of `descriptors`.
SOURCE = tl.constexpr(0)  # address of the source table
TARGET = tl.constexpr(1)  # address of the input table
WIDTH = tl.constexpr(2)  # columns of a row of both
BLOCK_SIZE = tl.constexpr(3)  # tokens per block
CAPACITY = tl.constexpr(4)  # positions that a row can hold; 0 if slot mapping is not enabled
NUM_BLOCKS = tl.constexpr(5)  # address of the group's number of blocks per row, int32
SLOTS = tl.constexpr(6)  # address of the group's slots
MAX_NUM_TOKENS = tl.constexpr(7)  # number of slots
REACH = tl.constexpr(8)  # of the sliding window in tokens; 0 if there is none
CP_SIZE = tl.constexpr(9)  # ranks that share the group's tokens; 1 if it is not sharded
CP_RANK = tl.constexpr(10)  # which of them this is
CP_INTERLEAVE = tl.constexpr(11)  # consecutive tokens of one rank
BLOCK_SHIFT = tl.constexpr(12)  # log2 of the block size; -1 if it is not a power of two
NUM_ROWS = tl.constexpr(13)  # rows of both tables

RECORD_FIELDS = tl.constexpr(5)
CAPTURED_HEADER = tl.constexpr(3)

# Sizes that change from step to step must not select another binary: without this, Triton
# recompiles at 1 and at multiples of 16, in the middle of serving.
STEP_SIZES = ["first_record", "num_reqs", "num_rows", "out_stride", "out_size"]
# Nor must the alignment of these inputs, which may be slices of longer buffers. Reads from them
# begin anywhere, so alignment would not help.
INPUTS = ["idx_mapping", "query_start_loc", "positions", "num_computed_tokens", "out_ptrs", "out"]

MARK_FIELDS = tl.constexpr(4)
STEP_RECORD_FIELDS = tl.constexpr(8)
HEADER_FIELDS = tl.constexpr(4)
OPTION_FIELDS = tl.constexpr(8)
ADDRESS_BITS = tl.constexpr(48)
ADDRESS_MASK = tl.constexpr(2**48 - 1)
BITMAP_ROWS = tl.constexpr(48)  # bits of a word for rows; see `one_launch_kernels`
PIECE_IDS = tl.constexpr(512)  # block ids of an interval that a program writes
ALIGNED_IDS = tl.constexpr(4)  # the ids of an interval in memory begin at a multiple of this

# The word of a request: from the highest bit down, an unused one, its row, its first logit, and its
# first token. Behind the last request, a word with the numbers of logits and tokens.
ROW_BITS = tl.constexpr(48)
LOGIT_BITS = tl.constexpr(27)
LOGIT_MASK = tl.constexpr(0x1FFFFF)
START_MASK = tl.constexpr(0x7FFFFFF)

INPUT_FIELDS = tl.constexpr(23)
# Words behind those of requests. Addresses of what is new in each step; 0 where nothing is written:
MAPPED = tl.constexpr(0)  # idx_mapping
EXPANDED = tl.constexpr(1)  # expanded_idx_mapping
LOCAL_POS = tl.constexpr(2)  # expanded_local_pos
CU_LOGITS = tl.constexpr(3)  # cu_num_logits
LOGITS = tl.constexpr(4)  # logits_indices
NUM_PADDED = tl.constexpr(5)  # tokens with a mark of padding; at least those of the batch
HAS_PREFILL = tl.constexpr(6)
# Addresses of the persistent outputs, the last one 0 where nothing marks padding:
INPUT_IDS = tl.constexpr(7)
POSITIONS = tl.constexpr(8)
STARTS = tl.constexpr(9)  # query_start_loc
LENGTHS = tl.constexpr(10)  # seq_lens
IS_PADDING = tl.constexpr(11)
# The state of requests: addresses, and strides in elements.
COMPUTED = tl.constexpr(12)  # num_computed_tokens
PREFILL_LEN = tl.constexpr(13)
TOKENS = tl.constexpr(14)  # all_token_ids
TOKEN_STRIDE = tl.constexpr(15)
SAMPLED = tl.constexpr(16)  # last_sampled_tokens
DRAFTS = tl.constexpr(17)  # draft_tokens
DRAFT_STRIDE = tl.constexpr(18)
NEXT = tl.constexpr(19)  # next_prefill_tokens
NEXT_STRIDE = tl.constexpr(20)
NUM_LOOKAHEAD = tl.constexpr(21)
MAX_NUM_REQS = tl.constexpr(22)


_SIZES = [
    "num_computed_tokens",
    "slots_out",
    "slots_stride",
    "num_slots",
    "index_step",
    "num_reqs",
    "num_rows",
    "num_words",
    "num_pieces",
    "num_spans",
    "num_wide",
    "num_chunks",
    "num_pads",
]
