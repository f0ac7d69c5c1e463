"""Our tables for releases of vLLM before 0.33.0, where its class differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bt_kernels.engines.plugin.deferring import DeferringTables
from bt_kernels.engines.plugin.releases import Release

_Ids = Sequence[Sequence[int]]

_SIZES = (
    "block_sizes",
    "kernel_block_sizes",
    "blocks_per_kv_block",
    "block_sizes_tensor",
    "kernel_block_sizes_tensor",
)
"""Attributes that count in the scheduler's blocks, while ours count in kernels' blocks."""


class OlderTables(DeferringTables):
    """`DeferringTables` with the results of an older release.

    Where the release splits blocks, tables hold kernels' blocks: rows are wider, and each id that
    is staged becomes several. Slots are the same, since ranks of context parallelism take turns
    within a kernel's block, too.

    Args:
        release: the release.
        block_sizes: tokens of a scheduler's block, one entry per group.
        max_num_blocks_per_group: such blocks in a row, one entry per group.
        device: the device of the tables.
        kernel_block_sizes: tokens of a kernel's block, one entry per group; only for a release that
            splits blocks.
        options: the other arguments of vLLM's class, by their names.

    Raises:
        ValueError: when a kernel's block does not divide a scheduler's, or `TableLayout` refuses
            the sizes, as with an interleave of context parallelism that divides no kernel's block.
    """

    def __init__(
        self,
        release: Release,
        *,
        block_sizes: Sequence[int],
        max_num_blocks_per_group: Sequence[int],
        device: torch.device,
        kernel_block_sizes: Sequence[int] = (),
        **options: Any,
    ) -> None:
        sizes = kernel_block_sizes if release.splits_blocks else block_sizes
        for group, (size, kernel_size) in enumerate(zip(block_sizes, sizes, strict=True)):
            if size % kernel_size:
                raise ValueError(
                    f"block_sizes[{group}] is {size}; expected a multiple of "
                    f"kernel_block_sizes[{group}], which is {kernel_size}"
                )
        splits = [size // own for size, own in zip(block_sizes, sizes, strict=True)]
        widths = zip(max_num_blocks_per_group, splits, strict=True)
        self._release, self._splits = release, splits
        super().__init__(
            block_sizes=sizes,
            max_num_blocks_per_group=[width * split for width, split in widths],
            device=device,
            **options,
        )

    def _kind_of_variant(self, device: torch.device) -> type[Any]:
        kind = super()._kind_of_variant(device)
        return _older_variant(kind, self._release, self._splits)

    def kernel_ids(self, new_block_ids: _Ids) -> _Ids:
        """Return the ids of kernels' blocks, which tables have."""
        return _split(new_block_ids, self._splits)

    def take_over(self, tables: Any, theirs: type[Any]) -> None:
        """Use the tensors of tables of vLLM's class, as `DeferringTables` does."""
        super().take_over(tables, theirs)
        self._take_sizes(tables)

    def init_block_table_layout_tensors(self) -> None:
        """Update the addresses after tables were replaced, here and in vLLM's object."""
        super().init_block_table_layout_tensors()
        if isinstance(self, OlderTables) and self._theirs is not None:
            self._take_sizes(self._theirs[0])

    def _take_sizes(self, tables: Any) -> None:
        for name in _SIZES:
            if hasattr(tables, name):
                setattr(self, name, getattr(tables, name))


def _older_variant(kind: type[Any], release: Release, splits: Sequence[int]) -> type[Any]:
    """Return a subclass of a variant that does what the release does."""

    def append_block_ids(
        variant: Any, req_index: int, new_block_ids: _Ids, overwrite: bool
    ) -> None:
        kind.append_block_ids(variant, req_index, _split(new_block_ids, splits), overwrite)

    def append_many(
        variant: Any, req_indices: Sequence[int], new_block_ids: Sequence[_Ids], *rest: Any
    ) -> None:
        split = [_split(ids, splits) for ids in new_block_ids]
        kind.append_many(variant, req_indices, split, *rest)

    names: dict[str, Any] = {}
    if any(split > 1 for split in splits):
        names |= {"append_block_ids": append_block_ids, "append_many": append_many}
    if not release.clears_rows:
        # No row ever counts as one to clear.
        names["num_dirty_rows"] = property(lambda _: 0, lambda *_: None)
    if not release.zeroes_dummies:
        names["get_dummy_block_tables"] = lambda variant, num_reqs: variant._views_of_tables(
            num_reqs
        )
    return type("Variant", (kind,), names)


def _split(new_block_ids: _Ids, splits: Sequence[int]) -> list[Sequence[int]]:
    """Return the ids of kernels' blocks: block `b` is `b * split` and those that follow it."""
    return [
        ids if split == 1 else [b * split + part for b in ids for part in range(split)]
        for ids, split in zip(new_block_ids, splits, strict=True)
    ]
