"""Whole batches in shadow mode: vLLM prepares each of them, and so does ours, beside it.

Ours writes into copies of vLLM's buffers, which are made equal to these before each batch, since
others write into them between steps. Compared are the buffers, whole, all fields of the batch, and
its tables and slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import torch

from bt_kernels.batch_inputs.buffers import InputBuffers
from bt_kernels.batch_inputs.interface import PERSISTENT, PreparedBatch
from bt_kernels.engines.plugin.counting import COUNTS
from bt_kernels.engines.plugin.deferring import DeferringTables
from bt_kernels.engines.plugin.preparing import BatchPreparer, names_of
from bt_kernels.engines.plugin.shadowing import PREPARES

_Method = Callable[..., Any]
_Pair = tuple[str, torch.Tensor, torch.Tensor]

_NOT_COMPARED = ("req_ids", "fast_prefill", "prompt_lens")
"""Fields that ours passes on, or that follow from others."""


class BatchComparer:
    """Prepares batches of shadow mode a second time, into tensors of its own, and compares.

    Args:
        ours: prepares them, into copies of the runner's buffers.
    """

    def __init__(self, ours: BatchPreparer) -> None:
        self._ours = ours
        self._last: tuple[Any, PreparedBatch, Any] | None = None

    def prepare_inputs(
        self,
        method: _Method,
        runner: Any,
        scheduler_output: Any,
        batch_req_state: Any,
        batch_desc: Any,
        num_active_loras: int,
    ) -> Any:
        """Return the batch of vLLM's method; ours makes it, too."""
        self._last, tables = None, runner.block_tables
        step = scheduler_output, batch_req_state, batch_desc, num_active_loras
        shadow = tables._shadow
        given: tuple[Any, ...] | str = ""
        if not shadow.rests:
            try:
                given = self._ours.arguments(runner, *step[:3])
                if isinstance(given, str):
                    COUNTS.fallbacks[given] += 1
                else:
                    self._copy()
            except Exception as error:
                shadow.fail(tables, PREPARES, error)
                given = ""
        batch = method(runner, *step)
        if not isinstance(given, str):
            shadow.prepare(tables)
            if "_shadow" in vars(tables):
                self._prepare(runner, batch, given, step)
        return batch

    def prepare_attn(self, method: _Method, runner: Any, input_batch: Any) -> Any:
        """Return the results of vLLM's method, and compare all of the batch with ours."""
        last, self._last = self._last, None
        tables = runner.block_tables
        shadow = vars(tables).get("_shadow")
        if shadow is None or last is None or last[0] is not input_batch:
            return method(runner, input_batch)
        shadow.pauses = True  # ours has tables and slots already
        try:
            found = method(runner, input_batch)
        finally:
            shadow.pauses = False
            DeferringTables.end_batch(shadow.ours)
        shadow.run(tables, PREPARES, lambda _: None, _Pairs(self, found, last))
        return found

    def _copy(self) -> None:
        """Take the contents of vLLM's buffers, since others write into them between steps."""
        with torch.inference_mode():
            for _, own, theirs in self.buffers():
                own.copy_(theirs)

    def _prepare(
        self, runner: Any, batch: Any, given: tuple[Any, ...], step: tuple[Any, Any, Any, int]
    ) -> None:
        try:
            prepared = self._ours.prepare(given)
            made = self._ours.batch_of(runner, prepared, given, *step[:3], None)
            self._last = batch, prepared, made
        except Exception as error:
            tables = runner.block_tables
            tables._shadow.fail(tables, PREPARES, error)

    def buffers(self) -> Iterator[_Pair]:
        """Yield name, ours and vLLM's, of all persistent outputs but tables and slots."""
        ours, inputs = self._ours, self._ours.inputs
        for name in names_of(InputBuffers):
            yield name, getattr(inputs.buffers, name), getattr(ours._given, name)
        name = "next_prefill_tokens"
        yield name, getattr(inputs.requests, name), getattr(ours._states, name)


class _Pairs:
    """Pairs of tensors of a batch, made when they are read: that may raise."""

    def __init__(
        self, comparer: BatchComparer, found: Any, last: tuple[Any, PreparedBatch, Any]
    ) -> None:
        self._comparer, self._found = comparer, found
        self._batch, self._prepared, self._made = last

    def __iter__(self) -> Iterator[_Pair]:
        yield from self._comparer.buffers()
        prepared, (tables, slots) = self._prepared, self._found
        for group, (own, table) in enumerate(zip(prepared.block_tables, tables, strict=True)):
            yield from _pairs_of(f"block_tables[{group}] of the batch", own, table)
        yield from _pairs_of("slot_mappings of the batch", prepared.slot_mappings, slots)
        for each in fields(self._batch):
            own, theirs = (getattr(made, each.name) for made in (self._made, self._batch))
            if each.name in PERSISTENT:  # compared as whole buffers
                own, theirs = own.shape, theirs.shape
            if each.name not in _NOT_COMPARED:
                yield from _pairs_of(each.name, own, theirs)


def _pairs_of(name: str, own: Any, theirs: Any) -> Iterator[_Pair]:
    """Yield tensors that are equal if two values are; none further after the first difference."""

    def facts(what: str, find: Callable[[Any], Any]) -> _Pair:
        return f"{what} of {name}", torch.tensor(find(own)), torch.tensor(find(theirs))

    yield facts("presence", lambda value: value is not None)
    if own is None or theirs is None:
        return
    own, theirs = torch.as_tensor(own), torch.as_tensor(theirs)
    yield facts("number of dimensions", torch.Tensor.dim)
    yield facts("size", lambda tensor: tensor.shape)
    yield facts("bytes per element", lambda tensor: tensor.itemsize)
    yield name, own, theirs
