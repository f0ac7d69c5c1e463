"""`one_launch`'s tables, called as vLLM calls its own: apply, gather and slots, one by one."""

from bt_kernels.one_launch import OneLaunch


class Variant(OneLaunch):
    """A step in three calls, staged by a call per request."""

    append_many = None

    def prepare_step(
        self,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs_padded,
        num_tokens_padded,
        *,
        out=None,
        out_ptrs=None,
        num_computed_tokens=None,
        slots_out=None,
    ):
        """See `OneLaunch`."""
        self.apply_staged_writes()
        return self.gather_block_tables(
            idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
        ), self.compute_slot_mappings(
            idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
