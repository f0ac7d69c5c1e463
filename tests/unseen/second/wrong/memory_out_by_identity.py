"""Copies the addresses of `out` to the device only once for each list.

It shows when the caller puts another tensor into the same list for the next call (without
`out_ptrs`): the rows are written into the tensor that was in the list before.
"""

import torch

from bt_kernels.variants import fused


class Variant(fused.Variant):
    """As fused, without a copy of the addresses in each call."""

    _last_out = None
    _last_ptrs = None

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        if out is not None and out_ptrs is None:
            if out is not self._last_out:
                self._last_out = out
                addresses = [table.data_ptr() for table in out]
                self._last_ptrs = torch.tensor(addresses, device=self.device)
            out_ptrs = self._last_ptrs
        return super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
