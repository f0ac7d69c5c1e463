"""The sizes and options that a set of block tables is built for."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

PAD_SLOT_ID = -1
"""The slot of a token that must not be written to the cache (`PAD` in the documentation)."""

NULL_BLOCK_ID = 0
"""The block that belongs to no request; zeroed columns of input tables name it."""

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MAX = 2**63 - 1

DISABLED_GROUPS = "disabled_groups"
SLIDING_WINDOW = "sliding_window"
CONTEXT_PARALLELISM = "context_parallelism"
DUMMY_REQUESTS = "dummy_requests"
CUSTOM_OUTPUTS = "custom_outputs"

FEATURES = frozenset(
    {DISABLED_GROUPS, SLIDING_WINDOW, CONTEXT_PARALLELISM, DUMMY_REQUESTS, CUSTOM_OUTPUTS}
)
"""Optional features beyond the plain path, by the names in a variant's `features`."""


MAX_WIDTH = 2**30
"""The most columns of a row: kernels count them as int32, and overshoot the last by a step."""

MAX_NUM_BATCHED_TOKENS = 2**30
"""The most slots of a group, including a caller's.

Kernels count tokens as int32, and overshoot the last by up to 131,072 (`MAX_SPANS * SPAN`).
"""

MAX_NUM_REQS = 32_767
"""The most rows: a launch has up to two programs per row and one more, on a grid axis of 65,535."""


_MOST = {
    "max_num_reqs": MAX_NUM_REQS,
    "max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS,
}


def index_of(value: object) -> int | None:
    """Return a value as an integer, or `None` if it is not one, such as a float."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


@dataclass(frozen=True)
class TableLayout:
    """Sizes and options of the block tables of all KV cache groups; fixed for their life.

    The options are described in `docs/block-tables.md`. Sequences with one entry per group may be
    left empty; then all groups have the default.

    Args:
        block_sizes: tokens per block, one entry per KV cache group. Its length is G. Only
            `bt_kernels.BlockTables` and the reference work without any group.
        widths: columns (blocks) in a row of the table, one entry per group.
        max_num_reqs: rows of every table.
        max_num_batched_tokens: slots per group, i.e. the most tokens in one step; at most 2**30.
        slot_mapping_enabled: per group; if false, all slots of the group are PAD. Default: True.
        sliding_window_reach: per group, tokens before a request's first computed one that are
            still read, or 0 for no window. Without effect where `cp_size` is above 1, since a
            column then is not a range of consecutive tokens. Default: 0.
        cp_size: ranks that share the tokens of a sequence (context parallelism).
        cp_rank: this rank, `0 <= cp_rank < cp_size`.
        cp_interleave: consecutive tokens that go to one rank.
        dcp_sharded: per group, whether its tokens are shared among the ranks. Default: True.

    Raises:
        ValueError: when a size is not an integer, below 1 or above its limit (int32;
            `MAX_NUM_REQS`; `MAX_NUM_BATCHED_TOKENS`; `MAX_WIDTH`), a sequence does not have one
            entry per group, the rank is not in `[0, cp_size)`, the interleave does not divide a
            sharded group's block size, or a row holds more tokens than int64 can count.
    """

    block_sizes: tuple[int, ...]
    widths: tuple[int, ...]
    max_num_reqs: int
    max_num_batched_tokens: int
    slot_mapping_enabled: tuple[bool, ...] = ()
    sliding_window_reach: tuple[int, ...] = ()
    cp_size: int = 1
    cp_rank: int = 0
    cp_interleave: int = 1
    dcp_sharded: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if len(self.block_sizes) != len(self.widths):
            raise ValueError(
                f"block_sizes has {len(self.block_sizes)} and widths {len(self.widths)} entries; "
                "expected one of each per group"
            )
        for name, least in (("block_sizes", 1), ("widths", 1), ("sliding_window_reach", 0)):
            values = tuple(getattr(self, name))
            most = MAX_WIDTH if name == "widths" else INT32_MAX
            sizes = tuple(
                _size(f"{name}[{group}]", value, least, most) for group, value in enumerate(values)
            )
            object.__setattr__(self, name, sizes)
        for name in ("max_num_reqs", "max_num_batched_tokens", "cp_size", "cp_interleave"):
            most = _MOST.get(name, INT32_MAX)
            object.__setattr__(self, name, _size(name, getattr(self, name), 1, most))
        object.__setattr__(self, "cp_rank", _size("cp_rank", self.cp_rank, INT32_MIN))
        self._fill("slot_mapping_enabled", True)
        self._fill("sliding_window_reach", 0)
        self._fill("dcp_sharded", True)
        self._check_context_parallelism()
        self._check_capacities()

    def _fill(self, name: str, default: bool | int) -> None:
        given = tuple(getattr(self, name)) or (default,) * self.num_groups
        if len(given) != self.num_groups:
            raise ValueError(
                f"{name} has {len(given)} entries; expected {self.num_groups}, one per group"
            )
        if isinstance(default, bool):
            given = tuple(bool(value) for value in given)
        object.__setattr__(self, name, given)

    def _check_context_parallelism(self) -> None:
        if not 0 <= self.cp_rank < self.cp_size:
            raise ValueError(
                f"cp_rank is {self.cp_rank}; expected 0 to {self.cp_size - 1} (cp_size - 1)"
            )
        if self.cp_size == 1:
            return
        for group, (size, sharded) in enumerate(
            zip(self.block_sizes, self.dcp_sharded, strict=True)
        ):
            if sharded and size % self.cp_interleave:
                raise ValueError(
                    f"cp_interleave is {self.cp_interleave}; expected a divisor of "
                    f"block_sizes[{group}], which is {size}"
                )

    def _check_capacities(self) -> None:
        """Refuse rows with more tokens than an int64 position can address."""
        for group, (width, tokens) in enumerate(
            zip(self.widths, self.tokens_per_block, strict=True)
        ):
            if width * tokens > INT64_MAX:
                raise ValueError(
                    f"widths[{group}] is {width}, of {tokens} tokens each; expected a row of at "
                    f"most {INT64_MAX} tokens (int64): make the row narrower, or its blocks smaller"
                )

    @property
    def num_groups(self) -> int:
        """G, the number of KV cache groups."""
        return len(self.block_sizes)

    @property
    def cp_sizes(self) -> tuple[int, ...]:
        """Per group, ranks that share its tokens: `cp_size` where it is sharded, else 1."""
        return tuple(self.cp_size if sharded else 1 for sharded in self.dcp_sharded)

    @property
    def tokens_per_block(self) -> tuple[int, ...]:
        """Per group, tokens of the whole sequence that a column stands for.

        That is more than a block holds if ranks share the tokens.
        """
        return tuple(
            size * ranks for size, ranks in zip(self.block_sizes, self.cp_sizes, strict=True)
        )

    @property
    def reaches(self) -> tuple[int, ...]:
        """Per group, the reach of the sliding window that is in effect; 0 for none."""
        return self.sliding_window_reach if self.cp_size == 1 else (0,) * self.num_groups

    @property
    def features(self) -> frozenset[str]:
        """The `FEATURES` that these tables need, whatever arguments their calls have."""
        needs = {
            DISABLED_GROUPS: not all(self.slot_mapping_enabled),
            SLIDING_WINDOW: any(self.reaches),
            CONTEXT_PARALLELISM: self.cp_size > 1,
        }
        return frozenset(name for name, needed in needs.items() if needed)

    @classmethod
    def for_length(
        cls,
        block_sizes: Sequence[int],
        max_model_len: int,
        max_num_reqs: int,
        max_num_batched_tokens: int,
        *,
        slot_mapping_enabled: Sequence[bool] = (),
        sliding_window_reach: Sequence[int] = (),
        cp_size: int = 1,
        cp_rank: int = 0,
        cp_interleave: int = 1,
        dcp_sharded: Sequence[bool] = (),
    ) -> TableLayout:
        """Return the layout with the narrowest rows for `max_model_len` tokens in every group."""
        sharded = tuple(dcp_sharded) or (True,) * len(block_sizes)
        widths = tuple(
            -(-max_model_len // (size * (cp_size if shared else 1)))
            for size, shared in zip(block_sizes, sharded, strict=True)
        )
        return cls(
            tuple(block_sizes),
            widths,
            max_num_reqs,
            max_num_batched_tokens,
            tuple(slot_mapping_enabled),
            tuple(sliding_window_reach),
            cp_size,
            cp_rank,
            cp_interleave,
            sharded,
        )


def _size(name: str, value: int, least: int, most: int = INT32_MAX) -> int:
    """Return a size as an integer within its limits.

    Raises:
        ValueError: when it is not an integer or out of range.
    """
    size = index_of(value)
    if size is None:
        raise ValueError(f"{name} is {value!r}; expected an integer")
    if size < least:
        raise ValueError(f"{name} is {size}; expected {least} or more")
    if size > most:
        raise ValueError(f"{name} is {size}; expected {most} or less")
    return size
