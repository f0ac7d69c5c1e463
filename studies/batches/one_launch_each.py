"""`one_launch` for callers that have one request at a time, as vLLM's staging has."""

from bt_kernels.batch_inputs.fused import OneLaunchInputs
from bt_kernels.one_launch import OneLaunch


class Each(OneLaunch):
    """Tables without `append_many`."""

    append_many = None


class Variant(OneLaunchInputs):
    """`one_launch` of whole batches, with such tables."""

    tables_type = Each
