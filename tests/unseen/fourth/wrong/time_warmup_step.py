"""`warmup` also makes a first launch of each kind, with dummy outputs, which change tables, slots and dirty rows.

Documented is that it launches nothing and that no table changes. An engine that warms up again after tables
were replaced, with a batch in them, loses the batch.
"""

from __future__ import annotations

from bt_kernels.variants.one_launch import Variant as Base


class Variant(Base):
    """Has first launches behind it after `warmup`."""

    def warmup(self):
        seconds = super().warmup()
        self.get_dummy_block_tables(self.layout.max_num_reqs)
        self.get_dummy_slot_mappings(self.layout.max_num_batched_tokens)
        return seconds
