"""One launch a step, with the host code that baseline had: in Python, a call per request."""

from bt_kernels.one_launch import OneLaunch


class Variant(OneLaunch):
    """`one_launch` without the compiled helpers and without `append_many`."""

    native = False
    append_many = None
