"""Recordings of a stand-in for vLLM's runner by the plugin, and recordings by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
from beside.draw import INTERPRETED, Scheduler, layout_of

from bt_kernels.engines.plugin import recording
from bt_kernels.engines.recordings import RECORDING, Frame, Header
from bt_kernels.layout import TableLayout
from support.vllm_runner import RELEASE, Step, imported_from, write_package

SEED = 11  # four rows, three groups, one of them a ring, and one with a window
KINDS = {"step": 0.75, "no tokens": 0.1, "dummy": 0.1, "pcp": 0.05}


def write(path: Path, layout: TableLayout, *frames: Frame) -> Path:
    """Write a recording by hand."""
    path.write_bytes(header_of(layout).to_line() + b"".join(frame.take() for frame in frames))
    return path


@dataclass
class Made:
    """The calls that a runner made.

    Args:
        layout: layout of its tables.
        path: the recording.
        appends: row, ids per group and overwrite, since the batch before, of each batch.
        batches: arguments of each gather into the persistent tables, and of its slots.
        arguments: those of the constructor.
    """

    layout: TableLayout
    path: Path
    appends: list[list[tuple[int, list[list[int]], bool]]] = field(default_factory=list)
    batches: list[dict[str, Any]] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)


def header_of(layout: TableLayout) -> Header:
    """Return the header of a recording of tables of a layout."""
    return Header(
        RECORDING,
        RELEASE,
        "cpu",
        "",
        layout.block_sizes,
        layout.max_num_reqs,
        layout.max_num_batched_tokens,
        layout.widths,
        layout.cp_size,
        layout.cp_rank,
        layout.cp_interleave,
        layout.slot_mapping_enabled,
        layout.dcp_sharded,
        layout.sliding_window_reach,
    )


def record(root: Path, num_steps: int, seed: int = SEED, model: str = "gpt-oss-120b") -> Made:
    """Play steps of a stand-in runner whose calls the plugin records in a file of a folder."""
    rng = np.random.default_rng((56, seed))
    drawn = layout_of(rng, model, INTERPRETED, Counter())
    scheduler = Scheduler(rng, drawn, Counter())
    made = Made(drawn.layout, root / "traffic.btrec")
    with imported_from(write_package(root / "package")) as module:
        theirs = module("block_table").BlockTables
        kind = _noting(theirs, made)
        runner = module("model_runner").GPUModelRunner(drawn.layout, kind)
        tables = runner.block_tables
        recording.record(tables, made.path, theirs, (), made.arguments)
        names, chances = list(KINDS), list(KINDS.values())
        for number in range(num_steps):
            step = Step(scheduler.schedule(), str(rng.choice(names, p=chances)))
            tables.redirect_writes_to_null_block = number % 11 == 7
            tables.begin_step()
            runner.play(step)
            tables.end_step()
        recording.end_all()
    (path,) = root.glob("traffic.*.btrec")
    path.rename(made.path)
    return made


def _noting(kind: type[Any], made: Made) -> type[Any]:
    """Return the class of tables that note their calls.

    The runner and the plugin read the signatures, which are those of the class.
    """

    class Tables(kind):  # type: ignore[misc]
        redirect_writes_to_null_block = False

        @wraps(kind.__init__)
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            made.arguments = kwargs
            self.written: list[Any] = []
            self.gathered: dict[str, Any] = {}

        def append_block_ids(self, row: int, ids: Any, overwrite: bool) -> None:
            super().append_block_ids(row, ids, overwrite)
            null = self.redirect_writes_to_null_block
            lists = [[0] * len(each) if null else [int(i) for i in each] for each in ids]
            self.written.append((row, lists, overwrite))

        @wraps(kind.gather_block_tables)
        def gather_block_tables(self, rows: Any, *args: Any) -> Any:
            padded, out, _, computed = args
            if out is None:
                self.gathered = {"rows": rows.tolist(), "reqs": padded}
                self.gathered["computed"] = computed[rows].tolist()
            return super().gather_block_tables(rows, *args)

        @wraps(kind.compute_slot_mappings)
        def compute_slot_mappings(self, rows: Any, *args: Any) -> Any:
            starts, positions, padded, out = args
            if out is None:
                made.appends.append(self.written)
                self.written = []
                of_slots = {"starts": starts.tolist(), "positions": positions.tolist()}
                made.batches.append(self.gathered | of_slots | {"tokens": padded})
            return super().compute_slot_mappings(rows, *args)

    return Tables
