"""vLLM's own block tables as a variant; its methods are called as they are.

The catalogue runs this file once for each arm, as it does with any variant's file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.vllm.differences import (
    INT32_RANKS,
    INT32_SLOTS,
    ONE_LENGTH,
    OUT_PTRS,
    POSITIONS_OUTSIDE,
    REFUSALS,
    ROWS_KEPT,
    SLOTS_KEPT,
    WRITES_TO_A_ROW,
    OpponentTables,
)
from bt_bench.suites.block_tables.vllm.loading import is_interpreted, load_block_tables
from bt_bench.suites.block_tables.vllm.source import BLOCK_TABLE, VllmSource
from bt_kernels.interface import TableState
from bt_kernels.layout import (
    CONTEXT_PARALLELISM,
    CUSTOM_OUTPUTS,
    DISABLED_GROUPS,
    SLIDING_WINDOW,
    TableLayout,
)

_CONSTRUCTOR, _GATHER, _SLOTS = "__init__", "gather_block_tables", "compute_slot_mappings"
# Only in a copy with the patch of `bt_bench.upstream.one_launch`.
_BOTH = "gather_and_compute_slot_mappings"
# Arguments of the constructor that a layout has under the same name.
_NUMBERS = ("max_num_reqs", "max_num_batched_tokens", "cp_size", "cp_rank", "cp_interleave")
_LISTS = ("block_sizes", "slot_mapping_enabled", "dcp_sharded", "sliding_window_reach")
_OTHERS = ("max_model_len", "max_num_blocks_per_group", "device")
# The arguments that each may get; a release takes some of them.
_KNOWN = {
    _CONSTRUCTOR: {"self", *_NUMBERS, *_LISTS, *_OTHERS},
    _GATHER: {"self", "idx_mapping", "num_reqs_padded", "out", "out_ptrs", "num_computed_tokens"},
    _SLOTS: {"self", "idx_mapping", "query_start_loc", "positions", "num_tokens_padded", "out"},
}
# The parameters that a release must have for a feature. Dummy requests are no feature of any
# release, since its gather leaves them undefined.
_FEATURES = {
    DISABLED_GROUPS: {(_CONSTRUCTOR, "slot_mapping_enabled")},
    SLIDING_WINDOW: {(_CONSTRUCTOR, "sliding_window_reach"), (_GATHER, "num_computed_tokens")},
    CONTEXT_PARALLELISM: {
        (_CONSTRUCTOR, name) for name in ("cp_size", "cp_rank", "cp_interleave", "dcp_sharded")
    },
    CUSTOM_OUTPUTS: {(_GATHER, "out"), (_GATHER, "out_ptrs"), (_SLOTS, "out")},
}
_OF_EVERY_RELEASE = {WRITES_TO_A_ROW, POSITIONS_OUTSIDE, INT32_SLOTS, REFUSALS}


def adapt(source: VllmSource) -> type[Any]:
    """Build the variant of a source, with its own copies of all functions.

    Raises:
        UsageError: for a source that cannot be loaded, or whose methods require unknown arguments.
    """
    wrapped = load_block_tables(source)
    takes = {(method, name) for method in _KNOWN for name in _parameters(source, wrapped, method)}
    differences = set(_OF_EVERY_RELEASE)
    if (_CONSTRUCTOR, "max_model_len") in takes:
        differences.add(ONE_LENGTH)
    if (_GATHER, "num_reqs_padded") not in takes:
        differences.add(ROWS_KEPT)
    if (_SLOTS, "num_tokens_padded") not in takes:
        differences.add(SLOTS_KEPT)
    if (_GATHER, "out_ptrs") in takes:
        differences.add(OUT_PTRS)
    features = {name for name, needed in _FEATURES.items() if needed <= takes}
    if is_interpreted():
        # Triton's interpreter cannot negate a bool, as the kernel does with `dcp_sharded`.
        features.discard(CONTEXT_PARALLELISM)
    if CONTEXT_PARALLELISM in features:
        differences.add(INT32_RANKS)
    attributes = {
        "wrapped": wrapped,
        "takes": takes,
        "features": frozenset(features),
        "differences": frozenset(differences),
        "__doc__": f"The `BlockTables` of vLLM {source.release}.",
    }
    return type("Variant", (Adapter,), attributes)


def _parameters(source: VllmSource, wrapped: type[Any], method: str) -> Mapping[str, Any]:
    """Return the parameters of a method, each of them known or optional."""
    where = f"{source.path_of(BLOCK_TABLE)}: BlockTables"
    function = getattr(wrapped, method, None)
    if function is None:
        raise UsageError(f"{where} has no {method}; use a release that has it (docs/vllm.md)")
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        if name not in _KNOWN[method] and parameter.default is inspect.Parameter.empty:
            raise UsageError(
                f"{where}.{method} takes {name!r}, which bt-bench does not know; use a release "
                "whose arguments it knows (docs/vllm.md)"
            )
    return parameters


class Adapter(OpponentTables):
    """A variant around the `BlockTables` of some release.

    Where the signatures agree, an operation's method is the wrapped object's own, and none of our
    code runs in it. Methods that are no operation need not be fast.

    Args:
        layout: sizes and options, all of them supported by the release.
        device: where the tables live.
    """

    wrapped: type[Any]
    takes: frozenset[tuple[str, str]]
    features: frozenset[str]
    launch_paths = ("jit",)
    capturable = frozenset({_GATHER, _SLOTS, _BOTH})

    def __init__(self, layout: TableLayout, device: torch.device | str) -> None:
        self.layout = layout
        self.device = torch.device(device)
        tables = self.wrapped(**_arguments(layout, self.device, self.takes))
        self._tables = tables
        self.block_tables: list[torch.Tensor] = [table.gpu for table in tables.block_tables]
        self.input_block_tables: list[torch.Tensor] = tables.input_block_tables
        self.slot_mappings: torch.Tensor = tables.slot_mappings
        self.num_blocks = tables.num_blocks.np
        self.append_block_ids = tables.append_block_ids
        self.apply_staged_writes = tables.apply_staged_writes
        self.get_dummy_block_tables = tables.get_dummy_block_tables
        self.get_dummy_slot_mappings = tables.get_dummy_slot_mappings
        gather = _gather(tables, padded=(_GATHER, "num_reqs_padded") in self.takes)
        slots = _slots(tables, padded=(_SLOTS, "num_tokens_padded") in self.takes)
        self.gather_block_tables = gather
        self.compute_slot_mappings = slots
        both = getattr(tables, _BOTH, None)
        self.gather_and_compute_slot_mappings = _in_turn(gather, slots, both)
        self.prepare_step = _in_turn(gather, slots, both, tables.apply_staged_writes)

    @property
    def num_dirty_rows(self) -> int:
        """Return the number of input rows filled last; 0 in a release that does not count them."""
        return getattr(self._tables, "_num_dirty_rows", 0)

    def snapshot(self) -> TableState:
        """Return a copy of the state, on the device of the tables, without writes still staged."""
        return TableState(
            [table.clone() for table in self.block_tables],
            [table.clone() for table in self.input_block_tables],
            self.slot_mappings.clone(),
            self.num_blocks.copy(),
            self.num_dirty_rows,
        )

    def restore(self, state: TableState) -> None:
        """Restore a snapshot in place, and discard staged writes."""
        tables = self._tables
        for staged, table in zip(tables.block_tables, state.block_tables, strict=True):
            staged.clear_staged_writes()
            staged.gpu.copy_(table)
        for target, table in zip(self.input_block_tables, state.input_block_tables, strict=True):
            target.copy_(table)
        self.slot_mappings.copy_(state.slot_mappings)
        self.num_blocks[...] = state.num_blocks
        if hasattr(tables, "_num_dirty_rows"):
            tables._num_dirty_rows = state.num_dirty_rows
        if self.device.type == "cuda":
            # `copy_to_uva` alternates between two buffers, and pending work may read both.
            torch.cuda.synchronize(self.device)
        tables.num_blocks.copy_to_uva()


def _arguments(
    layout: TableLayout, device: torch.device, takes: frozenset[tuple[str, str]]
) -> dict[str, Any]:
    """Return the arguments that the constructor takes."""
    values: dict[str, Any] = {name: getattr(layout, name) for name in _NUMBERS}
    values |= {name: list(getattr(layout, name)) for name in _LISTS}
    # The most tokens that every row holds; the release derives all widths from it.
    longest = min(w * b for w, b in zip(layout.widths, layout.block_sizes, strict=True))
    others = (longest, list(layout.widths), device)
    values |= zip(_OTHERS, others, strict=True)
    return {name: value for name, value in values.items() if (_CONSTRUCTOR, name) in takes}


def _gather(tables: Any, *, padded: bool) -> Callable[..., Any]:
    gather: Callable[..., Any] = tables.gather_block_tables
    if padded:
        return gather
    return lambda idx_mapping, _num_reqs_padded: gather(idx_mapping)


def _slots(tables: Any, *, padded: bool) -> Callable[..., Any]:
    slots: Callable[..., Any] = tables.compute_slot_mappings
    if padded:
        return slots
    return lambda idx_mapping, query_start_loc, positions, _num_tokens_padded: slots(
        idx_mapping, query_start_loc, positions
    )


def _in_turn(
    gather: Callable[..., Any],
    slots: Callable[..., Any],
    both: Callable[..., Any] | None,
    apply: Callable[[], None] | None = None,
) -> Callable[..., Any]:
    """Return operation 5, or with `apply` operation 6: the calls one after the other.

    `both` gathers and computes slots in one call. It has no parameters for buffers of the caller.
    """

    def call(
        idx_mapping: Any,
        query_start_loc: Any,
        positions: Any,
        num_reqs_padded: int,
        num_tokens_padded: int,
        slots_out: Any = None,
        **rows: Any,
    ) -> Any:
        if apply is not None:
            apply()
        if both is not None and slots_out is None and rows.get("out") is None:
            return both(
                *(idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded),
                rows.get("num_computed_tokens"),
            )
        block_tables = gather(idx_mapping, num_reqs_padded, **rows)
        if slots_out is None:
            return block_tables, slots(idx_mapping, query_start_loc, positions, num_tokens_padded)
        return block_tables, slots(
            idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )

    return call
