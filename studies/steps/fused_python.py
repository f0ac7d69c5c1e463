"""Both fusions, with the host code that baseline had: in Python, a call per request."""

from bt_kernels.fusions import FusedApply, FusedGatherSlots


class Variant(FusedApply, FusedGatherSlots):
    """`fused` without the compiled helpers and without `append_many`."""

    native = False
    append_many = None
