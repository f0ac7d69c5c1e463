"""The sizes that a set of block tables is built for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PAD_SLOT_ID = -1
"""The slot of a token that must not be written to the cache (`PAD` in the documentation)."""


@dataclass(frozen=True)
class TableLayout:
    """Sizes of the block tables of all KV cache groups; fixed for the life of the tables.

    Args:
        block_sizes: tokens per block, one entry per KV cache group. Its length is G.
        widths: columns (blocks) in a row of the table, one entry per group.
        max_num_reqs: rows of every table.
        max_num_batched_tokens: slots per group, i.e. the most tokens in one step.

    Raises:
        ValueError: when a size is not positive, or the two tuples differ in length.
    """

    block_sizes: tuple[int, ...]
    widths: tuple[int, ...]
    max_num_reqs: int
    max_num_batched_tokens: int

    def __post_init__(self) -> None:
        if len(self.block_sizes) != len(self.widths) or not self.block_sizes:
            raise ValueError(
                f"block_sizes has {len(self.block_sizes)} and widths {len(self.widths)} entries; "
                "expected one of each per group, and at least one group"
            )
        for name in ("block_sizes", "widths"):
            for group, value in enumerate(getattr(self, name)):
                if value < 1:
                    raise ValueError(f"{name}[{group}] is {value}; expected 1 or more")
        for name in ("max_num_reqs", "max_num_batched_tokens"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value}; expected 1 or more")

    @property
    def num_groups(self) -> int:
        """G, the number of KV cache groups."""
        return len(self.block_sizes)

    @classmethod
    def for_length(
        cls,
        block_sizes: Sequence[int],
        max_model_len: int,
        max_num_reqs: int,
        max_num_batched_tokens: int,
    ) -> TableLayout:
        """The layout whose rows just hold `max_model_len` tokens in every group."""
        widths = tuple(-(-max_model_len // size) for size in block_sizes)
        return cls(tuple(block_sizes), widths, max_num_reqs, max_num_batched_tokens)
