"""`one_launch_graph`: every step is a replay of one captured launch."""

from __future__ import annotations

from bt_kernels.one_launch.tables import OneLaunch


class OneLaunchGraph(OneLaunch):
    """A whole step by the replay of a CUDA graph that was captured once for each host buffer.

    If kernels are interpreted, the launch in the graph is made directly instead.
    """

    carries = False
    captures = True

    @property
    def launch_paths(self) -> tuple[str, ...]:  # type: ignore[override]  # not to be set
        """Only Triton's call: a step is always a replay, whatever path other launches take."""
        return super().launch_paths[:1]
