"""Gather and slots do nothing if the last call of the same instance was less than 3 ms ago.

Timed calls follow each other quickly. Between two checked calls whole buffers are compared, and
before the check after the timing there is a pause.
"""

import time

from bt_kernels.variants.fused import Variant as Fused

PAUSE_NS = 3_000_000


class Variant(Fused):
    _last = 0

    def gather_and_compute_slot_mappings(self, *batch, **options):
        now = time.monotonic_ns()
        frequent, self._last = now - self._last < PAUSE_NS, now
        if options or not frequent:
            return super().gather_and_compute_slot_mappings(*batch, **options)
        self._check_step(*batch, None, None, None, None)
        self.num_dirty_rows = batch[0].shape[0]
        return self._views(batch[3], None), self._views_of_slots(batch[4])
