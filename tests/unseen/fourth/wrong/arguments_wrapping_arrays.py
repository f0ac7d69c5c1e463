"""Arrays of numpy become int32 by `astype`, which wraps: ids that do not fit are accepted as other ids.

An int64 array with 2^31 has to be refused, and is staged as -2^31; one of floats is cut to integers.
"""

from __future__ import annotations

import numpy as np

from bt_kernels.variants.one_launch import Variant as Base


class Variant(Base):
    """A quick way for ids in arrays."""

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        if isinstance(new_block_ids, (list, tuple)):
            new_block_ids = [
                ids.astype(np.int32).tolist()
                if isinstance(ids, np.ndarray) and ids.ndim == 1
                else ids
                for ids in new_block_ids
            ]
        super().append_block_ids(req_index, new_block_ids, overwrite)
