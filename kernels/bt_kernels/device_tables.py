"""State and host code that all device variants share; a variant chooses the launches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from bt_kernels import launches
from bt_kernels.device_code import RECORD_FIELDS as RECORD_FIELDS_CONSTEXPR
from bt_kernels.interface import COMPILED, JIT, BlockTableOperations, TableState
from bt_kernels.layout import PAD_SLOT_ID, TableLayout
from bt_kernels.staging import HostRing, StagedWrites, check_append

RECORD_FIELDS: int = RECORD_FIELDS_CONSTEXPR.value


class DeviceBlockTables(BlockTableOperations):
    """Block tables on a device (or on the CPU, under Triton's interpreter).

    As it stands it makes the separate launches: one per written group, one to gather, one for
    slots. Variants override `_launch_apply` and `gather_and_compute_slot_mappings`, and launch
    through `self.launch`, whose arguments are those of `bt_kernels.launches.launch_jit`.

    Args:
        layout: the sizes.
        device: where the tables live.
    """

    # Applying publishes: its host part fills a buffer of the ring, after waiting for an event.
    capturable = frozenset(
        {"gather_block_tables", "compute_slot_mappings", "gather_and_compute_slot_mappings"}
    )

    def __init__(self, layout: TableLayout, device: torch.device | str) -> None:
        self.layout = layout
        self.device = torch.device(device)
        self._launches = {JIT: launches.launch_jit, COMPILED: launches.CompiledLaunches()}
        self.launch_path = JIT
        shapes = [(layout.max_num_reqs, width) for width in layout.widths]
        self.block_tables = [self._zeros(shape, torch.int32) for shape in shapes]
        self.input_block_tables = [self._zeros(shape, torch.int32) for shape in shapes]
        self.slot_mappings = torch.full(
            (layout.num_groups, layout.max_num_batched_tokens),
            PAD_SLOT_ID,
            dtype=torch.int64,
            device=self.device,
        )
        self.descriptors = torch.tensor(
            [
                [source.data_ptr(), target.data_ptr(), width, block_size]
                for source, target, width, block_size in zip(
                    self.block_tables,
                    self.input_block_tables,
                    layout.widths,
                    layout.block_sizes,
                    strict=True,
                )
            ],
            dtype=torch.int64,
            device=self.device,
        )
        self.num_blocks = np.zeros((layout.num_groups, layout.max_num_reqs), dtype=np.int32)
        self.num_dirty_rows = 0
        self._staged = StagedWrites(layout.num_groups)
        # Room for a record and three block ids per row; a burst of longer writes grows it.
        room = self.num_blocks.size * (1 + RECORD_FIELDS + 3)
        self._ring = HostRing(room, self.device)

    @property
    def launch_paths(self) -> tuple[str, ...]:
        """Launch paths that work here: only Triton's call where kernels are interpreted."""
        on_gpu = self.device.type == "cuda" and launches.COMPILES
        return (JIT, COMPILED) if on_gpu else (JIT,)

    @property
    def launch_path(self) -> str:
        """How kernels are launched from now on, one of `launch_paths`.

        Raises:
            ValueError: when it is set to anything else.
        """
        return self._launch_path

    @launch_path.setter
    def launch_path(self, path: str) -> None:
        if path not in self.launch_paths:
            expected = " or ".join(repr(known) for known in self.launch_paths)
            raise ValueError(f"launch_path is {path!r}; expected {expected} on {self.device}")
        self._launch_path = path
        # Kept as an attribute, so that no launch has to choose.
        self.launch = self._launches[path]

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        starts = check_append(self.layout, self.num_blocks, req_index, new_block_ids, overwrite)
        for group, ids in enumerate(new_block_ids):
            start = starts[group]
            self._staged.add(group, req_index, start, ids, overwrite)
            self.num_blocks[group, req_index] = start + len(ids)

    def apply_staged_writes(self) -> None:
        records_per_group = self._publish()
        if any(records_per_group):
            self._launch_apply(records_per_group)

    def gather_block_tables(
        self, idx_mapping: torch.Tensor, num_reqs_padded: int
    ) -> tuple[torch.Tensor, ...]:
        num_rows = self._rows_to_gather(idx_mapping, num_reqs_padded)
        if num_rows:
            launches.gather(self, self._ring.current, idx_mapping, num_rows)
        return tuple(table[:num_reqs_padded] for table in self.input_block_tables)

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
    ) -> torch.Tensor:
        self._check_tokens(num_tokens_padded)
        launches.slots(self, idx_mapping, query_start_loc, positions)
        return self.slot_mappings[:, :num_tokens_padded]

    def restore(self, state: TableState) -> None:
        for table, saved in zip(self.block_tables, state.block_tables, strict=True):
            table.copy_(saved)
        for table, saved in zip(self.input_block_tables, state.input_block_tables, strict=True):
            table.copy_(saved)
        self.slot_mappings.copy_(state.slot_mappings)
        self.num_blocks[:] = state.num_blocks
        self.num_dirty_rows = state.num_dirty_rows
        self._staged.clear()
        self._publish()

    def _launch_apply(self, records_per_group: list[int]) -> None:
        """Launches the writes that `_publish` laid out: here one launch per written group."""
        first_record = 0
        for num_records in records_per_group:
            if num_records:
                launches.apply_writes(self, self._ring.current, first_record, num_records)
            first_record += num_records

    def _publish(self) -> list[int]:
        """Moves `num_blocks` and the staged writes into the next buffer of the ring.

        Returns:
            Records per group; they lie in `staging` in the order of the groups.
        """
        groups = self._staged.groups
        records_per_group = [len(intervals) for intervals in groups]
        records_start = self.num_blocks.size
        contents_start = records_start + sum(records_per_group) * RECORD_FIELDS
        records: list[int] = []
        contents: list[int] = []
        for group, intervals in enumerate(groups):
            for row, (start, ids) in intervals.items():
                offset = contents_start + len(contents)
                records += (group, row, start, len(ids), offset)
                contents += ids
        # Converted before the ring moves on: an id that does not fit int32 must not leave the
        # kernels with a buffer that was never filled.
        staged = np.array(records + contents, dtype=np.int32)
        buffer = self._ring.advance(records_start + len(staged))
        buffer[:records_start] = self.num_blocks.reshape(-1)
        buffer[records_start : records_start + len(staged)] = staged
        self._staged.clear()
        return records_per_group

    def _rows_to_gather(self, idx_mapping: torch.Tensor, num_reqs_padded: int) -> int:
        """Input rows that the gather must write or zero; notes those that it leaves dirty."""
        num_reqs = idx_mapping.shape[0]
        if not num_reqs <= num_reqs_padded <= self.layout.max_num_reqs:
            raise ValueError(
                f"num_reqs_padded is {num_reqs_padded}; expected {num_reqs} (the batch) to "
                f"{self.layout.max_num_reqs} (max_num_reqs)"
            )
        num_rows = max(num_reqs_padded, self.num_dirty_rows)
        self.num_dirty_rows = num_reqs
        return num_rows

    def _check_tokens(self, num_tokens_padded: int) -> None:
        if num_tokens_padded > self.layout.max_num_batched_tokens:
            raise ValueError(
                f"num_tokens_padded is {num_tokens_padded}; expected at most "
                f"{self.layout.max_num_batched_tokens} (max_num_batched_tokens)"
            )

    def _zeros(self, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)
