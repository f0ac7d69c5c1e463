"""State that all device variants share: tables, descriptors for kernels, host buffers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from bt_kernels import launches
from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_ROWS
from bt_kernels.device_tables import arguments
from bt_kernels.device_tables.captured import CapturedWrites
from bt_kernels.interface import COMPILED, DIRECT, JIT, BlockTableOperations, TableState
from bt_kernels.launches import LaunchFunction, Place, written
from bt_kernels.layout import PAD_SLOT_ID, TableLayout
from bt_kernels.staging import RECORD_FIELDS, AnyStagedWrites, HostRing, staged_writes

# Room in a host buffer for a record and a block id per row of each group.
RECORD_ROOM = RECORD_FIELDS + 1

_UNUSED_FIELDS = DESCRIPTOR_FIELDS.value - NUM_ROWS.value - 1

# Enough for the padded sizes of an engine's graphs; a view takes half a KiB of host memory.
_KEPT_VIEWS = 256


@dataclass
class _Launches:
    """Launch functions by launch path, and the path that is in use."""

    by_path: dict[str, LaunchFunction]
    chosen: str = JIT


class DeviceState(BlockTableOperations):
    """Block tables on a device (or on the CPU, under Triton's interpreter), without operations.

    Only one thread may use them at a time: a launch lets other threads run, and writes they stage
    meanwhile would be dropped together with the launched ones.

    `native` is set by subclasses: whether to use the compiled helpers if available (see
    `bt_kernels.native`). Without them host code is Python, and there is no direct launch.

    An object has few attributes, and its `__dict__` is never accessed: Python then finds methods
    and attributes faster (see `tests/kernels/device_tables/test_attributes.py`).

    Args:
        layout: sizes and options.
        device: the device of the tables.
        steps_in_flight: the caller's promise that the device never has more than this many calls of
            `apply_staged_writes` with something to write unfinished when the next one is made.
            There is then one more pinned buffer than that, and no call waits. Without it there are
            two sets of eight buffers, and a call that begins a set waits until the device has read
            all of it.
        validate: see `BlockTableOperations`.

    Raises:
        ValueError: when `steps_in_flight` is below 1, or the layout has no groups.
        RuntimeError: when there is no GPU and Triton does not interpret kernels either.
    """

    native: bool = True
    num_blocks: npt.NDArray[np.int32]
    _redirects = False

    def __init__(
        self,
        layout: TableLayout,
        device: torch.device | str,
        *,
        steps_in_flight: int | None = None,
        validate: bool = False,
    ) -> None:
        if steps_in_flight is not None and steps_in_flight < 1:
            raise ValueError(f"steps_in_flight is {steps_in_flight}; expected 1 or more")
        if not layout.num_groups:
            raise ValueError(
                "the layout has no groups; expected at least one: without any there is nothing to "
                "launch, which only bt_kernels.BlockTables takes"
            )
        launches.require_driver()
        self.layout = layout
        self.validate = validate
        self._has_window = any(layout.reaches)
        self.sharded = layout.cp_size > 1
        shapes = [(layout.max_num_reqs, width) for width in layout.widths]
        device = torch.device(device)
        self.block_tables = [_zeros(shape, torch.int32, device) for shape in shapes]
        self.input_block_tables = [_zeros(shape, torch.int32, device) for shape in shapes]
        # With its index, like the devices of the arguments.
        self.device = self.block_tables[0].device
        launcher = launches.find_launcher() if self.native and self._on_gpu else None
        pinned = launches.why_not_pinned(self.device) is None
        self.place = Place(self.device, launcher, pinned=pinned)
        self._launches = _Launches(self._make_launches())
        self.launch_path = JIT
        slots = (layout.num_groups, layout.max_num_batched_tokens)
        self.slot_mappings = torch.full(slots, PAD_SLOT_ID, dtype=torch.int64, device=self.device)
        self.num_blocks = np.zeros((layout.num_groups, layout.max_num_reqs), dtype=np.int32)
        self.num_blocks_on_device = _zeros(self.num_blocks.shape, torch.int32, self.device)
        self.num_dirty_rows = 0
        self._no_requests = _zeros((0,), torch.int64, self.device)
        self._stage_in(staged_writes(self.native)(layout.widths, self.num_blocks))
        self._ring = self._make_ring(self.num_blocks.size * RECORD_ROOM, steps_in_flight)
        self._captured_writes: CapturedWrites | None = None
        self.descriptors = self._describe_groups().to(self.device)
        self._make_views()

    def _stage_in(self, staged: AnyStagedWrites) -> None:
        """Stage writes in this object from now on."""
        self._staged = staged

    @property
    def _on_gpu(self) -> bool:
        """Return whether kernels run on a GPU."""
        return self.device.type == "cuda" and launches.COMPILES

    @property
    def pinned_memory(self) -> bool:
        """Return whether staged writes are read from pinned memory; else they are copied first."""
        return self.place.pinned

    @property
    def redirect_writes_to_null_block(self) -> bool:
        """See `BlockTableOperations`."""
        return self._redirects

    @redirect_writes_to_null_block.setter
    def redirect_writes_to_null_block(self, redirect: bool) -> None:
        self._redirects = redirect
        if hasattr(self._staged, "redirects"):  # in C
            self._staged.redirects = redirect

    @property
    def launch_paths(self) -> tuple[str, ...]:  # type: ignore[override]  # not to be set
        """Launch paths that work here; only Triton's call if kernels are interpreted."""
        return tuple(self._launches.by_path)

    @property
    def launch_path(self) -> str:
        """The path of launches from now on, one of `launch_paths`.

        Raises:
            ValueError: when it is set to anything else.
        """
        return self._launches.chosen

    @launch_path.setter
    def launch_path(self, path: str) -> None:
        if path not in self.launch_paths:
            expected = " or ".join(repr(known) for known in self.launch_paths)
            raise ValueError(f"launch_path is {path!r}; expected {expected} on {self.device}")
        self._launches.chosen = path
        # Stored as an attribute: launches then need not choose.
        self.launch = self._launches.by_path[path]

    def init_block_table_layout_tensors(self) -> None:
        """Update the kernels' addresses after `block_tables` or others were replaced.

        Also updates the number of blocks on the device. Steps that were captured fill the new
        tables from then on, but `CapturedStep` has views of the old ones.

        Raises:
            ValueError: when a table has another shape, dtype or device than before, or a CUDA graph
                is captured. Nothing has been changed then.
        """
        self.replace_tables(self.block_tables, self.input_block_tables, self.slot_mappings)

    def replace_tables(
        self,
        block_tables: list[torch.Tensor],
        input_block_tables: list[torch.Tensor],
        slot_mappings: torch.Tensor,
    ) -> None:
        """Replace the tables, as `init_block_table_layout_tensors` does with its own.

        Raises:
            ValueError: likewise.
        """
        if self.place.is_capturing():
            raise ValueError("tables were replaced while a CUDA graph is captured; do it before")
        self._check_tables(block_tables, input_block_tables, slot_mappings)
        self.block_tables = block_tables
        self.input_block_tables = input_block_tables
        self.slot_mappings = slot_mappings
        with written():
            self.descriptors.copy_(self._describe_groups())
        self._upload_num_blocks()
        self._make_views()

    def restore(self, state: TableState) -> None:
        tables = [*self.block_tables, *self.input_block_tables, _as_int32(self.slot_mappings)]
        saved = [*state.block_tables, *state.input_block_tables, _as_int32(state.slot_mappings)]
        if [table.shape for table in tables] != [table.shape for table in saved]:
            raise ValueError("the snapshot is of another layout; expected one of equal tables")
        if self._captured_writes is not None:
            self._captured_writes.discard()
        with written():
            # One kernel for all; a copy of each would take longer than the step measured next.
            torch._foreach_copy_(tables, saved)
        self.num_blocks[:] = state.num_blocks
        self.num_dirty_rows = state.num_dirty_rows
        self._staged.clear()
        self._upload_num_blocks()

    def _upload_num_blocks(self) -> None:
        """Copy the number of blocks as of the last apply to the device."""
        applied = self.num_blocks.copy()
        unsettled = [(group, row) for group, row, _, _ in self._staged.intervals()]
        if self._captured_writes is not None:
            unsettled += self._captured_writes.published_rows()
        if unsettled:
            # The host no longer has the block counts that staged writes will overwrite, and only
            # the device knows whether a replay has applied the published ones.
            before = self.num_blocks_on_device.cpu().numpy()
            for place in unsettled:
                applied[place] = before[place]
        with written():
            self.num_blocks_on_device.copy_(torch.from_numpy(applied))

    def _check_tables(
        self,
        block_tables: list[torch.Tensor],
        input_block_tables: list[torch.Tensor],
        slot_mappings: torch.Tensor,
    ) -> None:
        layout = self.layout
        for name, tables in (
            ("block_tables", block_tables),
            ("input_block_tables", input_block_tables),
        ):
            if len(tables) != layout.num_groups:
                raise ValueError(
                    f"{name} has {len(tables)} tensors; expected {layout.num_groups}, one per group"
                )
            for group, (table, width) in enumerate(zip(tables, layout.widths, strict=True)):
                arguments.check_table(
                    f"{name}[{group}]",
                    table,
                    (layout.max_num_reqs, width),
                    torch.int32,
                    self.device,
                )
        shape = (layout.num_groups, layout.max_num_batched_tokens)
        arguments.check_table("slot_mappings", slot_mappings, shape, torch.int64, self.device)

    def _make_views(self) -> None:
        """Cache the views that calls return, since the same few sizes recur all the time.

        The caches must not refer to `self`, or the tables would outlive their last user. The
        address ranges of the tables are cached, too.
        """
        self._taken = arguments.ranges_of(*self.block_tables, *self.input_block_tables)
        # Not the list itself: a caller may replace tables in it without announcing them.
        tables, slots = tuple(self.input_block_tables), self.slot_mappings
        self._views_of_tables = lru_cache(_KEPT_VIEWS)(
            lambda num_rows: tuple([table[:num_rows] for table in tables])
        )
        self._views_of_slots = lru_cache(_KEPT_VIEWS)(lambda num_tokens: slots[:, :num_tokens])

    def _make_launches(self) -> dict[str, LaunchFunction]:
        """Return launch functions by launch path."""
        ways: dict[str, LaunchFunction] = {JIT: launches.jit_launches(self.place)}
        if self._on_gpu:
            ways[COMPILED] = launches.CompiledLaunches(self.place)
        if self.place.launcher is not None:
            ways[DIRECT] = launches.DirectLaunches(self.place)
        return ways

    def _make_ring(self, size: int, steps_in_flight: int | None) -> HostRing:
        """Return host buffers of so many elements; a burst of longer writes grows them."""
        return HostRing(size, self.place, in_flight=steps_in_flight)

    def _describe_groups(self) -> torch.Tensor:
        """Return the rows of `descriptors`, in the field order of `bt_kernels.device_code`."""
        layout = self.layout
        rows = [
            [
                self.block_tables[group].data_ptr(),
                self.input_block_tables[group].data_ptr(),
                layout.widths[group],
                layout.block_sizes[group],
                layout.widths[group] * layout.tokens_per_block[group] * enabled,
                self.num_blocks_on_device[group].data_ptr(),
                self.slot_mappings[group].data_ptr(),
                layout.max_num_batched_tokens,
                layout.reaches[group],
                layout.cp_sizes[group],
                layout.cp_rank if layout.dcp_sharded[group] else 0,
                layout.cp_interleave if layout.dcp_sharded[group] else 1,
                _shift_of(layout.block_sizes[group]),
                layout.max_num_reqs,
                *[0] * _UNUSED_FIELDS,
            ]
            for group, enabled in enumerate(layout.slot_mapping_enabled)
        ]
        return torch.tensor(rows, dtype=torch.int64)


def _shift_of(block_size: int) -> int:
    """Return the binary logarithm of a block size; -1 if it is not a power of two."""
    return block_size.bit_length() - 1 if block_size & (block_size - 1) == 0 else -1


def _as_int32(slots: torch.Tensor) -> torch.Tensor:
    return slots.view(torch.int32)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)
