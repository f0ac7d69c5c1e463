"""One launch a step, by the driver; one call stages all requests, in C; writes in pinned memory."""

from bt_kernels.one_launch import OneLaunch


class Variant(OneLaunch):
    """`one_launch` whose launches never have writes as parameters."""

    carries = False
