"""Whole steps in one call of C, from the check of their arguments to the launch."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import torch

from bt_kernels.one_launch.shapes import (
    BLOCK,
    DLPACK_CUDA,
    MAX_CHUNKS,
    MAX_PADS,
    MAX_SPANS,
    MAX_WIDE_PROGRAMS,
    MOST_CARRIED,
    OWN_COLUMNS,
    SHAPES,
    SPAN,
    WIDE_COLUMNS,
    WORDS_WRITTEN,
    many_rows,
)

if TYPE_CHECKING:
    from bt_kernels.native import Launcher
    from bt_kernels.native.launcher import Device, Step
    from bt_kernels.one_launch.carrying import CarryingLaunch
    from bt_kernels.one_launch.steps import Steps


def native_step(tables: Steps, carrying: CarryingLaunch) -> Step | None:
    """Return the `launcher.Step` of tables as they are now; `None` if not possible.

    It does the same as the Python code, and leaves refused arguments to it.
    """
    # Older versions of torch do not expose tensors to C; writes may be staged in Python.
    if (
        tables.place.launcher is None
        or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
        or not hasattr(tables._staged, "packing")
    ):
        return None
    return make_step(tables, carrying, tables.place.launcher, DLPACK_CUDA, tables.place.native)


def make_step(
    tables: Steps,
    carrying: CarryingLaunch,
    launcher: Launcher,
    device_type: int,
    device: Device | None,
    words: memoryview | None = None,
    begin: int = 0,
) -> Step | None:
    """Return a step like `native_step`, for tensors of any device type: tests use the CPU.

    Args:
        tables: the tables of the steps.
        carrying: their launches.
        launcher: the module in C.
        device_type: of DLPack.
        device: the device in C; `None` for the CPU.
        words: the words of launches, if these are others than `carrying` has.
        begin: words before the ones that `carrying` has.
    """
    layout = tables.layout
    try:
        return launcher.Step(
            tensor_type=torch.Tensor,
            staged=tables._staged,
            ring=tables._ring,
            words=carrying.words if words is None else words,
            device_type=device_type,
            index=tables.device.index or 0,
            device=device,
            widths=array("q", layout.widths),
            taken=array("Q", [edge for range_ in tables._taken for edge in range_]),
            constants=array(
                "q",
                [
                    tables.descriptors.data_ptr(),
                    begin + carrying.first,
                    *carrying.payloads,
                    layout.max_num_reqs,
                    layout.max_num_batched_tokens,
                    tables.widest,
                    tables._has_window,
                    tables.sharded,
                    tables.rows_are_aligned,
                    *[shape.requests for shape in SHAPES],
                    *[shape.tokens for shape in SHAPES],
                    many_rows(),
                    SPAN,
                    MAX_SPANS,
                    OWN_COLUMNS,
                    WIDE_COLUMNS,
                    MAX_CHUNKS,
                    MAX_WIDE_PROGRAMS,
                    WORDS_WRITTEN,
                    BLOCK,
                    MAX_PADS,
                    MOST_CARRIED,
                    begin,
                ],
            ),
        )
    except BufferError:  # another version of DLPack
        return None
