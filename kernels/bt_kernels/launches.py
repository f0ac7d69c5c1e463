"""One function per kernel: grid and arguments of its launch; and the two ways to launch.

Every launch goes through `tables.launch`, which `tables.launch_path` chooses: `launch_jit`, or a
`CompiledLaunches`. Both take the same arguments, those of `launch_jit`.

Block shapes are those of vLLM's kernels (1024 elements) for gather, slots and padding. A staged
write is mostly a few block ids, and a chunk of 2048 tokens 128 of them: 128 elements for those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton

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
from bt_kernels.layout import PAD_SLOT_ID

if TYPE_CHECKING:
    import torch

    from bt_kernels.device_tables import DeviceBlockTables

WRITE_BLOCK = 128
ROW_BLOCK = 1024
_WRITE_CONSTANTS = (WRITE_BLOCK,)
_ROW_CONSTANTS = (ROW_BLOCK,)
_SLOT_CONSTANTS = (PAD_SLOT_ID, ROW_BLOCK)

# Enough to keep the GPU busy with a burst of prefills, and few where there is nothing to write.
CAPTURED_PROGRAMS = 256

# What Triton takes for the alignment of a pointer when it compiles, in bytes.
_ALIGNMENT = 16

COMPILES: bool = isinstance(apply_writes_kernel, triton.JITFunction)
"""Whether kernels are compiled in this process, rather than interpreted."""


def launch_jit(
    kernel: Any,
    grid: tuple[int, int, int],
    arguments: tuple[Any, ...],
    constants: tuple[Any, ...],
    _inputs: tuple[torch.Tensor | None, ...],
) -> None:
    """Launches through Triton's call, which finds the binary by all arguments.

    Args:
        kernel: a function under `triton.jit`.
        grid: programs in each dimension.
        arguments: values of the parameters that are not constants, in their order.
        constants: values of the `tl.constexpr` parameters, which come last.
        _inputs: those of `arguments` that a caller passed in and whose dtype, alignment or absence
            (`None`) selects a binary; `CompiledLaunches` needs them.
    """
    kernel[grid](*arguments, *constants)


class CompiledLaunches:
    """Launches through handles of compiled kernels, kept by what selects a binary.

    The first launch of each binary is Triton's call, which returns the handle. Later ones find it
    by the kernel, the constants, and dtype and alignment of the inputs. Whatever else selects a
    binary must be the same in all launches of a kernel: dtype and alignment of the tables' own
    tensors, and integers, unless the kernel has them in `do_not_specialize`.
    """

    def __init__(self) -> None:
        self._handles: dict[tuple[Any, ...], Any] = {}

    def __call__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        arguments: tuple[Any, ...],
        constants: tuple[Any, ...],
        inputs: tuple[torch.Tensor | None, ...],
    ) -> None:
        """Launches once; arguments as in `launch_jit`."""
        # By identity, since the hash of a kernel takes a lock; its handle keeps it alive.
        key: tuple[Any, ...] = (id(kernel), constants)
        for tensor in inputs:
            if tensor is None:
                key = (key, None)
            else:
                key = (key, tensor.dtype, tensor.data_ptr() % _ALIGNMENT == 0)
        handle = self._handles.get(key)
        if handle is None:
            self._handles[key] = kernel[grid](*arguments, *constants)
        else:
            handle[grid](*arguments, *constants)


def apply_writes(
    tables: DeviceBlockTables, staging: torch.Tensor, first_record: int, num_records: int
) -> None:
    """Writes `num_records` records of `staging` into the source tables."""
    tables.launch(
        apply_writes_kernel,
        (num_records, 1, 1),
        (tables.descriptors, staging, first_record),
        _WRITE_CONSTANTS,
        (),
    )


def apply_captured(tables: DeviceBlockTables, staging: torch.Tensor) -> None:
    """Writes as many records as `staging` says when the launch is replayed."""
    tables.launch(
        apply_captured_kernel,
        (CAPTURED_PROGRAMS, 1, 1),
        (tables.descriptors, staging),
        _WRITE_CONSTANTS,
        (),
    )


def gather(
    tables: DeviceBlockTables,
    idx_mapping: torch.Tensor,
    num_rows: int,
    num_computed_tokens: torch.Tensor | None = None,
    out_ptrs: torch.Tensor | None = None,
) -> None:
    """Gathers the batch's rows and zeroes further ones up to `num_rows`."""
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
    tables: DeviceBlockTables,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    out: torch.Tensor | None = None,
) -> None:
    """Computes the slots of the batch's tokens and pads the rest of the buffer."""
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
    tables: DeviceBlockTables,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    num_rows: int,
    num_computed_tokens: torch.Tensor | None = None,
    out_ptrs: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> None:
    """Does what `gather` and `slots` do, in one launch."""
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
    """The arguments for a caller's buffer of slots: itself, its stride, and the length of a row."""
    return (None, None, None) if out is None else (out, out.stride(0), out.shape[1])
