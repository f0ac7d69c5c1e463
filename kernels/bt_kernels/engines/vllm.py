"""A replacement for the `BlockTables` of vLLM 0.33.0.

Constructor, methods, argument order and attributes match that release; differences in meaning are
in `docs/engines.md`. The work is done by the variant `one_launch`, or by `fused` where nothing can
launch but Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from bt_kernels import native
from bt_kernels.device_tables import CapturedStep
from bt_kernels.engines.no_groups import NoGroups
from bt_kernels.layout import TableLayout
from bt_kernels.variants import fused, one_launch

_Option = TypeVar("_Option", bool, int)

_Counts: TypeAlias = "npt.NDArray[np.int32]"


@dataclass
class SourceTable:
    """A source table, under the name that engines use.

    After replacing `gpu`, call `BlockTables.init_block_table_layout_tensors`.

    Args:
        gpu: `[max_num_reqs, max_num_blocks_per_group[g]]` int32 on the device.
        apply: writes all that is staged, of this group and the others.
    """

    gpu: torch.Tensor
    apply: Callable[[], None] = field(repr=False)

    @property
    def device(self) -> torch.device:
        """The device of the table."""
        return self.gpu.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of block ids, int32."""
        return self.gpu.dtype

    @property
    def num_rows(self) -> int:
        """`max_num_reqs`."""
        return self.gpu.shape[0]

    def apply_write(self) -> None:
        """Write all staged ids, of this group and the others, as `apply_staged_writes` does."""
        self.apply()


@dataclass(frozen=True)
class FusedWriter:
    """The object that shows that one launch applies the staged writes of all groups.

    Runners look whether there is one, and call `BlockTables.apply_staged_writes` then.

    Args:
        write: writes all that is staged.
    """

    write: Callable[[], None] = field(repr=False)

    def apply(
        self,
        tensors: Sequence[SourceTable],
        output_ptrs: torch.Tensor,
        output_strides: torch.Tensor,
    ) -> None:
        """Write all staged ids; the arguments, which vLLM's needs, are not looked at."""
        self.write()


@dataclass(frozen=True)
class NumBlocks:
    """Blocks that each row owns, under the names that engines use.

    Args:
        np: `[G, max_num_reqs]` int32 on the host, including all staged writes; read-only.
        gpu: the same on the device, including all applied writes.
    """

    np: _Counts
    gpu: torch.Tensor

    @property
    def cpu(self) -> torch.Tensor:
        """A copy of `np` as a tensor."""
        return torch.from_numpy(self.np.copy())

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of all, int32."""
        return self.gpu.dtype


class BlockTables:
    """Block tables of all KV cache groups, with the interface of vLLM 0.33.0.

    Beyond that interface there are `gather_and_compute_slot_mappings`, `prepare_step` and
    `capture_step`, which make fewer launches, and the arguments `steps_in_flight` and `validate`.
    `bt_kernels.interface.BlockTableOperations` documents the methods, under the same names, with
    the shapes and dtypes of their arguments.

    Each object has the staging methods and the five operations on batches as attributes of its own,
    which are the variant's methods, unless the class has other methods when the object is built. So
    a subclass may override them, and a plugin may replace them in the class before tables are
    built. Methods that are replaced in the class later do not reach tables that exist: replace the
    attributes of these.

    Attributes, with G groups:
        block_tables: per group, the source table as `.gpu`.
        fused_writer: never `None`, unless there are no groups; then there is nothing to apply.
        input_block_tables: per group, rows in batch order, `[max_num_reqs, width]` int32.
        slot_mappings: `[G, max_num_batched_tokens]` int64.
        num_blocks: `.np` on the host, `.gpu` on the device, both `[G, max_num_reqs]` int32.
        block_table_ptrs, input_block_table_ptrs: addresses, `[G]` uint64 on the device.
        block_table_strides: `[G]` int64 on the device.
        block_sizes_tensor, sliding_window_reach: `[G]` int32 on the device.
        slot_mapping_enabled, dcp_sharded: `[G]` bool on the device.

    Args:
        block_sizes: tokens per block, one entry per group. There may be no groups at all, as in an
            engine without a KV cache: every method then does nothing, and returns empty results.
        max_num_reqs: rows of every table.
        max_num_batched_tokens: slots per group.
        max_num_blocks_per_group: columns of a row, one entry per group.
        device: the device of the tables.
        cp_size: ranks that share the tokens of a sequence.
        cp_rank: this rank.
        cp_interleave: consecutive tokens that go to one rank.
        slot_mapping_enabled: per group; without it all slots of the group are PAD.
        dcp_sharded: per group, whether its tokens are shared among the ranks.
        sliding_window_reach: per group, tokens before a request's first computed one that are still
            read, or 0; without effect where `cp_size` is above 1.
        steps_in_flight: see `bt_kernels.device_tables.state.DeviceState`.
        validate: see `bt_kernels.interface.BlockTableOperations`.

    Raises:
        ValueError: see `TableLayout`.
    """

    def __init__(
        self,
        block_sizes: Sequence[int],
        max_num_reqs: int,
        max_num_batched_tokens: int,
        max_num_blocks_per_group: Sequence[int],
        device: torch.device | str,
        cp_size: int = 1,
        cp_rank: int = 0,
        cp_interleave: int = 1,
        slot_mapping_enabled: Sequence[bool] | None = None,
        dcp_sharded: Sequence[bool] | None = None,
        sliding_window_reach: Sequence[int] | None = None,
        *,
        steps_in_flight: int | None = None,
        validate: bool = False,
    ) -> None:
        self.layout = TableLayout(
            tuple(block_sizes),
            tuple(max_num_blocks_per_group),
            max_num_reqs,
            max_num_batched_tokens,
            ()
            if slot_mapping_enabled is None
            else _per_group(slot_mapping_enabled, len(block_sizes)),
            ()
            if sliding_window_reach is None
            else _per_group(sliding_window_reach, len(block_sizes)),
            cp_size,
            cp_rank,
            cp_interleave,
            () if dcp_sharded is None else _per_group(dcp_sharded, len(block_sizes)),
        )
        self._variant: one_launch.Variant | fused.Variant | NoGroups
        if self.layout.num_groups:
            self._variant = self._kind_of_variant(torch.device(device))(
                self.layout, device, steps_in_flight=steps_in_flight, validate=validate
            )
            self._variant.launch_path = self._variant.launch_paths[-1]
        else:
            self._variant = NoGroups(self.layout, device)
        for name, method in _PASSED_ON.items():
            if getattr(type(self), name) is method:
                # The method's frame would cost time in every call, and in a short one most of it.
                setattr(self, name, getattr(self._variant, name))
        self.block_sizes = list(block_sizes)
        self.max_num_reqs = max_num_reqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.device = self._variant.device
        self.cp_size, self.cp_rank, self.cp_interleave = cp_size, cp_rank, cp_interleave
        apply = self._variant.apply_staged_writes
        self.block_tables = [SourceTable(table, apply) for table in self._variant.block_tables]
        self.fused_writer = FusedWriter(apply) if self.layout.num_groups else None
        self.input_block_tables = self._variant.input_block_tables
        self.slot_mappings = self._variant.slot_mappings
        self.num_blocks = NumBlocks(
            _read_only(self._variant.num_blocks), self._variant.num_blocks_on_device
        )
        self.dcp_sharded = self._tensor(self.layout.dcp_sharded, torch.bool)
        self.init_block_table_layout_tensors()

    def _kind_of_variant(self, device: torch.device) -> type[one_launch.Variant | fused.Variant]:
        return _cheapest(device)

    # Not attributes of each object: beyond 29 of them Python finds all of them more slowly.

    @property
    def num_kv_cache_groups(self) -> int:
        """The number of groups."""
        return self.layout.num_groups

    @property
    def has_sliding_window_groups(self) -> bool:
        """Return whether any group has a reach of its sliding window."""
        return any(self.layout.reaches)

    @property
    def launch_path(self) -> str:
        """The path of kernel launches: `"jit"`, `"compiled"` or `"direct"`, with falling host time.

        The default is the last of them that works here.
        """
        return self._variant.launch_path

    @launch_path.setter
    def launch_path(self, path: str) -> None:
        self._variant.launch_path = path

    @property
    def pinned_memory(self) -> bool:
        """Return whether kernels read staged writes from pinned memory.

        If not, because the device does not see it, writes are copied to the device, which is slower
        and was warned of.
        """
        return self._variant.pinned_memory

    @property
    def num_dirty_rows(self) -> int:
        """Input rows that the last gather filled; set it after replaying a captured gather."""
        return self._variant.num_dirty_rows

    @num_dirty_rows.setter
    def num_dirty_rows(self, num_rows: int) -> None:
        self._variant.num_dirty_rows = num_rows

    @property
    def redirect_writes_to_null_block(self) -> bool:
        """While true, every block id that is staged becomes 0, but counts all the same."""
        return self._variant.redirect_writes_to_null_block

    @redirect_writes_to_null_block.setter
    def redirect_writes_to_null_block(self, redirect: bool) -> None:
        self._variant.redirect_writes_to_null_block = redirect

    def init_block_table_layout_tensors(self) -> None:
        """Update the addresses that kernels and callers use, after tables were replaced.

        Raises:
            ValueError: when a table has another shape, dtype or device than before, or a CUDA graph
                is captured. The previous tables then stay in use.
        """
        layout = self.layout
        # Copies, since callers replace tables in the attributes before these are checked.
        tables = [table.gpu for table in self.block_tables]
        inputs = list(self.input_block_tables)
        self._variant.replace_tables(tables, inputs, self.slot_mappings)
        self.block_table_ptrs = self._addresses(tables)
        self.input_block_table_ptrs = self._addresses(inputs)
        self.block_table_strides = self._tensor(layout.widths, torch.int64)
        self.block_sizes_tensor = self._tensor(layout.block_sizes, torch.int32)
        self.slot_mapping_enabled = self._tensor(layout.slot_mapping_enabled, torch.bool)
        self.sliding_window_reach = self._tensor(layout.reaches, torch.int32)

    def warmup(self) -> float:
        """Compile and load all kernels, before anything is served; return the seconds it took.

        See `bt_kernels.device_tables.DeviceBlockTables.warmup`.
        """
        return self._variant.warmup()

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        """Stage new block ids of one request row, one list per group."""
        self._variant.append_block_ids(req_index, new_block_ids, overwrite)

    def append_many(
        self,
        req_indices: Sequence[int],
        new_block_ids: Sequence[Sequence[Sequence[int]]],
        overwrite: Sequence[bool],
    ) -> None:
        """Stage new block ids of many request rows in one call: all of them, or none."""
        self._variant.append_many(req_indices, new_block_ids, overwrite)

    def apply_staged_writes(self) -> None:
        """Write the staged ids into the source tables."""
        self._variant.apply_staged_writes()

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Copy source rows into batch order; return `[num_reqs_padded, width]` per group."""
        return self._variant.gather_block_tables(
            idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
        )

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Turn positions into cache slots; return `[G, num_tokens_padded]`."""
        return self._variant.compute_slot_mappings(
            idx_mapping, query_start_loc, positions, num_tokens_padded, out
        )

    def gather_and_compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
        slots_out: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Gather and compute slots in one launch; return the results of both."""
        return self._variant.gather_and_compute_slot_mappings(
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs_padded,
            num_tokens_padded,
            out=out,
            out_ptrs=out_ptrs,
            num_computed_tokens=num_computed_tokens,
            slots_out=slots_out,
        )

    def prepare_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
        slots_out: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Apply staged writes, gather and compute slots; return the results of the last two."""
        return self._variant.prepare_step(
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs_padded,
            num_tokens_padded,
            out=out,
            out_ptrs=out_ptrs,
            num_computed_tokens=num_computed_tokens,
            slots_out=slots_out,
        )

    def get_dummy_block_tables(self, num_reqs: int) -> tuple[torch.Tensor, ...]:
        """Zero input rows, at the persistent addresses; return `[num_reqs, width]` per group."""
        return self._variant.get_dummy_block_tables(num_reqs)

    def get_dummy_slot_mappings(self, num_tokens: int) -> torch.Tensor:
        """Fill all of `slot_mappings` with PAD; return `[G, num_tokens]`."""
        return self._variant.get_dummy_slot_mappings(num_tokens)

    def capture_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> CapturedStep:
        """Capture a whole step in a CUDA graph; see `DeviceBlockTables.capture_step`."""
        return self._variant.capture_step(
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs_padded,
            num_tokens_padded,
            num_computed_tokens=num_computed_tokens,
        )

    def _tensor(self, values: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)

    def _addresses(self, tables: Sequence[torch.Tensor]) -> torch.Tensor:
        return self._tensor([table.data_ptr() for table in tables], torch.uint64)


_PASSED_ON: dict[str, Callable[..., object]] = {
    name: getattr(BlockTables, name)
    for name in (
        "append_block_ids",
        "append_many",
        "apply_staged_writes",
        "gather_block_tables",
        "compute_slot_mappings",
        "gather_and_compute_slot_mappings",
        "prepare_step",
    )
}
"""Methods that only call the variant's, as they are here."""


def _cheapest(device: torch.device) -> type[one_launch.Variant | fused.Variant]:
    """Return the variant whose steps take an engine the least time on a device.

    Without a launch in C, a step of `one_launch` goes through a pinned buffer and Triton's call,
    for which the host needs longer than for both launches of `fused` (docs/one-launch.md).
    """
    if device.type == "cuda" and native.why_not_direct() is not None:
        return fused.Variant
    return one_launch.Variant


def _per_group(values: Sequence[_Option], num_groups: int) -> tuple[_Option, ...]:
    """Check that there is one option per group; an empty sequence is not a default here."""
    if len(values) != num_groups:
        raise ValueError(
            f"{len(values)} options are given for {num_groups} groups; expected one per group"
        )
    return tuple(values)


def _read_only(values: _Counts) -> _Counts:
    """Return a read-only view, since changes on the host would not reach the device."""
    view = values.view()
    view.flags.writeable = False
    return view
