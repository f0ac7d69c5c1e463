"""Packs a block id below 0 into a launch's words with its sign.

It shows when a step of `one_launch` writes a single negative id: the sign covers row and column, so
the word is that of as many ids as can be, of the last row and column that there can be.
"""

from bt_kernels.one_launch import OneLaunch
from bt_kernels.staging import StagedWrites


class Staged(StagedWrites):
    """Packs words without masking ids, which are int32 already."""

    def pack_words(self, bitmap, payload, ids_apart=None, /):
        packed = super().pack_words(bitmap, payload, ids_apart)
        words = memoryview(payload).cast("B").cast("q")
        written = [ids for found in self._groups for _, (_, ids) in sorted(found.items())]
        if packed is not None and len(written) <= len(words):
            for place, ids in enumerate(written):
                if len(ids) == 1:
                    words[place] |= ids[0]
        return packed


class Variant(OneLaunch):
    """As one_launch, with other words."""

    native = False

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._stage_in(Staged(layout.widths, self.num_blocks))
