"""The docs promise what a default run reaches: no more, and no less."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring import refusals
from bt_bench.suites.block_tables.exploring.calls import (
    CAPTURED_STEPS,
    STEP,
    Apply,
    Capture,
    Run,
    Stage,
)
from bt_bench.suites.block_tables.exploring.extremes import EXTREMES
from bt_bench.suites.block_tables.exploring.generate import make
from bt_bench.suites.block_tables.exploring.schedule import SCENARIOS
from bt_kernels.layout import FEATURES

DOCS = Path(__file__).parents[4] / "docs" / "variants.md"
ABILITIES = FEATURES | {CAPTURED_STEPS}


def promises() -> list[str]:
    """Phrases with the numbers that the generator really reaches."""
    made = [make(Source(0, number, ABILITIES)) for number in range(len(EXTREMES))]
    calls = [(one.layouts[call.table], call) for one in made for call in one.calls]
    runs = [(layout, call) for layout, call in calls if isinstance(call, Run)]
    steps = [call for _, call in runs if call.method == STEP]
    captured = [layout for layout, call in calls if isinstance(call, Capture)]
    layouts = [layout for one in made for layout in one.layouts]
    product = max(
        (
            (lay.num_groups * len(call.batch.rows), lay, call)
            for lay, call in runs
            if lay.num_groups > 1
        ),
        key=lambda found: found[0],
    )
    most = max(captured, key=lambda lay: (lay.num_groups > 1) * lay.num_groups * lay.max_num_reqs)
    lengths = np.concatenate([np.diff(call.batch.starts) for _, call in runs])
    wide = max(
        layouts,
        key=lambda lay: (
            lay.max_num_reqs * max(lay.widths) * (max(lay.widths) > 9) * (lay.max_num_reqs > 9)
        ),
    )
    groups_wide = max(layouts, key=lambda lay: (lay.num_groups > 3) * max(lay.widths))
    ranks = {layout.cp_size for layout in layouts} - {1}
    writes = max(len(call.writes) for _, call in calls if isinstance(call, Stage))
    quiet = max(call.times for _, call in calls if isinstance(call, Apply))
    assert {1, 1_025} <= set(lengths.tolist())
    assert max(layout.num_groups * (call.batch.starts[-1] > 2_999) for layout, call in runs) == 8
    assert any(reach == 2**31 - 1 for layout in layouts for reach in layout.sliding_window_reach)
    return [
        f"The first {SCENARIOS} are a default run",
        f"Scenarios 0 to {len(EXTREMES) - 1} have",
        f"Two in five scenarios from {len(EXTREMES)} on",
        f"a batch of {max(len(call.batch.rows) for _, call in runs):,} requests",
        f"{len(product[2].batch.rows)} requests of {product[1].num_groups} groups",
        f"a captured step of {most.max_num_reqs} rows and {most.num_groups} groups",
        f"{max(layout.num_groups for layout in layouts)} groups;",
        f"{groups_wide.num_groups} groups of rows of {max(groups_wide.widths):,} columns",
        f"rows of {max(max(layout.widths) for layout in layouts):,} columns",
        f"{wide.max_num_reqs} rows of {max(wide.widths):,} columns",
        f"{max(int(call.batch.starts[-1]) for _, call in runs):,} tokens",
        f"{max(int(call.batch.starts[-1]) for call in steps):,} in a single step",
        f"{min(ranks)} to {max(ranks):,} ranks",
        f"a table of {max(layout.max_num_reqs for layout in layouts):,} rows",
        f"{writes} writes before a step",
        f"{max(count_of_steps(one) for one in made)} steps",
        f"{quiet:,} calls of apply with nothing staged",
        f"some {round(len(refusals.every(ABILITIES)), -1)} wrong calls",
    ]


def count_of_steps(made) -> int:
    return sum(isinstance(call, Run) for call in made.calls)


def test_the_docs_say_what_is_reached() -> None:
    text = " ".join(DOCS.read_text(encoding="utf-8").split())
    assert [phrase for phrase in promises() if phrase not in text] == []
