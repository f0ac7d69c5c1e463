"""Checks contents only if `validate` was given to the constructor.

It shows when the attribute is set later, which may be done at any time: an `idx_mapping` with a row
that does not exist, or a falling `query_start_loc`, is accepted.
"""

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.device_tables import arguments as checks


class Variant(DeviceBlockTables):
    """As baseline, with the checks chosen once."""

    def __init__(self, layout, device, *, validate=False, **options):
        super().__init__(layout, device, **options)
        self.validate = validate
        self._checks_contents = validate

    def gather_block_tables(self, idx_mapping, num_reqs_padded, *options, **named):
        if self._checks_contents:
            self._check_rows(idx_mapping)
        return self._unchecked(
            super().gather_block_tables, idx_mapping, num_reqs_padded, *options, **named
        )

    def _check_rows(self, idx_mapping):
        checks.check_mapping(self.layout, self.device, idx_mapping)
        checks.check_rows_exist(self.layout, idx_mapping)

    def _check_slots(self, num_reqs, idx_mapping, query_start_loc, positions, padded, out):
        arguments = (num_reqs, idx_mapping, query_start_loc, positions, padded, out)
        views = self._unchecked(super()._check_slots, *arguments)
        if self._checks_contents:
            checks.check_rows_exist(self.layout, idx_mapping)
            num_slots = (self.slot_mappings if out is None else out).shape[1]
            checks.check_token_ranges(num_reqs, query_start_loc, positions, num_slots)
        return views

    def _unchecked(self, call, *arguments, **named):
        validate, self.validate = self.validate, False
        try:
            return call(*arguments, **named)
        finally:
            self.validate = validate
