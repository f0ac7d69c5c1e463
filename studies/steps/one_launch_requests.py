"""One launch a step, by the driver; staging is in C, by a call per request."""

from bt_kernels.one_launch import OneLaunch


class Variant(OneLaunch):
    """`one_launch` without `append_many`, and with all writes in pinned memory."""

    append_many = None
    carries = False
