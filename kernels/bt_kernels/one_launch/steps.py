"""A step as its launches see it: batch, options, and the members of the tables they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch

from bt_kernels.device_code import DESCRIPTOR_FIELDS, TARGET
from bt_kernels.launches import Tables

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from bt_kernels.device_tables.arguments import Range
    from bt_kernels.launches import Place
    from bt_kernels.one_launch.shapes import Cut
    from bt_kernels.staging import AnyStagedWrites, HostRing


class Steps(Tables, Protocol):
    """Block tables whose steps are launched: `OneLaunch` of `tables.py`."""

    place: Place
    device: torch.device
    num_blocks: npt.NDArray[np.int32]
    slot_mappings: torch.Tensor
    rows_are_aligned: bool
    _staged: AnyStagedWrites
    _ring: HostRing
    _taken: list[Range]
    _has_window: bool

    @property
    def widest(self) -> int:
        """See `DeviceBlockTables`."""
        ...

    @property
    def _on_gpu(self) -> bool: ...

    def cut_of(self, batch: Batch) -> Cut:
        """See `OneLaunch`."""
        ...

    def longest_of(self, batch: Batch) -> int:
        """See `OneLaunch`."""
        ...

    def refuse_capture(self, method: str) -> None:
        """See `DeviceBlockTables`."""
        ...


@dataclass(frozen=True)
class Batch:
    """The batch of a step, `num_reqs` requests, and the rows to gather or zero.

    A launch may do a part of the step: gather alone, map tokens alone, or neither, which leaves the
    staged writes. Tensors that a part does not need are never read.
    """

    idx_mapping: torch.Tensor
    query_start_loc: torch.Tensor
    positions: torch.Tensor
    num_reqs: int
    num_rows: int
    gathers: bool = True
    maps: bool = True


@dataclass(frozen=True)
class Options:
    """The options of a step.

    Args:
        num_computed_tokens: `None` where there is no sliding window.
        tables: tables of the caller, one for each group; `None` for the input tables.
        table_ptrs: their addresses on the device; `None` if the caller has none there.
        slots: slots of the caller; `None` for `slot_mappings`.
    """

    num_computed_tokens: torch.Tensor | None = None
    tables: Sequence[torch.Tensor] | None = None
    table_ptrs: torch.Tensor | None = None
    slots: torch.Tensor | None = None

    def __bool__(self) -> bool:
        return not (self.num_computed_tokens is None and self.tables is None and self.slots is None)

    def addresses(self) -> tuple[int, int, int]:
        """Return the addresses of computed tokens and slots, 0 if absent, and the slots' stride."""
        computed = self.num_computed_tokens
        of_tokens = 0 if computed is None else computed.data_ptr()
        if self.slots is None:
            return of_tokens, 0, 0
        return of_tokens, self.slots.data_ptr(), self.slots.stride(0)

    def on_device(self, device: torch.device) -> Options:
        """Return options with the addresses of tables on the device, which may take a copy."""
        if self.tables is None or self.table_ptrs is not None:
            return self
        pointers = torch.tensor([table.data_ptr() for table in self.tables], device=device)
        return replace(self, table_ptrs=pointers)

    def words(self, tables: Steps) -> tuple[int, ...]:
        """Return the int64 words that a program reads."""
        if self.table_ptrs is None:
            descriptors = tables.descriptors
            address = descriptors.data_ptr() + TARGET.value * descriptors.itemsize
            apart = DESCRIPTOR_FIELDS.value
        else:
            address, apart = self.table_ptrs.data_ptr(), 1
        # Addresses that are 0, or in descriptors, mean the tables as they are when the step runs.
        of_tokens, of_slots, stride = self.addresses()
        slots = tables.slot_mappings if self.slots is None else self.slots
        return of_tokens, address, of_slots, apart, stride, slots.shape[1], 0, 0
