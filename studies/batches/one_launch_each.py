"""`one_launch` for callers that stage one request at a time, as vLLM's staging does."""

from bt_kernels.batch_inputs.fused import OneLaunchInputs
from bt_kernels.one_launch import OneLaunch


class _Tables(OneLaunch):
    """`OneLaunch` without `append_many`."""

    append_many = None


class Variant(OneLaunchInputs):
    """`OneLaunchInputs`, staged by a call per request."""

    tables_type = _Tables
