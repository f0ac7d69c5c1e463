"""Never writes the staged ids of groups past the last whole sixteen.

It shows with 17 to 31 groups (or 33 to 47, …): the number of launches is rounded down.
"""

from bt_kernels import launches
from bt_kernels.variants import fused

GROUPS_OF_A_LAUNCH = 16


class Variant(fused.Variant):
    """As fused, with a launch of apply for every 16 groups."""

    def _launch_apply(self, records_per_group):
        first = 0
        for batch in range(max(1, len(records_per_group) // GROUPS_OF_A_LAUNCH)):
            groups = slice(GROUPS_OF_A_LAUNCH * batch, GROUPS_OF_A_LAUNCH * (batch + 1))
            num_records = sum(records_per_group[groups])
            if num_records:
                launches.apply_writes(self, self._ring.current, first, num_records)
            first += num_records
