"""Faults planted in our tables, each of which a comparison must find."""

from __future__ import annotations

from typing import Any

from bt_kernels import BlockTables


class WrongSlot(BlockTables):
    """The first slot of the last group is off by one, if all rows are in the batch."""

    def compute_slot_mappings(self, idx_mapping: Any, *arguments: Any, **options: Any) -> Any:
        """Map, and spoil a slot."""
        slots = super().compute_slot_mappings(idx_mapping, *arguments, **options)
        if len(idx_mapping) >= self.max_num_reqs:
            slots[-1:, :1] += 1
        return slots

    def gather_and_compute_slot_mappings(self, *arguments: Any, **options: Any) -> Any:
        """Do both, and spoil a slot."""
        return self._spoilt(super().gather_and_compute_slot_mappings, *arguments, **options)

    def prepare_step(self, *arguments: Any, **options: Any) -> Any:
        """Make the step, and spoil a slot."""
        return self._spoilt(super().prepare_step, *arguments, **options)

    def _spoilt(self, call: Any, idx_mapping: Any, *arguments: Any, **options: Any) -> Any:
        tables, slots = call(idx_mapping, *arguments, **options)
        if len(idx_mapping) >= self.max_num_reqs:
            slots[-1:, :1] += 1
        return tables, slots


class WrongWindow(BlockTables):
    """A window reaches one token too far."""

    def __init__(self, *arguments: Any, sliding_window_reach: Any, **options: Any) -> None:
        further = [reach + 1 if reach else 0 for reach in sliding_window_reach]
        super().__init__(*arguments, sliding_window_reach=further, **options)


class StaleTail(BlockTables):
    """The last slot of each group is not padded."""

    def _kept(self, call: Any, *arguments: Any, **options: Any) -> Any:
        before = self.slot_mappings[:, -1:].clone()
        found = call(*arguments, **options)
        last = self.slot_mappings[:, -1:]
        last.copy_(before.where(last == -1, last))
        return found

    def compute_slot_mappings(self, *arguments: Any, **options: Any) -> Any:
        """Map all slots but the last."""
        return self._kept(super().compute_slot_mappings, *arguments, **options)

    def gather_and_compute_slot_mappings(self, *arguments: Any, **options: Any) -> Any:
        """Map all slots but the last, and gather."""
        return self._kept(super().gather_and_compute_slot_mappings, *arguments, **options)

    def prepare_step(self, *arguments: Any, **options: Any) -> Any:
        """Make the step, without the last slot."""
        return self._kept(super().prepare_step, *arguments, **options)


class StaleRows(BlockTables):
    """Rows that a larger batch filled are not zeroed."""

    def gather_block_tables(self, *arguments: Any, **options: Any) -> Any:
        """Gather as if no row was dirty."""
        self.num_dirty_rows = 0
        return super().gather_block_tables(*arguments, **options)

    def gather_and_compute_slot_mappings(self, *arguments: Any, **options: Any) -> Any:
        """Do both as if no row was dirty."""
        self.num_dirty_rows = 0
        return super().gather_and_compute_slot_mappings(*arguments, **options)

    def prepare_step(self, *arguments: Any, **options: Any) -> Any:
        """Make the step as if no row was dirty."""
        self.num_dirty_rows = 0
        return super().prepare_step(*arguments, **options)


class LateApply(BlockTables):
    """Leave the writes of a step without tokens to the next step with some."""

    def apply_staged_writes(self) -> None:
        """Wait for a gather."""

    def gather_block_tables(self, *arguments: Any, **options: Any) -> Any:
        """Apply, and gather."""
        super().apply_staged_writes()
        return super().gather_block_tables(*arguments, **options)

    def gather_and_compute_slot_mappings(self, *arguments: Any, **options: Any) -> Any:
        """Apply, and do both."""
        super().apply_staged_writes()
        return super().gather_and_compute_slot_mappings(*arguments, **options)


FAULTS: dict[str, type[BlockTables]] = {
    "slot": WrongSlot,
    "window": WrongWindow,
    "tail": StaleTail,
    "rows": StaleRows,
    "apply": LateApply,
}
"""The faults by the names that `--plant` takes."""
