"""Steps whose batch and writes are in pinned memory, by a launch that never changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch

from bt_kernels import launches
from bt_kernels.one_launch.fixed import FixedLaunch
from bt_kernels.one_launch.steps import Options
from bt_kernels.one_launch.writes import StepWrites
from bt_kernels.staging import HostRing

if TYPE_CHECKING:
    from bt_kernels.one_launch.steps import Batch, Steps


class PinnedSteps:
    """Steps that can be launched without a compiled module, and with any number of writes.

    Args:
        tables: tables of the steps.
        captures: whether each step is a replay of a CUDA graph that is captured once for each
            buffer. If kernels are interpreted, the launch in the graph is made directly instead.
    """

    def __init__(self, tables: Steps, *, captures: bool) -> None:
        self._captures = captures and tables._on_gpu
        self._fixed = FixedLaunch(tables, tables.place.launcher)
        self._writes = StepWrites(tables.layout, self._fixed.body)
        # Steps without writes need a buffer, too, but the promised steps in flight do not include
        # them: with as many buffers as the promise requires, only these steps may have to wait.
        self._ring = HostRing(self._writes.room, tables.place, depth=tables._ring.depth, per_set=1)
        # By address of a buffer, and whether the step has options.
        self._replays: dict[tuple[int, bool], Callable[[], None]] = {}

    def run(self, tables: Steps, batch: Batch, options: Options) -> None:
        """Launch a whole step with the staged writes."""
        staged, writes, ring = tables._staged, self._writes, self._ring
        view = ring.advance(writes.size(staged))
        step = writes.pack(staged, view)
        options = options.on_device(tables.device)
        # The launch has only their addresses.
        self._addressed = (batch, options)
        longest = tables.longest_of(batch)
        self._fixed.write(view, tables, step, staged.num_records, batch, longest, options)
        has_options = bool(options)
        launch = partial(self._fixed.launch, tables, ring.current, has_options=has_options)
        if self._captures:
            self._replay(tables, (ring.current.data_ptr(), has_options), launch)
        else:
            launch()
        ring.note_reader()

    def _replay(self, tables: Steps, which: tuple[int, bool], launch: Callable[[], None]) -> None:
        replay = self._replays.get(which)
        if replay is not None:
            replay()
            return
        launch()
        self._replays[which] = _captured(tables, launch)


def _captured(tables: Steps, launch: Callable[[], None]) -> Callable[[], None]:
    """Capture a launch that was made before as a graph; return the launch if that fails."""
    try:
        # Not `torch.cuda.graph`, which waits for the device and collects garbage.
        with tables.place.current(), torch.cuda.stream(torch.cuda.Stream(tables.device)):  # type: ignore[no-untyped-call]
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                launch()
            finally:
                graph.capture_end()
    except RuntimeError:
        # This step was launched directly, and the next ones can be, too.
        return launch
    return launches.direct_replay(tables.place, graph)
