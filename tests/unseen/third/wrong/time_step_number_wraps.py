"""The number of a step starts again after 64.

A mark that a row got 64 written steps ago is then taken for one of this step.
"""

from __future__ import annotations

from bt_kernels.variants.one_launch_graph import Variant as OneLaunchGraph


class Variant(OneLaunchGraph):
    """Keeps the number in six bits."""

    def _launch_step(self, *arguments):
        if self._pinned._writes.step == 64:
            self._pinned._writes.step = 0
        super()._launch_step(*arguments)
