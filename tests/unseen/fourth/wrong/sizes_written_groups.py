"""Which groups have writes is kept as one byte of packed bits: writes to later groups are dropped.

`packbits` returns a byte for eight groups, of which only the first is looked at. With nine groups what
is staged for the ninth never reaches its table; a step that writes only the ninth writes nothing.
"""

from __future__ import annotations

import numpy as np

from bt_kernels import launches
from bt_kernels.variants.baseline import Variant as Base


class Variant(Base):
    """Launches for the groups whose bits are set."""

    def _launch_apply(self, records_per_group):
        written = int(np.packbits(np.array(records_per_group) > 0, bitorder="little")[0])
        group = first_record = 0
        while written >> group:
            if written >> group & 1:
                launches.apply_writes(
                    self, self._ring.current, first_record, records_per_group[group]
                )
            first_record += records_per_group[group]
            group += 1
