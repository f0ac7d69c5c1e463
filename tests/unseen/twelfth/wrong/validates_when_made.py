"""Whether the contents of a batch are checked is decided once, when the tables are made.

Shows when `validate` is set to true later: rows that do not exist, or starts that do not begin at 0
or decrease, have to be refused by slots and whole steps, and are taken.
"""

from bt_kernels.device_tables import arguments
from bt_kernels.variants.one_launch import Variant as Base


class Variant(Base):
    """Spares each call the questions whether to validate, and whether a graph is captured."""

    def __init__(self, layout, device, *, steps_in_flight=None, validate=False):
        self._checks_contents = validate
        super().__init__(layout, device, steps_in_flight=steps_in_flight, validate=validate)

    def _check_slots(
        self, num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, out
    ):
        tokens = (query_start_loc, positions, num_tokens_padded, out)
        if self._checks_contents:
            return super()._check_slots(num_reqs, idx_mapping, *tokens)
        arguments.check_tokens(self.layout, self.device, num_reqs, *tokens)
        if out is None:
            return self._views_of_slots(num_tokens_padded)
        return out[:, :num_tokens_padded]
