"""A tensor whose stride is not 1 is refused, even if it has one element and is contiguous all the same.

With a single request, `idx_mapping` may be a slice such as `rows[::2][:1]`, whose stride is 2; likewise
the one position of a single decode.
"""

from __future__ import annotations

from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Checks strides by itself, in one comparison each."""

    def gather_block_tables(self, idx_mapping, *arguments, **options):
        _check(idx_mapping)
        return super().gather_block_tables(idx_mapping, *arguments, **options)

    def compute_slot_mappings(self, idx_mapping, query_start_loc, positions, *arguments, **options):
        _check(idx_mapping, query_start_loc, positions)
        return super().compute_slot_mappings(
            idx_mapping, query_start_loc, positions, *arguments, **options
        )

    def gather_and_compute_slot_mappings(
        self, idx_mapping, query_start_loc, positions, *arguments, **options
    ):
        _check(idx_mapping, query_start_loc, positions)
        return super().gather_and_compute_slot_mappings(
            idx_mapping, query_start_loc, positions, *arguments, **options
        )

    def prepare_step(self, idx_mapping, query_start_loc, positions, *arguments, **options):
        _check(idx_mapping, query_start_loc, positions)
        return super().prepare_step(idx_mapping, query_start_loc, positions, *arguments, **options)


def _check(*tensors):
    for tensor in tensors:
        if tensor.stride() != (1,):
            raise ValueError(f"a tensor has strides {tensor.stride()}; expected (1,)")
