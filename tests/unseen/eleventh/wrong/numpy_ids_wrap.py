"""Block ids in a numpy array are cast to int32 without a look at their values.

Shows when append_block_ids gets an int64 array with an id that does not fit int32, or an array of
floats: it must be refused with nothing changed, but the id wraps, or is cut, and is staged.
"""

import numpy as np

from bt_kernels.variants.one_launch import Variant as Base


class Variant(Base):
    """Takes the arrays of an allocator as they are."""

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        if isinstance(new_block_ids, (list, tuple)) and any(
            isinstance(ids, np.ndarray) for ids in new_block_ids
        ):
            new_block_ids = [
                ids.astype(np.int32).tolist() if isinstance(ids, np.ndarray) else ids
                for ids in new_block_ids
            ]
        super().append_block_ids(req_index, new_block_ids, overwrite)
