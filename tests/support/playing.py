"""Plays the suite's scenarios on classes of tables, and compares each call with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from bt_bench.protocol import Guard, MismatchError, Source
from bt_bench.suites.block_tables.exploring.calls import Scenario
from bt_bench.suites.block_tables.exploring.explorer import TableExplorer
from bt_bench.suites.block_tables.exploring.player import TablePlayer
from bt_bench.suites.block_tables.exploring.schedule import SCENARIOS, theme_of
from bt_bench.variants.catalogue import load_reference
from bt_bench.worker.checking.interpreter_guard import guarded_memory
from bt_kernels.engines import BlockTables
from bt_kernels.engines.vllm import SourceTable
from bt_kernels.interface import JIT
from bt_kernels.layout import FEATURES, TableLayout

CPU = torch.device("cpu")


class EngineTables(BlockTables):
    """`bt_kernels.BlockTables`, made and read by the names that variants have."""

    def __init__(
        self, layout: TableLayout, device: torch.device, *, steps_in_flight: int | None = None
    ) -> None:
        super().__init__(
            layout.block_sizes,
            layout.max_num_reqs,
            layout.max_num_batched_tokens,
            layout.widths,
            device,
            layout.cp_size,
            layout.cp_rank,
            layout.cp_interleave,
            layout.slot_mapping_enabled,
            layout.dcp_sharded,
            layout.sliding_window_reach,
            steps_in_flight=steps_in_flight,
        )
        # Engines need neither snapshots nor a choice of launch paths.
        self.variant = self._variant
        self.snapshot, self.restore = self.variant.snapshot, self.variant.restore
        self.num_blocks = self.num_blocks.np

    @property
    def validate(self) -> bool:
        return self.variant.validate

    @validate.setter
    def validate(self, validate: bool) -> None:
        self.variant.validate = validate

    def init_block_table_layout_tensors(self) -> None:
        tables = [getattr(table, "gpu", table) for table in self.block_tables]
        apply = self._variant.apply_staged_writes
        self.block_tables = [SourceTable(table, apply) for table in tables]
        super().init_block_table_layout_tensors()
        self.block_tables = tables


def scenario(
    tables: type[Any], number: int, *, seed: int = 0, without: frozenset[str] = frozenset()
) -> Scenario:
    """A scenario of a run that explores this class of tables, perhaps without some abilities."""
    explorer = TableExplorer()
    features = FEATURES | explorer.abilities(tables) - without
    return explorer.scenario(Source(seed, number, features))


def first_of(theme: str) -> int:
    """The first scenario of a theme."""
    return next(number for number in range(SCENARIOS) if theme_of(number) == theme)


def chosen(tables: type[Any], *, native: bool, path: str = JIT) -> type[Any]:
    """Such tables with or without helpers in C, on a launch path, if they have a choice."""

    class Chosen(tables):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            variant = getattr(self, "variant", self)
            if path in variant.launch_paths:
                variant.launch_path = path

    if hasattr(tables, "native"):
        Chosen.native = native
    return Chosen


def watched(current: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> Guard:
    """A guard which holds that a call leaves current what was.

    Args:
        current: says what is.
        before: runs before each call, and may change it.
    """

    @contextmanager
    def guard(*_: object) -> Iterator[None]:
        before()
        wanted = current()
        yield
        assert current() == wanted

    return guard


def compare(
    tables: type[Any], made: Scenario, device: torch.device, guard: Guard | None = None
) -> None:
    """Plays a scenario on tables and on the reference.

    Args:
        tables: their class.
        made: the scenario.
        device: where the tables live; the reference lives on the CPU.
        guard: holds while a call runs; `None`: that of `check`.

    Raises:
        MismatchError: for the first call after which anything differs; a note says which it is.
    """
    if guard is None:
        guard = guarded_memory if device.type == "cpu" else lambda *_: nullcontext()
    played = TablePlayer().play(tables, made, device, guard)
    reference = TablePlayer().play(load_reference(), made, CPU, None)
    for place, call in enumerate(made.calls):
        try:
            wanted, found = next(reference), next(played)
            for name, contents in wanted.items():
                if not np.array_equal(contents, found.get(name)):
                    raise MismatchError(f"{name} is {found.get(name)}; expected {contents}")
        except BaseException as error:
            error.add_note(f"{made.theme}, {made.layouts[call.table]}, call {place}: {call}")
            raise
