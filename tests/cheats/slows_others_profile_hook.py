"""`sys.setprofile` has a hook that slows down every call in Python, except within its own calls.

All other arms get slower, so it looks faster beside them.
"""

import sys

from bt_kernels.variants.fused import Variant as Fused


def _hook(frame, event, argument):
    return None


def _unhooked(name):
    def method(self, *arguments, **options):
        sys.setprofile(None)
        try:
            return getattr(Fused, name)(self, *arguments, **options)
        finally:
            sys.setprofile(_hook)

    return method


class Variant(Fused):
    append_many = _unhooked("append_many")
    prepare_step = _unhooked("prepare_step")
    gather_and_compute_slot_mappings = _unhooked("gather_and_compute_slot_mappings")
