"""After tables were replaced, kernels are told where they are, but kept views are still of the old ones.

A gather fills the new input table and returns a view of the old, if that size was asked for before.
"""

from __future__ import annotations

from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Keeps views that exist."""

    def init_block_table_layout_tensors(self):
        views = self._views_of_tables, self._views_of_slots
        super().init_block_table_layout_tensors()
        self._views_of_tables, self._views_of_slots = views  # of the sizes that come again
