"""How a step is cut into programs is kept by its numbers of requests and rows, not of tokens.

Shows when a step of a few tokens, as in decoding, is followed by one of as many requests and rows
that has a prefill: no program maps the tokens behind the first 32 of a request, and their slots
keep what they held.
"""

from bt_kernels.variants.one_launch import Variant as Base


class Variant(Base):
    """Cuts a step anew only where the batch or the longest row has changed."""

    def __init__(self, layout, device, **options):
        self._cuts = {}
        super().__init__(layout, device, **options)

    def cut_of(self, batch):
        key = batch.num_reqs, batch.num_rows, self._staged.longest
        cut = self._cuts.get(key)
        if cut is None:
            cut = self._cuts[key] = super().cut_of(batch)
        return cut
