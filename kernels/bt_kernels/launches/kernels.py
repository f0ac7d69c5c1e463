"""One function per kernel: grid and arguments of its launch.

All launches except the ones of `one_launch.CarryingLaunch` go through `tables.launch`, which is
`launch_jit`, a `CompiledLaunches` or a `DirectLaunches`, as set by `tables.launch_path`.

Gather, slots and padding have the block shapes of vLLM's kernels (1024 elements). Staged writes
have 128 elements: most are a few block ids, and a chunk of 2048 tokens has 128.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from bt_kernels.device_code import (
    apply_captured_kernel,
    apply_writes_kernel,
    gather_kernel,
    gather_options_kernel,
    gather_slots_kernel,
    gather_slots_options_kernel,
    slots_kernel,
    slots_options_kernel,
)
from bt_kernels.launches.paths import NUM_WARPS, launch_jit
from bt_kernels.layout import PAD_SLOT_ID

if TYPE_CHECKING:
    import torch

    from bt_kernels.launches.paths import Grid, LaunchFunction
    from bt_kernels.launches.place import Place
    from bt_kernels.layout import TableLayout

WRITE_BLOCK = 128
ROW_BLOCK = 1024
_WRITE_CONSTANTS = (WRITE_BLOCK,)
_ROW_CONSTANTS = (ROW_BLOCK,)
_SLOT_CONSTANTS = (PAD_SLOT_ID, ROW_BLOCK)

# Enough to keep the GPU busy with a burst of prefills, and few where there is nothing to write.
CAPTURED_PROGRAMS = 256


class Tables(Protocol):
    """The members of block tables that a launch needs: `DeviceBlockTables` of `device_tables`."""

    layout: TableLayout
    descriptors: torch.Tensor
    sharded: bool

    @property
    def launch(self) -> LaunchFunction:
        """The launch path in use."""
        ...


def jit_launches(place: Place) -> LaunchFunction:
    """Return `launch_jit` for the device of a place, whatever device is current."""
    if place.index is None:

        def launch_counted(*launched: Any) -> Any:
            place.python_launches += 1
            return launch_jit(*launched)

        return launch_counted
    is_current = place.is_current

    def launch(
        kernel: Any,
        grid: Grid,
        arguments: tuple[Any, ...],
        constants: tuple[Any, ...],
        inputs: tuple[torch.Tensor | None, ...],
        num_warps: int = NUM_WARPS,
    ) -> Any:
        place.python_launches += 1
        # Not by `place.run`: two more calls in every launch would cost time in every step.
        if is_current():
            return kernel[grid](*arguments, *constants, num_warps=num_warps)
        return place.run(launch_jit, kernel, grid, arguments, constants, inputs, num_warps)

    return launch


def apply_writes(
    tables: Tables, staging: torch.Tensor, first_record: int, num_records: int
) -> None:
    """Write `num_records` records of `staging` into the source tables."""
    tables.launch(
        apply_writes_kernel,
        (num_records, 1, 1),
        (tables.descriptors, staging, first_record),
        _WRITE_CONSTANTS,
        (),
    )


def apply_captured(tables: Tables, staging: torch.Tensor) -> None:
    """Write the records that `staging` holds when the launch is replayed."""
    tables.launch(
        apply_captured_kernel,
        (CAPTURED_PROGRAMS, 1, 1),
        (tables.descriptors, staging),
        _WRITE_CONSTANTS,
        (),
    )


def gather(
    tables: Tables,
    idx_mapping: torch.Tensor,
    num_rows: int,
    num_computed_tokens: torch.Tensor | None = None,
    out_ptrs: torch.Tensor | None = None,
) -> None:
    """Gather the batch's rows and zero further ones up to `num_rows`."""
    grid = (tables.layout.num_groups, num_rows, 1)
    plain = (tables.descriptors, idx_mapping, idx_mapping.shape[0])
    if num_computed_tokens is None and out_ptrs is None:
        tables.launch(gather_kernel, grid, plain, _ROW_CONSTANTS, (idx_mapping,))
        return
    tables.launch(
        gather_options_kernel,
        grid,
        (*plain, num_computed_tokens, out_ptrs),
        _ROW_CONSTANTS,
        (idx_mapping, num_computed_tokens, out_ptrs),
    )


def slots(
    tables: Tables,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    out: torch.Tensor | None = None,
) -> None:
    """Compute the slots of the batch's tokens and pad the rest of the buffer."""
    num_reqs = idx_mapping.shape[0]
    grid = (tables.layout.num_groups, num_reqs + 1, 1)
    plain = (tables.descriptors, idx_mapping, query_start_loc, positions, num_reqs)
    if out is None and not tables.sharded:
        tables.launch(slots_kernel, grid, plain, _SLOT_CONSTANTS, (idx_mapping,))
        return
    tables.launch(
        slots_options_kernel,
        grid,
        (*plain, *_slots_out(out)),
        (tables.sharded, *_SLOT_CONSTANTS),
        (idx_mapping, out),
    )


def gather_slots(
    tables: Tables,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    num_rows: int,
    num_computed_tokens: torch.Tensor | None = None,
    out_ptrs: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> None:
    """Do the work of `gather` and `slots` in one launch."""
    num_reqs = idx_mapping.shape[0]
    grid = (tables.layout.num_groups, num_rows + num_reqs + 1, 1)
    plain = (tables.descriptors, idx_mapping, query_start_loc, positions, num_reqs, num_rows)
    if num_computed_tokens is None and out_ptrs is None and out is None and not tables.sharded:
        tables.launch(gather_slots_kernel, grid, plain, _SLOT_CONSTANTS, (idx_mapping,))
        return
    tables.launch(
        gather_slots_options_kernel,
        grid,
        (*plain, num_computed_tokens, out_ptrs, *_slots_out(out)),
        (tables.sharded, *_SLOT_CONSTANTS),
        (idx_mapping, num_computed_tokens, out_ptrs, out),
    )


def _slots_out(out: torch.Tensor | None) -> tuple[torch.Tensor | None, int | None, int | None]:
    """Return the arguments for a caller's buffer of slots: buffer, stride, and length of a row."""
    return (None, None, None) if out is None else (out, out.stride(0), out.shape[1])
