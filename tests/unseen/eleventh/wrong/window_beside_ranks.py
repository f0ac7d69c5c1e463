"""With context parallelism, groups that are not sharded keep their sliding window.

Shows with cp_size above 1, a group with a reach and dcp_sharded false, and num_computed_tokens past
the reach: its columns before the window become 0, though the window is off whatever the reach.
"""

from bt_kernels.device_code.fields import REACH
from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """A column of a group that is not sharded is a range of consecutive tokens all the same."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._has_window = any(self._reaches())

    def _reaches(self):
        layout = self.layout
        pairs = zip(layout.sliding_window_reach, layout.cp_sizes, strict=True)
        return [reach if ranks == 1 else 0 for reach, ranks in pairs]

    def _describe_groups(self):
        descriptors = super()._describe_groups()
        for group, reach in enumerate(self._reaches()):
            descriptors[group, REACH.value] = reach
        return descriptors
