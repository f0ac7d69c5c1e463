"""What the functions of a step in one launch hand on to each other, in named tuples.

Those of `tl.constexpr` values are `Sizes` and `Features`; a kernel is compiled for each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton.language as tl

# Where a program finds what is staged for its rows; see `one_launch_kernels`.
MARKED = tl.constexpr(0)  # marks and records in pinned memory
CARRIED = tl.constexpr(1)  # all of it in the parameters of the launch
PARTED = tl.constexpr(2)  # all but ids in the parameters, and these in pinned memory
LISTED = tl.constexpr(3)  # which rows in the parameters, and the rest in pinned memory


class Sizes(NamedTuple):
    """How a step is cut into programs; see `Shape` of `bt_kernels.one_launch`."""

    pad: int  # slot of a token that has none
    tile: int  # requests of a tile
    columns: int  # of its rows that are copied at a time
    wide_columns: int  # of long rows
    own_columns: int  # of a long row that its tile copies
    rest: int  # columns that are copied one by one, at a time
    fresh: int  # the same, where their ids are in pinned memory
    tokens: int  # that a tile maps
    span: int  # consecutive tokens of the batch, for a program of their own
    searched: int  # requests that are looked at, at a time
    block: int  # slots that are padded, or ids that are written, at a time
    words: int  # intervals that a program writes


class Features(NamedTuple):
    """What else a kernel is compiled for."""

    where: int  # one of the four above
    ids: bool  # whether intervals may have several ids
    indexed: bool  # whether parameters can be indexed: not in the interpreter
    groups: int
    bitmap: int  # words for the rows of a group
    payload: int  # where carried intervals begin among the words
    options: bool  # window, caller's tables or slots
    sharded: bool  # context parallelism
    aligned: bool  # whether all rows of tables begin at multiples of 16 bytes


class Batch(NamedTuple):
    """The batch of a step."""

    idx_mapping: Any  # [R], int32 elements `index_step` apart
    index_step: Any  # 2 if the mapping is int64, of which the lower halves are read
    query_start_loc: Any  # [R + 1] int32
    positions: Any  # [T] int64
    num_reqs: Any
    num_rows: Any  # to gather or zero


class Cut(NamedTuple):
    """How many programs a group has, beside its tiles."""

    num_spans: Any
    num_wide: Any  # the last rows of the batch, whose columns have programs
    num_chunks: Any  # these, for each of them
    num_pads: Any


class Staged(NamedTuple):
    """What is staged: of `MARKED` the first and the last two, else the others."""

    staging: Any  # pinned memory: int32 from the marks on, or int64 from intervals or ids on
    words: Any  # parameters
    num_words: Any  # intervals
    num_pieces: Any  # of those that have another number of ids than one
    max_num_reqs: Any
    step: Any


class Group(NamedTuple):
    """One group's tables, and the options of the step for it."""

    index: Any
    descriptor: Any
    source: Any
    width: Any
    target: Any
    slots: Any
    num_slots: Any
    num_computed_tokens: Any  # read only if there are options
    windowed: Any  # whether they are given


class Rows(NamedTuple):
    """Rows of a tile, and the interval that is staged for each, `[TILE]`."""

    row: Any  # -1 for dummy requests and past the batch
    start: Any  # of the interval; 0 if there is none
    end: Any
    place: Any  # where its ids are, or the id if there is one
    staged: Any
    length: Any  # blocks that the row has after the step; not of dummy requests


class Tokens(NamedTuple):
    """Tokens whose blocks have been looked up, `[TOKENS]`."""

    token: Any
    mask: Any  # which of them there are
    inside: Any  # which have a slot
    block_id: Any
    offset: Any  # in their blocks
    block_size: Any
