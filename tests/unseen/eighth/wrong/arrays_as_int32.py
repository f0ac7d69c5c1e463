"""As baseline, but block ids in arrays of numpy are converted to int32 as a whole.

Python's loop over the elements of an array takes longer than over those of a list.

Wrong: `astype` wraps ids that do not fit int32, which are then staged instead of refused.

Shows: ids in an array of int64 or uint32, one of them 2**31 or more.
"""

import numpy as np

from bt_kernels.variants.baseline import Variant as Base


def _plain(ids):
    if isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind in "iu":
        return ids.astype(np.int32).tolist()
    return ids


class Variant(Base):
    """Converts ids before they are staged."""

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        if any(isinstance(ids, np.ndarray) for ids in new_block_ids):
            new_block_ids = [_plain(ids) for ids in new_block_ids]
        super().append_block_ids(req_index, new_block_ids, overwrite)
