"""The largest sizes that tables of a config may have."""

from __future__ import annotations

MAX_GROUPS = 64
MAX_REQS = 16_384  # a fused launch has two programs per request on a grid axis of 65,535
MAX_TOKENS = 4_194_304
MAX_MODEL_LEN = 16_777_216
MAX_BLOCK_SIZE = 4_194_304
MAX_WIDTH = MAX_MODEL_LEN
MAX_CP_SIZE = 256
