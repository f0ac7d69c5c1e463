"""`one_launch_graph`: every step is a replay of one captured launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from bt_kernels import launches
from bt_kernels.one_launch.fixed import FixedLaunch, Options
from bt_kernels.one_launch.tables import OneLaunch
from bt_kernels.one_launch.writes import StepWrites
from bt_kernels.staging import HostRing


class OneLaunchGraph(OneLaunch):
    """A whole step by the replay of a CUDA graph that was captured once for each host buffer.

    If kernels are interpreted, the launch in the graph is made directly instead.
    """

    @property
    def launch_paths(self) -> tuple[str, ...]:
        """Only Triton's call: a step is always a replay, whatever path other launches take."""
        return super().launch_paths[:1]

    def _make_ring(self, _size: int, _steps_in_flight: int | None) -> HostRing:
        self._fixed = FixedLaunch(self, self._launcher)
        self._writes = StepWrites(self.layout, self._fixed.body)
        # By address of a buffer, and whether the step has options.
        self._replays: dict[tuple[int, bool], Callable[[], None]] = {}
        # Steps without writes need a buffer too, but the promise does not include them.
        return super(OneLaunch, self)._make_ring(self._writes.room, None)

    def _slots_to_carry(self) -> int:
        return 0

    def _launch_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs: int,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
        out: torch.Tensor | None,
    ) -> None:
        staged, writes = self._staged, self._writes
        view = self._ring.advance(writes.size(staged))
        step = writes.pack(staged, view)
        batch = (idx_mapping, query_start_loc, positions)
        options = Options(num_computed_tokens, out_ptrs, out)
        # The launch has their addresses alone.
        self._addressed = (batch, options)
        longest = max(self._staged.longest, self._widest if num_rows > num_reqs else 0)
        self._fixed.write(view, self, step, staged.num_records, batch, num_rows, longest, options)
        staging = self._ring.current
        which = (staging.data_ptr(), bool(options))
        replay = self._replays.get(which)
        if replay is None:
            replay = partial(self._fixed.launch, self, staging, bool(options))
            replay()
            if self._on_gpu:
                self._replays[which] = self._capture(replay)
        else:
            replay()
        self._ring.note_reader()

    def _capture(self, launch: Callable[[], None]) -> Callable[[], None]:
        """Captures a launch that was made before as a graph; returns the launch if that fails."""
        try:
            # Not `torch.cuda.graph`, which waits for the device and collects garbage.
            with self.place.current(), torch.cuda.stream(torch.cuda.Stream(self.device)):
                graph = torch.cuda.CUDAGraph()
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    launch()
                finally:
                    graph.capture_end()
        except RuntimeError:
            # This step was launched directly, and the next ones can be, too.
            return launch
        return launches.direct_replay(self.place, graph)
