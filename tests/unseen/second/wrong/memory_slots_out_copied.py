"""Returns a copy of a part of the caller's slots instead of a view of them.

It shows when `out` of slots has several groups and is longer than `num_tokens_padded`: what is
written to `out` later (also by the next step) does not appear in the result.
"""

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """As baseline, with slots that attention kernels can take for contiguous."""

    def compute_slot_mappings(
        self, idx_mapping, query_start_loc, positions, num_tokens_padded, out=None
    ):
        slots = super().compute_slot_mappings(
            idx_mapping, query_start_loc, positions, num_tokens_padded, out
        )
        return slots if out is None else slots.contiguous()
