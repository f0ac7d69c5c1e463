"""Tensor arguments of a scenario's calls: views of longer storage, sometimes reused."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from bt_bench.suites.block_tables.exploring import calls, refusals
from bt_bench.suites.block_tables.exploring.calls import Batch, Form, Write
from bt_kernels.layout import TableLayout

_KEPT_BYTES = 1 << 15
SPOILED = 0x5BD1E995  # no row, token or position
OTHER_ID = 77  # between the ids of a strided array
_DTYPES = {
    "query_start_loc": torch.int32,
    "positions": torch.int64,
    "num_computed_tokens": torch.int32,
}
_OTHER_DTYPES = (torch.int32, torch.int64, torch.int16, torch.float32, torch.float64, torch.bool)


class Vectors:
    """A factory of the one-dimensional inputs.

    Args:
        device: where the inputs live.
        offset: elements before each input in its storage, which may leave it unaligned.
        kept: whether all inputs of a name share one buffer, as long as it is large enough.
    """

    def __init__(self, device: torch.device, offset: int, *, kept: bool = False) -> None:
        self._device = device
        self._offset = offset
        self._last: dict[str, Vector] = {}
        self._buffers: dict[str, torch.Tensor] | None = {} if kept else None

    def make(
        self, name: str, values: np.ndarray[Any, Any], dtype: torch.dtype, *, same: bool
    ) -> Vector:
        """Make a tensor of these values; with `same`, reuse the name's last one if it fits."""
        last, size = self._last.get(name), len(values)
        if same and last is not None and last.view.dtype is dtype and len(last.values) == size:
            last.values = values
            _put(last.view, values)
            return last
        # The margins hold plausible values: only their place gives them away.
        margin = np.resize(values, self._offset) if size else np.zeros(self._offset)
        whole = np.concatenate([margin, values, margin]).astype(np.int64)
        storage = self._storage(name, torch.tensor(whole, dtype=dtype))
        view = storage[self._offset : self._offset + size]
        self._last[name] = made = Vector(name, storage, view, values, margin)
        return made

    def _storage(self, name: str, contents: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device with these contents."""
        if self._buffers is None:
            return contents.to(self._device)
        count = contents.numel() * contents.element_size()
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < count:
            size = max(count, _KEPT_BYTES)
            buffer = torch.zeros(size - size % -8, dtype=torch.uint8, device=self._device)
            self._buffers[name] = buffer
        storage = buffer[:count].view(contents.dtype)
        _put(storage, contents.numpy())
        return storage


@dataclass
class Vector:
    """An input: its storage, the view passed, the view's values, and the margin on either side."""

    name: str
    storage: torch.Tensor
    view: torch.Tensor
    values: np.ndarray[Any, Any]
    margin: np.ndarray[Any, Any]

    def changed(self) -> bool:
        """Return whether anything in the storage differs from the values put there."""
        wanted = np.concatenate([self.margin, self.values, self.margin])
        return not np.array_equal(self.storage.cpu().numpy(), wanted)


def _put(tensor: torch.Tensor, values: np.ndarray[Any, Any]) -> None:
    """Write values; on the CPU, bypass torch and its version counters."""
    if tensor.device.type == "cpu":
        tensor.numpy()[...] = values
    else:
        tensor.copy_(torch.from_numpy(np.ascontiguousarray(values)))


class Outputs:
    """A set of a caller's output buffers.

    Args:
        layout: layout of the tables.
        rows: rows of each table.
        tokens: slots of each group.
        device: where the buffers live.
        gaps: whether there are gaps between the rows of slots, and before the first.
        side_by_side: whether the tables are parts of one buffer, without gaps.
    """

    def __init__(
        self,
        layout: TableLayout,
        rows: int,
        tokens: int,
        device: torch.device,
        *,
        gaps: bool,
        side_by_side: bool = False,
    ) -> None:
        sizes = [rows * width for width in layout.widths]
        if side_by_side:
            whole = torch.full((sum(sizes),), -3, dtype=torch.int32, device=device)
            parts = list(torch.split(whole, sizes))
        else:
            parts = [torch.full((n,), -3, dtype=torch.int32, device=device) for n in sizes]
        tables = zip(parts, layout.widths, strict=True)
        self._take([table.view(rows, width) for table, width in tables], device)
        shape = layout.num_groups, tokens + 5 * gaps
        count, before = shape[0] * shape[1], 3 * gaps
        storage = torch.full((before + count,), -3, dtype=torch.int64, device=device)
        self.all_slots = storage[before:].view(shape)
        self.slots = self.all_slots[:, :tokens]

    def _take(self, tables: Sequence[torch.Tensor], device: torch.device) -> None:
        self.tables = tuple(tables)
        self.addresses = np.array([table.data_ptr() for table in tables], dtype=np.uint64)
        self.pointers = torch.from_numpy(self.addresses.copy()).to(device)

    def with_first_of(self, other: Outputs) -> Outputs:
        """Return these buffers with the first table of another set."""
        mixed = copy(self)
        mixed._take((other.tables[0], *self.tables[1:]), self.pointers.device)
        return mixed

    def point(self, pointers: torch.Tensor) -> None:
        """Write the addresses into a tensor that other sets of buffers share."""
        self.pointers = pointers
        _put(pointers, self.addresses)

    def fill(self, value: int) -> None:
        """Fill all tables and slots with a value."""
        for table in self.tables:
            table.fill_(value)
        self.all_slots.fill_(value)


@dataclass
class Arguments:
    """The arguments of a call on a batch; `vectors` are the inputs made for it."""

    vectors: dict[str, Vector]
    tensors: dict[str, torch.Tensor]
    reqs: Any
    tokens: Any
    out: Sequence[torch.Tensor] | None
    out_ptrs: torch.Tensor | None
    slots_out: torch.Tensor | None

    @classmethod
    def of(
        cls,
        batch: Batch,
        vectors: Vectors,
        outputs: Outputs | None,
        out_list: list[torch.Tensor],
        *,
        same: bool,
    ) -> Arguments:
        """Build valid arguments for a batch. `out` is always the same list."""
        if outputs is not None:
            out_list[:] = outputs.tables
        has_tables = outputs is not None and batch.parts is not calls.Parts.SLOTS
        has_slots = outputs is not None and batch.parts is not calls.Parts.TABLES
        behind = np.full(batch.more, 77)
        dtypes = _DTYPES | {"idx_mapping": torch.int64 if batch.int64 else torch.int32}
        given = {
            "idx_mapping": batch.rows,
            "query_start_loc": np.concatenate([batch.starts, behind]),
            "positions": batch.positions,
        }
        if batch.computed is not None:
            given["num_computed_tokens"] = np.concatenate([batch.computed, behind])
        made = {
            name: vectors.make(name, values, dtypes[name], same=same)
            for name, values in given.items()
        }
        return cls(
            made,
            {name: vector.view for name, vector in made.items()},
            np.int32(batch.reqs) if batch.numpy_sizes else batch.reqs,
            np.int64(batch.tokens) if batch.numpy_sizes else batch.tokens,
            out_list if has_tables else None,
            outputs.pointers if outputs is not None and has_tables and batch.pointers else None,
            outputs.slots if outputs is not None and has_slots else None,
        )

    def call(self, tables: Any, method: str) -> object:
        """Make the call. Unused options are not passed: variants may lack them."""
        tensors = self.tensors
        batch = tensors["idx_mapping"], tensors["query_start_loc"], tensors["positions"]
        computed = tensors.get("num_computed_tokens")
        rows = {"num_computed_tokens": computed, "out": self.out, "out_ptrs": self.out_ptrs}
        rows = {name: value for name, value in rows.items() if value is not None}
        slots = {} if self.slots_out is None else {"slots_out": self.slots_out}
        match method:
            case calls.GATHER:
                return tables.gather_block_tables(batch[0], self.reqs, **rows)
            case calls.SLOTS:
                only = {"out": self.slots_out} if slots else {}
                return tables.compute_slot_mappings(*batch, self.tokens, **only)
        return getattr(tables, method)(*batch, self.reqs, self.tokens, **rows, **slots)

    def changed(self) -> str:
        """Describe which inputs were changed; empty if none."""
        names = [name for name, vector in self.vectors.items() if vector.changed()]
        if self.out_ptrs is not None and self.out is not None:
            wanted = [table.data_ptr() for table in self.out]
            names += ["out_ptrs"] * (self.out_ptrs.tolist() != wanted)
        return f"{', '.join(names)} changed" if names else ""

    def arrive_late(self, ahead: Callable[[], None]) -> None:
        """Zero the inputs, and enqueue their contents in the current stream, behind other work.

        A variant that reads them in another stream, or does not wait for them, finds zeros.

        Args:
            ahead: enqueues the work that precedes the contents.
        """
        storages = [vector.storage for vector in self.vectors.values()]
        contents = [storage.clone() for storage in storages]
        for storage in storages:
            storage.zero_()
        torch.cuda.synchronize(storages[0].device)
        ahead()
        for storage, content in zip(storages, contents, strict=True):
            storage.copy_(content)

    def spoil(self) -> None:
        """Overwrite the inputs, as an engine may once the call has been made."""
        for vector in self.vectors.values():
            vector.view.fill_(SPOILED)

    def without_more(self, count: int) -> Arguments:
        """Return the arguments without the surplus elements at the end of vectors."""
        if not count:
            return self
        shorter = {
            name: self.tensors[name][:-count]
            for name in ("query_start_loc", "num_computed_tokens")
            if name in self.tensors
        }
        return replace(self, tensors=self.tensors | shorter)

    def with_fault(self, what: str, layout: TableLayout, pick: int) -> Arguments:
        """Return the arguments with one fault, given by its name in `refusals`."""
        name, _, fault = what.partition(" ")
        if name not in refusals.VECTORS or what not in refusals.ARGUMENTS:
            return _FAULTS[what](self, layout, pick)
        right = self.tensors.get(name)
        if right is None:  # `num_computed_tokens`, which the batch lacks: a wrong one is passed
            device = self.tensors["idx_mapping"].device
            right = torch.zeros(layout.max_num_reqs, dtype=torch.int32, device=device)
        return replace(self, tensors=self.tensors | {name: _with_fault(name, right, fault, pick)})

    def _with(self, name: str, values: list[int]) -> Arguments:
        like = self.tensors[name]
        if len(values) == like.numel():  # in place, like a caller that refills its buffers
            _put(like, np.array(values))
            return self
        made = torch.tensor(values, dtype=like.dtype, device=like.device)
        return replace(self, tensors=self.tensors | {name: made})


def _with_fault(name: str, tensor: torch.Tensor, fault: str, pick: int) -> torch.Tensor:
    match fault:
        case refusals.WRONG_DTYPE:
            right = {tensor.dtype} | (
                {torch.int32, torch.int64} if name == "idx_mapping" else set()
            )
            wrong = [dtype for dtype in _OTHER_DTYPES if dtype not in right]
            # The likeliest mistake is the other integer dtype.
            return tensor.to(wrong[0 if pick % 2 else pick // 2 % len(wrong)])
        case refusals.STRIDED:
            length = max(2, tensor.numel())
            if pick % 3 == 0:  # all elements share one address
                return tensor.new_zeros(1).expand(length)
            step = 1 + pick % 3
            wanted = tensor.new_zeros(step * length)[::step]
            wanted[: tensor.numel()] = tensor
            return wanted
        case refusals.TWO_DIMENSIONS:
            return tensor.reshape(1, -1) if pick % 2 else tensor.reshape(-1, 1)
        case refusals.ELSEWHERE:
            return _elsewhere(tensor)
    return tensor[:-1]


def _reqs_below(self: Arguments, _layout: TableLayout, pick: int) -> Arguments:
    reqs = self.tensors["idx_mapping"].numel()
    if pick % 2:  # the rest of the batch is dummies
        rows = self.tensors["idx_mapping"].tolist()
        self = self._with("idx_mapping", [*rows[:1], *[-1] * (reqs - 1)])
        return replace(self, reqs=min(1, reqs - 1))
    return replace(self, reqs=(reqs - 1, 0, -1)[pick // 2 % 3])


def _outs(self: Arguments, change: Any) -> Arguments:
    assert self.out is not None
    return replace(self, out=(*self.out[:-1], change(self.out[-1])), out_ptrs=None)


def _too_many(self: Arguments, layout: TableLayout) -> int:
    """Return one request more than fit into the tables that a gather fills."""
    return 1 + (layout.max_num_reqs if self.out is None else len(self.out[0]))


def _batch_too_long(self: Arguments, layout: TableLayout, _pick: int) -> Arguments:
    reqs = _too_many(self, layout)
    longer = self._with("idx_mapping", [0] * reqs)._with("query_start_loc", [0] * (reqs + 1))
    return replace(longer, reqs=reqs, slots_out=None)  # a caller's slots take more requests


def _rows(self: Arguments, row: int) -> Arguments:
    return self._with("idx_mapping", [row] * self.tensors["idx_mapping"].numel())


def _starts(self: Arguments, first: int, last: int) -> Arguments:
    starts = [0] * self.tensors["query_start_loc"].numel()
    starts[0], starts[-1] = first, last
    return self._with("query_start_loc", starts)


def _falling(self: Arguments) -> Arguments:
    """Let `query_start_loc` fall; with three requests or more, in the middle, with a right end."""
    starts = self.tensors["query_start_loc"]
    last = int(starts[-1]) if starts.numel() > 3 else 0
    return self._with("query_start_loc", [0, 1, *[0] * (starts.numel() - 3), last])


def _elsewhere(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("meta" if tensor.device.type == "cpu" else "cpu")


def _odd(size: int, pick: int) -> Any:
    """Return a size that is no integer."""
    return (size + 0.5, float(size), None)[pick % 3]


def _pointers(self: Arguments) -> torch.Tensor:
    """Return the right addresses of `out`."""
    assert self.out is not None
    addresses = [table.data_ptr() for table in self.out]
    return torch.tensor(addresses, dtype=torch.uint64, device=self.out[0].device)


def _ptrs_dtype(self: Arguments, _layout: TableLayout, pick: int) -> Arguments:
    dtype = (torch.int32, torch.float64, torch.int16)[pick % 3]
    return replace(self, out_ptrs=_pointers(self).to(torch.int64).to(dtype))


def _ptrs_wrong(self: Arguments, _layout: TableLayout, pick: int) -> Arguments:
    """Shift one address in `out_ptrs`; only tables that validate read these contents."""
    addresses = _pointers(self).tolist()
    addresses[pick % len(addresses)] += (4, -4, 64)[pick // 7 % 3]
    device = self.tensors["idx_mapping"].device
    return replace(self, out_ptrs=torch.tensor(addresses, dtype=torch.uint64, device=device))


def _slots_strided(self: Arguments, _layout: TableLayout, _pick: int) -> Arguments:
    """Space the elements of a row two apart."""
    assert self.slots_out is not None
    groups, tokens = self.slots_out.shape
    wide = self.slots_out.new_zeros((groups, 2 * max(tokens, 2)))
    return replace(self, slots_out=wide[:, ::2])


_FAULTS: dict[str, Callable[[Any, TableLayout, int], Arguments]] = {
    refusals.REQS_BELOW: _reqs_below,
    refusals.REQS_ABOVE: lambda a, layout, _: replace(a, reqs=_too_many(a, layout)),
    refusals.TOKENS_ABOVE: lambda a, layout, _: replace(
        a,
        tokens=(layout.max_num_batched_tokens if a.slots_out is None else a.slots_out.shape[1]) + 1,
    ),
    refusals.TOKENS_BELOW: lambda a, *_: replace(a, tokens=-1),
    refusals.BATCH_TOO_LONG: _batch_too_long,
    refusals.OUT_MISSING: lambda a, *_: replace(a, out=a.out[:-1], out_ptrs=None),
    refusals.OUT_DTYPE: lambda a, *_: _outs(a, lambda table: table.to(torch.int64)),
    refusals.OUT_WIDTH: lambda a, *_: _outs(
        a, lambda table: table.new_zeros((table.shape[0], table.shape[1] + 1))
    ),
    refusals.OUT_SHORT: lambda a, *_: replace(
        _outs(a, lambda table: table[: max(a.reqs, 1) - 1]), reqs=max(a.reqs, 1)
    ),
    refusals.OUT_STRIDED: lambda a, *_: _outs(
        a,
        lambda table: table.new_zeros((table.shape[0] + 1, 2 * table.shape[1] + 2))[
            : table.shape[0], : 2 * table.shape[1] : 2
        ],
    ),
    refusals.PTRS_SHORT: lambda a, *_: replace(
        a, out_ptrs=torch.zeros(len(a.out) + 1, dtype=torch.uint64, device=a.out[0].device)
    ),
    refusals.SLOTS_DTYPE: lambda a, *_: replace(a, slots_out=a.slots_out.to(torch.int32)),
    refusals.SLOTS_SHORT: lambda a, *_: replace(
        a, slots_out=a.slots_out[:, : max(a.tokens, 1) - 1].contiguous(), tokens=max(a.tokens, 1)
    ),
    refusals.SLOTS_GROUPS: lambda a, *_: replace(a, slots_out=a.slots_out[:-1]),
    refusals.SLOTS_STRIDED: _slots_strided,
    refusals.SLOTS_DIMENSIONS: lambda a, *_: replace(a, slots_out=a.slots_out[0]),
    refusals.SLOTS_ELSEWHERE: lambda a, *_: replace(a, slots_out=_elsewhere(a.slots_out)),
    refusals.OUT_ELSEWHERE: lambda a, *_: _outs(a, _elsewhere),
    refusals.PTRS_ALONE: lambda a, *_: replace(a, out=None, out_ptrs=_pointers(a)),
    refusals.PTRS_DTYPE: _ptrs_dtype,
    refusals.PTRS_DIMENSIONS: lambda a, *_: replace(a, out_ptrs=_pointers(a).reshape(1, -1)),
    refusals.PTRS_ELSEWHERE: lambda a, *_: replace(a, out_ptrs=_elsewhere(_pointers(a))),
    refusals.PTRS_WRONG: _ptrs_wrong,
    refusals.REQS_ODD: lambda a, _, pick: replace(a, reqs=_odd(a.reqs, pick)),
    refusals.TOKENS_ODD: lambda a, _, pick: replace(a, tokens=_odd(a.tokens, pick)),
    refusals.STARTS_PADDED: lambda a, *_: replace(
        a, tokens=int(a.tensors["query_start_loc"][a.tensors["idx_mapping"].numel()]) - 1
    ),
    refusals.ROW_UNKNOWN: lambda a, layout, _: _rows(a, layout.max_num_reqs),
    refusals.ROW_NEGATIVE: lambda a, *_: _rows(a, -2),
    refusals.STARTS_LATE: lambda a, *_: _starts(a, 1, 1),
    refusals.STARTS_FALL: lambda a, *_: _falling(a),
    refusals.STARTS_LONG: lambda a, *_: _starts(a, 0, a.tensors["positions"].numel() + 1),
}


def lists_of(write: Write, form: Form) -> list[Any]:
    """Return the ids of a write, per group, in containers that nobody else has."""
    return [in_form(ids, form) for ids in write.block_ids]


def in_form(ids: Sequence[int], form: Form) -> Any:
    """Return ids in a caller's kind of container; in a list if int32 is too small for them."""
    if form is Form.ARRAY:
        return np.array(ids, dtype=np.int64)
    fits = all(-(2**31) <= one < 2**31 for one in ids)
    if form is Form.ARRAY_32 and fits:
        return np.array(ids, dtype=np.int32)
    if form is Form.C_ARRAY and fits:
        return array("i", ids)
    if form is Form.STRIDED:
        wide = np.full(2 * len(ids), OTHER_ID, dtype=np.int64)
        wide[::2] = ids
        return wide[::2]
    return tuple(ids) if form is Form.TUPLE else list(ids)


def shifted(batch: Batch, before: int) -> Batch:
    """Return the batch for tables with `before` additional rows in front of all others."""
    if not before:
        return batch
    computed = batch.computed
    if computed is not None:
        computed = np.concatenate([np.zeros(before, dtype=np.int64), computed])
    return replace(batch, rows=batch.rows + before * (batch.rows >= 0), computed=computed)
