"""Steps in C on the CPU: all is as on a GPU, but the interpreter runs the kernel of a launch."""

from __future__ import annotations

import ctypes

import torch

from bt_kernels import native, one_launch
from bt_kernels.device_code import one_launch_carrying_kernel
from bt_kernels.one_launch.carrying import IN_HOST_MEMORY
from bt_kernels.one_launch.native_step import make_step

CPU_IN_DLPACK = 1
POINTERS = (torch.int64, torch.int32, torch.int32, torch.int64)  # descriptors, and the batch


def is_possible():
    """Return whether steps can be made in C here."""
    return native.load("launcher") is not None and hasattr(
        torch.Tensor, "__dlpack_c_exchange_api__"
    )


def interpreted_step(tables, carrying):
    """Return a `launcher.Step` for tables on the CPU; it takes the place of `native_step`."""
    if not is_possible() or not hasattr(tables._staged, "packing"):
        return None
    step = make_step(tables, carrying, native.load("launcher"), CPU_IN_DLPACK, None)
    for number, shape in enumerate(one_launch.SHAPES):
        for kind in (*one_launch.KINDS, *PARTS):
            for has_options in (False, True):
                for is_aligned in (False, True):
                    binary = one_launch.carrying.Binary(shape, kind, has_options, is_aligned)
                    launch = _launch_of(carrying, binary)
                    step.add(number, kind, has_options, is_aligned, launch)
    return step


def batches_in_c(base):
    """Return a class of inputs whose batches are prepared in C, beside tables whose steps are.

    Attributes:
        by_python: batches that C has left to Python.
    """

    class InC(base):
        by_python = 0

        def __init__(self, *args):
            super().__init__(*args)
            self._call_in_c(native.load("launcher"), CPU_IN_DLPACK, None)
            self._beside = self.tables._quick
            carried = self._carried
            for binary in carried.binaries(aligned=self.tables.rows_are_aligned):
                carried._add(binary, _launch_of_batches(self.tables, carried, binary))

        def _take(self, *args):
            self.by_python += 1
            return super()._take(*args)

    return InC


def _launch_of_batches(tables, carried, binary):
    def launch(num_programs, leading):
        memory = tables._ring.current if binary.kind in IN_HOST_MEMORY else None
        carried._launch(binary, (num_programs, 1, 1), leading[4:-1], memory)

    return launch


PARTS = (one_launch.GATHER, one_launch.SLOTS, one_launch.GATHER_SLOTS)


def _launch_of(carrying, binary):
    def launch(num_programs, leading):
        carrying._place.python_launches += 1
        pointers = [_at(*pair) for pair in zip(leading, POINTERS, strict=False)]
        first, past_last = carrying._words_of(binary.kind)
        words = carrying._in_memory[first:past_last]
        one_launch_carrying_kernel[num_programs, 1, 1](
            *(*pointers, *leading[len(POINTERS) : -1], _at(leading[-1], torch.int64), words),
            *carrying._constants_of(binary),
        )

    return launch


def _at(address, dtype):
    """Return a tensor that begins at an address; kernels get no more of it."""
    if not address:
        return torch.zeros(1, dtype=dtype)
    return torch.frombuffer((ctypes.c_char * 8).from_address(address), dtype=dtype)


def plant(variant, name, operation):
    """Put an operation in the place of a variant's, which C would make without a look at it."""
    variant._quick = None
    setattr(variant, name, operation)
