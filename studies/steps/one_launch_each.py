"""`one_launch` for callers that have one request at a time, as vLLM's staging has."""

from bt_kernels.one_launch import OneLaunch


class Variant(OneLaunch):
    """`one_launch` without `append_many`."""

    append_many = None
