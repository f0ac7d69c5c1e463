"""All in numpy, on memory that the tensors share, with checks of its own; the CPU only.

Gather and slots are written in vectors of numpy. Nothing of `bt_kernels` is used but the interface and the
layout. On another device than the CPU it refuses to be made.
"""

from __future__ import annotations

import operator

import numpy as np
import torch

from bt_kernels.interface import BlockTableOperations
from bt_kernels.layout import FEATURES, PAD_SLOT_ID


def integer(name, value, least, most):
    """A number as an integer within limits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}; expected an integer") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}; expected {least} to {most}")
    return number


def vector(name, tensor, dtypes, least):
    """The elements of a tensor of one dimension, in numpy."""
    if tensor.dtype not in dtypes:
        raise ValueError(f"{name} has dtype {tensor.dtype}; expected one of {dtypes}")
    if tensor.device.type != "cpu":
        raise ValueError(f"{name} is on {tensor.device}; expected cpu")
    if tensor.dim() != 1 or tensor.numel() < least:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected [{least} or more]")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} has strides {tensor.stride()}; expected a contiguous tensor")
    return tensor.numpy()


class Variant(BlockTableOperations):
    """Arrays of numpy, of which the tensors are views."""

    features = FEATURES

    def __init__(self, layout, device):
        if torch.device(device).type != "cpu":
            raise ValueError(f"device is {device}; expected cpu")
        self.layout, self.device = layout, torch.device("cpu")
        rows = layout.max_num_reqs
        self.sources = [np.zeros((rows, width), np.int32) for width in layout.widths]
        self.targets = [np.zeros((rows, width), np.int32) for width in layout.widths]
        self.slots = np.full((layout.num_groups, layout.max_num_batched_tokens), PAD_SLOT_ID)
        self.block_tables = [torch.from_numpy(array) for array in self.sources]
        self.input_block_tables = [torch.from_numpy(array) for array in self.targets]
        self.slot_mappings = torch.from_numpy(self.slots)
        self.num_blocks = np.zeros((layout.num_groups, rows), np.int32)
        self.visible = np.zeros((layout.num_groups, rows), np.int32)
        self.num_dirty_rows = 0
        self.writes = []

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        self.append_many([req_index], [new_block_ids], [overwrite])

    def append_many(self, req_indices, new_block_ids, overwrite):
        counts, writes = self.num_blocks.copy(), []
        try:
            if not len(req_indices) == len(new_block_ids) == len(overwrite):
                raise ValueError("the lists are not of one length")
            for row, lists, replaces in zip(req_indices, new_block_ids, overwrite, strict=True):
                row = integer("req_index", row, 0, self.layout.max_num_reqs - 1)
                if len(lists) != self.layout.num_groups:
                    raise ValueError(f"{len(lists)} lists for {self.layout.num_groups} groups")
                for group, ids in enumerate(lists):
                    numbers = [integer("a block id", i, -(2**31), 2**31 - 1) for i in ids]
                    if self.redirect_writes_to_null_block:
                        numbers = [0] * len(numbers)
                    if replaces:
                        counts[group, row] = 0
                    start = int(counts[group, row])
                    end = start + len(numbers)
                    if end > self.layout.widths[group]:
                        raise ValueError(
                            f"row {row} of group {group} would have {end} blocks; its table is "
                            f"{self.layout.widths[group]} columns wide"
                        )
                    counts[group, row] = end
                    writes.append((group, row, start, numbers, bool(replaces)))
        except TypeError as error:
            raise ValueError(f"an argument is no list: {error}") from None
        self.num_blocks[:] = counts
        self.writes += writes

    def apply_staged_writes(self):
        # Backwards: columns that a later overwrite of the row dropped are never written.
        dropped, columns = set(), [{} for _ in self.sources]
        for group, row, start, numbers, replaces in reversed(self.writes):
            if (group, row) not in dropped:
                for column, number in enumerate(numbers, start):
                    columns[group].setdefault((row, column), number)
            if replaces:
                dropped.add((group, row))
        for table, found in zip(self.sources, columns, strict=True):
            if found:
                table[tuple(np.array(list(found)).T)] = list(found.values())
        self.writes.clear()
        self.visible[:] = self.num_blocks

    def _rows(self, idx_mapping):
        rows = vector("idx_mapping", idx_mapping, (torch.int32, torch.int64), 0).astype(np.int64)
        if len(rows) > self.layout.max_num_reqs:
            raise ValueError(
                f"idx_mapping has {len(rows)} requests; expected {self.layout.max_num_reqs}"
            )
        if self.validate and ((rows < -1) | (rows >= self.layout.max_num_reqs)).any():
            raise ValueError(f"idx_mapping is {rows}; a row does not exist")
        rows[(rows < 0) | (rows >= self.layout.max_num_reqs)] = -1
        return rows

    def _read_gather(self, idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        layout = self.layout
        rows = self._rows(idx_mapping)
        padded = integer("num_reqs_padded", num_reqs_padded, len(rows), layout.max_num_reqs)
        integer("num_dirty_rows", self.num_dirty_rows, 0, layout.max_num_reqs)
        targets, computed = self.targets, None
        if num_computed_tokens is not None:
            size = layout.max_num_reqs
            computed = vector("num_computed_tokens", num_computed_tokens, (torch.int32,), size)
        if out is None:
            if out_ptrs is not None:
                raise ValueError("out_ptrs is given without out")
        else:
            if len(out) != layout.num_groups:
                raise ValueError(f"out has {len(out)} tables; expected {layout.num_groups}")
            for table, width in zip(out, layout.widths, strict=True):
                if table.dtype != torch.int32 or table.dim() != 2 or table.device.type != "cpu":
                    raise ValueError(f"a table of out is {table.dtype} {tuple(table.shape)}")
                if table.shape[1] != width or table.shape[0] < padded or not table.is_contiguous():
                    raise ValueError(f"a table of out has shape {tuple(table.shape)}")
            if out_ptrs is not None:
                kinds = (torch.int64, torch.uint64)
                addresses = vector("out_ptrs", out_ptrs, kinds, layout.num_groups)
                if len(addresses) != layout.num_groups:
                    raise ValueError(f"out_ptrs has {len(addresses)} elements")
                expected = [table.data_ptr() for table in out]
                if self.validate and addresses.tolist() != expected:
                    raise ValueError(f"out_ptrs is {addresses}; expected {expected}")
            targets = [table.numpy() for table in out]
            for nth, table in enumerate(targets):
                for other in (*targets[:nth], *self.sources, *self.targets):
                    if table.size and np.may_share_memory(table, other):
                        raise ValueError(f"out[{nth}] overlaps another table")
        return rows, padded, out, targets, computed

    def _gather(self, rows, padded, out, targets, computed):
        layout = self.layout
        own = out is None
        end = max(padded, self.num_dirty_rows) if own else padded
        for group, (source, target) in enumerate(zip(self.sources, targets, strict=True)):
            target[len(rows) : end] = 0
            target[: len(rows)][rows < 0] = 0
            for batch_index in np.flatnonzero(rows >= 0):
                row = rows[batch_index]
                length, first = self.visible[group, row], 0
                target[batch_index, :length] = source[row, :length]
                reach = layout.reaches[group]
                if computed is not None and reach:
                    first = max(int(computed[row]) - reach, 0) // layout.block_sizes[group]
                target[batch_index, : min(first, length)] = 0
        if own:
            self.num_dirty_rows = len(rows)
        return tuple(t[:padded] for t in (self.input_block_tables if own else out))

    def _read_slots(self, idx_mapping, query_start_loc, positions, num_tokens_padded, out):
        layout = self.layout
        rows = self._rows(idx_mapping)
        starts = vector("query_start_loc", query_start_loc, (torch.int32,), len(rows) + 1)
        starts = starts[: len(rows) + 1].astype(np.int64)
        places = vector("positions", positions, (torch.int64,), 0)
        target = self.slot_mappings if out is None else out
        if target.dtype != torch.int64 or target.dim() != 2 or target.device.type != "cpu":
            raise ValueError(f"out is {target.dtype} {tuple(target.shape)}")
        if target.shape[0] != layout.num_groups:
            raise ValueError(f"out has {target.shape[0]} rows; expected {layout.num_groups}")
        apart, beside = target.stride()
        if target.shape[1] > 1 and beside != 1 or target.shape[0] > 1 and apart < target.shape[1]:
            raise ValueError(f"out has strides {target.stride()}")
        padded = integer("num_tokens_padded", num_tokens_padded, 0, target.shape[1])
        if self.validate:
            if starts[0] != 0 or (np.diff(starts) < 0).any():
                raise ValueError(f"query_start_loc is {starts}")
            if starts[-1] > min(len(places), padded):
                raise ValueError(f"query_start_loc ends at {starts[-1]}")
        return rows, starts, places[: starts[-1]], padded, target

    def _map(self, rows, starts, places, padded, target):
        layout, slots = self.layout, target.numpy()
        rows = np.repeat(rows, np.diff(starts))
        for group, source in enumerate(self.sources):
            size, ranks, split = (
                layout.block_sizes[group],
                layout.cp_sizes[group],
                layout.cp_interleave,
            )
            columns, offsets = np.divmod(places, size * ranks)
            good = (rows >= 0) & (columns >= 0) & (columns < layout.widths[group])
            good &= layout.slot_mapping_enabled[group]
            if ranks > 1:
                turns, rest = np.divmod(offsets, split)
                good &= turns % ranks == layout.cp_rank
                offsets = turns // ranks * split + rest
            slots[group] = PAD_SLOT_ID
            chosen = np.flatnonzero(good)
            ids = source[rows[chosen], columns[chosen]].astype(np.int64)
            slots[group, chosen] = ids * size + offsets[chosen]
        return target[:, :padded]

    def gather_block_tables(
        self, idx_mapping, num_reqs_padded, out=None, out_ptrs=None, num_computed_tokens=None
    ):
        batch = (idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens)
        return self._gather(*self._read_gather(*batch))

    def compute_slot_mappings(
        self, idx_mapping, query_start_loc, positions, num_tokens_padded, out=None
    ):
        batch = (idx_mapping, query_start_loc, positions, num_tokens_padded, out)
        return self._map(*self._read_slots(*batch))

    def _both(
        self,
        before,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs_padded,
        num_tokens_padded,
        out=None,
        out_ptrs=None,
        num_computed_tokens=None,
        slots_out=None,
    ):
        gather = self._read_gather(idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens)
        slots = self._read_slots(
            idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        before()
        return self._gather(*gather), self._map(*slots)

    def gather_and_compute_slot_mappings(self, *batch, **options):
        return self._both(lambda: None, *batch, **options)

    def prepare_step(self, *batch, **options):
        return self._both(self.apply_staged_writes, *batch, **options)

    def get_dummy_block_tables(self, num_reqs):
        rows = integer("num_reqs", num_reqs, 0, self.layout.max_num_reqs)
        for target in self.targets:
            target[: max(rows, self.num_dirty_rows)] = 0
        self.num_dirty_rows = rows
        return tuple(table[:rows] for table in self.input_block_tables)

    def get_dummy_slot_mappings(self, num_tokens):
        tokens = integer("num_tokens", num_tokens, 0, self.layout.max_num_batched_tokens)
        self.slots[:] = PAD_SLOT_ID
        return self.slot_mappings[:, :tokens]

    def restore(self, state):
        pairs = (
            (self.sources, state.block_tables),
            (self.targets, state.input_block_tables),
            ([self.slots], [state.slot_mappings]),
        )
        for mine, its in pairs:
            if [array.shape for array in mine] != [tuple(saved.shape) for saved in its]:
                raise ValueError("the snapshot is of another layout")
        for mine, its in pairs:
            for array, saved in zip(mine, its, strict=True):
                array[:] = saved.cpu().numpy()
        self.num_blocks[:] = state.num_blocks
        self.visible[:] = state.num_blocks
        self.num_dirty_rows = int(state.num_dirty_rows)
        self.writes.clear()
