"""The writes of a step: parameters of the launch, or marks and records in pinned memory."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import triton

from bt_kernels import launches
from bt_kernels.device_code import (
    one_launch_carrying_kernel,
)
from bt_kernels.launches import Place
from bt_kernels.layout import INT32_MAX, TableLayout
from bt_kernels.one_launch.shapes import MARK_FIELDS, SHAPES, STEP_RECORD_FIELDS
from bt_kernels.staging import NO_WRITE, RECORD_FIELDS, StagedWrites

if TYPE_CHECKING:
    from bt_kernels.one_launch.shapes import Shape


class StepWrites:
    """Marks, records and block ids of one step after another, in buffers that kernels read.

    Args:
        layout: of the tables.
        first: elements of a buffer before the marks.
    """

    def __init__(self, layout: TableLayout, first: int = 0) -> None:
        num_marks = layout.num_groups * layout.max_num_reqs
        self._first = first
        self.records = num_marks * MARK_FIELDS  # where records begin, relative to the first mark
        # Where records begin for the kernel that only applies writes, counted in its records.
        self.first_record = -(-(first + self.records) // RECORD_FIELDS)
        # A burst of writes grows a buffer.
        self.room = first + self.records + max(2 * num_marks, STEP_RECORD_FIELDS * 64)
        self.step = 0

    def size(self, staged: StagedWrites) -> int:
        """Elements of a buffer that a step needs."""
        ids = self._first + self.records + STEP_RECORD_FIELDS * staged.num_records
        return ids + staged.num_ids

    def pack(self, staged: StagedWrites, view: memoryview) -> int:
        """Fills a buffer; returns the number of the step, and 0 where nothing is staged."""
        if not staged.num_records:
            return 0
        self.step += 1
        if self.step == INT32_MAX:
            raise OverflowError("2,147,483,647 steps were prepared; make new tables")
        first = self._first
        staged.pack_step(view[first:] if first else view, self.records, self.step)
        return self.step


class CarryingLaunch:
    """Launches of steps whose writes are parameters: few intervals for each group, and their ids.

    The driver copies parameters during the call, so nothing has to be kept for the device. Triton's
    own call gets slower with the number of parameters, and recompiles for some values. So these
    launches use the driver directly, whatever the launch path.

    Args:
        layout: of the tables.
        place: where the tables live, with the compiled module unless kernels are interpreted.
        slots: intervals that a launch carries for a group.
        id_words: words of two ids that a launch carries where intervals have several.
    """

    def __init__(self, layout: TableLayout, place: Place, slots: int, id_words: int) -> None:
        self.slots = slots
        self.num_words = layout.num_groups * slots
        self._id_words = id_words
        self._constants = (layout.num_groups, slots)
        self._place = place
        self.quick: Any = None  # is given every kernel that is loaded
        self.words = memoryview(array("q", [NO_WRITE] * (self.num_words + id_words)))
        self._kept: dict[tuple[Any, ...], Callable[..., None] | None] = {}
        if place.launcher is not None:
            self._current_stream = triton.runtime.driver.active.get_current_stream

    def launch(
        self,
        grid: tuple[int, int, int],
        arguments: tuple[Any, ...],
        shape: Shape,
        index_dtype: torch.dtype,
        *,
        has_ids: bool,
    ) -> bool:
        """Launches the step whose writes are in `words`; `False` where the driver cannot."""
        words = self.words if has_ids else self.words[: self.num_words]
        if self._place.launcher is None:
            given = tuple(words[: self.num_words]), tuple(words[self.num_words :]) or None
            constants = self._constants_of(shape, has_ids=has_ids)
            one_launch_carrying_kernel[grid](*arguments, *given, *constants)
            return True
        key = (shape, index_dtype, has_ids)
        if key not in self._kept:
            launch = self._kept[key] = self._load(arguments, shape, has_ids=has_ids)
            if launch is not None and self.quick is not None:
                is_wide = index_dtype is torch.int64
                self.quick.add(SHAPES.index(shape), is_wide, has_ids, launch)
        launch = self._kept[key]
        if launch is None:
            return False
        launch(self._current_stream(self._place.index), grid, arguments, words)
        return True

    def _constants_of(self, shape: Shape, *, has_ids: bool) -> tuple[Any, ...]:
        # The interpreter cannot index parameters.
        ids = self._id_words if has_ids else 0
        return *self._constants, ids, launches.COMPILES, *shape.constants

    def _load(
        self, arguments: tuple[Any, ...], shape: Shape, *, has_ids: bool
    ) -> Callable[..., None] | None:
        # Odd, or Triton would assume multiples of 16. An empty grid launches nothing.
        words = (NO_WRITE + 1,) * self.num_words
        ids = (NO_WRITE + 1,) * self._id_words if has_ids else None
        try:
            constants = self._constants_of(shape, has_ids=has_ids)
            launched = (0, 1, 1), (*arguments, words, ids), constants, (), shape.num_warps
            handle = self._place.run(launches.launch_jit, one_launch_carrying_kernel, *launched)
            num_words = len(words) + len(ids or ())
            launch = launches.direct_launch(self._place, handle, len(arguments) + num_words)
        except Exception as error:
            # The kernel relies on how Triton names and packs parameters now. Steps work without it.
            warnings.warn(f"launches cannot carry writes as parameters: {error}", stacklevel=2)
            return None
        # The kernel finds a word by its distance from the first.
        if launch is None or launch.side_by_side < num_words:
            return None
        return launch
