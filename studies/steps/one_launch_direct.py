"""One launch a step, by the driver; staging is still in Python, by a call per request."""

from bt_kernels.one_launch import OneLaunch
from bt_kernels.staging import StagedWrites


class Variant(OneLaunch):
    """`one_launch` with the compiled helper that launches, and not with the one that stages."""

    append_many = None
    carries = False

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._stage_in(StagedWrites(layout.widths, self.num_blocks))
