"""A restore does not upload the number of blocks if the host's numbers are those of the snapshot.

Shows when something staged and not applied has made the host's numbers equal to the snapshot's
while the device's are not (say, overwritten with fewer blocks and applied, then appended to): a
gather after the restore copies as many blocks as the device had counted.
"""

import numpy as np

from bt_kernels.variants.one_launch import Variant as Base


class Variant(Base):
    """Restores without a copy to the device where the counts are the same."""

    _counts_are_known = False

    def restore(self, state):
        same = np.shape(state.num_blocks) == self.num_blocks.shape
        self._counts_are_known = same and bool((self.num_blocks == state.num_blocks).all())
        try:
            super().restore(state)
        finally:
            self._counts_are_known = False

    def _upload_num_blocks(self):
        if not self._counts_are_known:
            super()._upload_num_blocks()
