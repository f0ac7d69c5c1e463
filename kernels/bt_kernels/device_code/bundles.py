"""The named tuples that the functions of a one-launch step pass to each other.

`Sizes` and `Features` hold `tl.constexpr` values; a kernel is compiled for each combination.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton.language as tl

# Where a program finds the staged writes of its rows; see `one_launch_kernels`.
MARKED = tl.constexpr(0)  # marks and records in pinned memory
CARRIED = tl.constexpr(1)  # all in the parameters of the launch
PARTED = tl.constexpr(2)  # ids in pinned memory, the rest in the parameters
LISTED = tl.constexpr(3)  # the bitmap of rows in the parameters, the rest in pinned memory
NOTHING = tl.constexpr(4)  # nowhere: a gather or slots alone, which see what was applied


class Sizes(NamedTuple):
    """The sizes that a step is cut into; see `Shape` of `bt_kernels.one_launch`."""

    pad: int  # slot of a token that has none
    tile: int  # requests of a tile
    columns: int  # columns of its rows that are copied at a time
    wide_columns: int  # columns of long rows that are copied at a time
    own_columns: int  # columns of a long row that its tile copies
    rest: int  # columns that are copied one by one, at a time
    fresh: int  # the same, for ids in pinned memory
    tokens: int  # tokens that a tile maps
    span: int  # consecutive tokens of the batch, for a program of their own
    searched: int  # requests that are examined at a time
    block: int  # slots that are padded, or ids that are written, at a time
    words: int  # intervals that a program writes


class Features(NamedTuple):
    """The other constants that a kernel is compiled for."""

    where: int  # one of the five above
    gathers: bool  # whether rows are gathered
    maps: bool  # whether tokens are mapped to slots
    ids: bool  # whether intervals may have several ids
    indexed: bool  # whether parameters can be indexed: not in the interpreter
    groups: int
    bitmap: int  # words for the rows of a group
    payload: int  # where carried intervals begin among the words
    options: bool  # window, caller's tables or slots
    sharded: bool  # context parallelism
    aligned: bool  # whether all rows of tables begin at multiples of 16 bytes
    begin: int = 0  # where the bitmap begins among the words
    # The following are for batches whose inputs are prepared; see `input_parts`.
    requests: int = 0  # words of requests, the first ones; 0: the batch is in memory
    few: int = 0  # requests for a program that prepares inputs
    span: int = 0  # tokens for such a program
    logits: int = 0  # of a request, that are written at a time
    lookahead: int = 0  # tokens that follow a prompt's, likewise
    bonus: int = 0  # logits of a request beyond its drafts


class Batch(NamedTuple):
    """The batch of a step. If words have its requests, the tensors are not read."""

    idx_mapping: Any  # [R], int32 elements `index_step` apart
    index_step: Any  # 2 if the mapping is int64: only the lower halves are read
    query_start_loc: Any  # [R + 1] int32
    positions: Any  # [T] int64
    num_reqs: Any
    num_rows: Any  # to gather or zero
    words: Any  # parameters that have its requests; `None` where they are indexed


class Cut(NamedTuple):
    """The numbers of programs of a group, beside its tiles."""

    num_spans: Any
    num_wide: Any  # rows at the end of the batch whose columns have programs of their own
    num_chunks: Any  # programs for the columns of each such row
    num_pads: Any


class Staged(NamedTuple):
    """The staged writes: for `MARKED`, the first and the last two fields, else the others."""

    staging: Any  # pinned memory: int32 from the marks on, or int64 from intervals or ids on
    words: Any  # parameters
    num_words: Any  # intervals
    num_pieces: Any  # of intervals whose number of ids is not one
    max_num_reqs: Any
    step: Any


class Group(NamedTuple):
    """A group's tables, and the step's options for it."""

    index: Any
    descriptor: Any
    source: Any
    width: Any
    target: Any
    slots: Any
    num_slots: Any
    num_computed_tokens: Any  # read only if there are options
    windowed: Any  # whether `num_computed_tokens` is given


class Rows(NamedTuple):
    """Rows of a tile, and the interval that is staged for each, `[TILE]`."""

    row: Any  # -1 for dummy requests and past the batch
    start: Any  # of the interval; 0 if there is none
    end: Any
    place: Any  # where its ids are, or its only id
    staged: Any
    length: Any  # blocks that the row has after the step; undefined for dummy requests
    begin: Any  # first tokens of their requests, if words have these; else undefined


class Tokens(NamedTuple):
    """Tokens whose blocks have been looked up, `[TOKENS]`."""

    token: Any
    mask: Any  # which of them exist
    inside: Any  # which have a slot
    block_id: Any
    offset: Any  # in their blocks
    block_size: Any
