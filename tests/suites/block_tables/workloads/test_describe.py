"""Descriptions: exact for a small trace, and consistent with the workload that is built."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bt_bench.base.errors import UsageError
from bt_bench.protocol import build_workload
from bt_bench.report.console import render_plain
from bt_bench.suites.block_tables.report import workload_document
from bt_bench.suites.block_tables.workloads import (
    BatchParameters,
    TraceParameters,
    UniformParameters,
    Window,
    estimate_bytes,
)
from bt_bench.suites.block_tables.workloads.describe import Description


def distribution(*values):
    return dict(zip(("min", "p50", "p90", "p99", "max", "mean"), values, strict=True))


def row_blocks(*values):
    return [{"block_size": 4, "num_groups": 1, "blocks": distribution(*values)}]


@pytest.fixture
def traced(write_trace):
    """Make the parameters of a window of some requests."""

    def make(requests, window, **options):
        given = {"workload": "trace", "trace": write_trace(requests), "window": Window(**window)}
        return TraceParameters(**given, **options)

    return make


def test_a_trace_by_hand(traced):
    # The steps are those of `test_chunked_prefill_row_limit_and_reuse_by_hand`.
    sizes = {"max_num_reqs": 2, "max_num_batched_tokens": 8, "max_model_len": 12}
    window = {"at": 2, "steps": 2, "name": "end"}
    requests = [(0, 6, 3), (0, 5, 2), (0.001, 3, 1)]
    parameters = traced(requests, window, block_size=4, num_blocks=4, **sizes)
    description = parameters.describe()
    assert json.loads(description.model_dump_json()) == {
        "kind": "trace",
        "features": [],
        "block_sizes": [4],
        "widths": [3],
        "reaches": [0],
        "slot_mapping_enabled": [True],
        "layout_source": None,
        "max_num_reqs": 2,
        "max_num_batched_tokens": 8,
        "bytes_per_variant": 2 * 4 * 6 + 8 * 8,
        "requests_served": 3,
        "steps": {
            "num_steps": 4,
            "num_reqs": distribution(1, 2, 2, 2, 2, 1.75),
            "num_tokens": distribution(2, 3, 8, 8, 8, 4.25),
            "rows_written": distribution(0, 1, 2, 2, 2, 1.0),
            "block_ids_written": distribution(0, 1, 3, 3, 3, 1.25),
            "row_blocks": row_blocks(1, 2, 2, 2, 2, pytest.approx(12 / 7)),
            "share_without_write": 0.25,
            "share_with_every_group_written": 0.75,
            "share_with_prefill": 0.75,
        },
        "block_allocations": 5,
        "block_reuse": 1.25,
        "peak_blocks_in_use": 4,
        "recorded": None,
        "trace": {
            "requests": 3,
            "span_s": 0.001,
            "rate_per_s": 2000.0,
            "requests_failed": 0,
            "requests_in_other_parts": 0,
            "requests_sharing_a_prefix": None,
            "prefix_hits": None,
            "prefix_hit_tokens": None,
            "warnings": [],
            "served_whole": False,
            "simulated_s": pytest.approx(0.080085),
            "requests_truncated": 0,
            "preemptions": 0,
            "pool_blocks": 4,
            "window_name": "end",
            "window_start": 2,
            "window": {
                "num_steps": 2,
                "num_reqs": distribution(1, 1, 2, 2, 2, 1.5),
                "num_tokens": distribution(2, 2, 3, 3, 3, 2.5),
                "rows_written": distribution(0, 0, 1, 1, 1, 0.5),
                "block_ids_written": distribution(0, 0, 1, 1, 1, 0.5),
                "row_blocks": row_blocks(1, 2, 2, 2, 2, pytest.approx(5 / 3)),
                "share_without_write": 0.5,
                "share_with_every_group_written": 0.5,
                "share_with_prefill": 0.5,
            },
        },
    }


@pytest.mark.parametrize("at", ["start", "middle", "busiest", 30])
def test_the_window_described_is_the_window_built(traced, at):
    requests = [(0.02 * i, 20 + i, 12) for i in range(40)]
    parameters = traced(requests, {"at": at, "steps": 16}, block_size=[4, 8, 4])
    trace = parameters.describe().trace
    assert trace is not None
    steps = build_workload(parameters).steps
    for figures, values in (
        (trace.window.num_reqs, [step.num_reqs for step in steps]),
        (trace.window.num_tokens, [step.num_tokens for step in steps]),
        (trace.window.rows_written, [step.num_rows_written for step in steps]),
    ):
        assert figures.max == max(values)
        assert figures.min == min(values)
        assert figures.mean == pytest.approx(np.mean(values))
        assert figures.p90 == np.percentile(values, 90, method="inverted_cdf")
    groups = [(rows.block_size, rows.num_groups) for rows in trace.window.row_blocks]
    assert groups == [(4, 2), (8, 1)]


def test_a_numbered_window_is_served_no_further_than_it_reaches(traced, monkeypatch):
    requests = [(0.02 * i, 20 + i, 12) for i in range(40)]
    whole, numbered = (traced(requests, {"at": at, "steps": 16}) for at in ("start", 30))
    every, description = whole.describe(), numbered.describe()
    assert (description.steps.num_steps, description.trace.requests) == (46, 40)
    assert description.trace.window.num_steps == 16
    assert (description.trace.span_s, description.trace.rate_per_s) == (
        every.trace.span_s,
        every.trace.rate_per_s,
    )
    assert description.requests_served < every.requests_served == 40
    text = render_plain(workload_document("a", description))
    assert "Steps up to the window's end" in text
    assert "simulated time, up to the window's end;" in text
    assert "All steps" in render_plain(workload_document("a", every))


def test_truncated_and_preempted_requests_show(traced):
    requests = [(0, 60, 20), (0, 4, 20), (0, 4, 20)]
    parameters = traced(requests, {"steps": 1}, block_size=4, max_model_len=40, num_blocks=12)
    trace = parameters.describe().trace
    assert trace is not None
    assert trace.requests_truncated == 1
    assert trace.preemptions > 0


def test_a_window_beyond_the_end_is_refused(traced):
    with pytest.raises(UsageError, match=r"needs 1 steps from step 2, .* the sequence has 2"):
        traced([(0, 5, 2)], {"at": 2, "steps": 1}).describe()


def test_a_uniform_workload():
    parameters = UniformParameters(requests=4, tokens=8, max_model_len=64, block_size=[16, 64])
    description = parameters.describe()
    assert description.kind == "uniform"
    assert description.trace is None
    assert description.requests_served == 4
    assert description.steps.num_steps == 1
    assert description.steps.num_tokens.mean == 8
    assert description.steps.rows_written.max == 4
    assert description.steps.block_ids_written.max == 8
    assert description.steps.row_blocks[0].blocks.max == 4
    assert description.steps.row_blocks[1].blocks.max == 1
    assert description.steps.share_with_every_group_written == 1
    assert description.steps.share_with_prefill is None
    assert description.block_allocations == description.peak_blocks_in_use == 1 + 2 + 3 + 4 + 4
    assert description.block_reuse == 1
    assert description.bytes_per_variant == estimate_bytes(build_workload(parameters).layout)


@pytest.mark.parametrize(("prefills", "share"), [(0, 0.0), (2, 1.0)])
def test_a_batch_workload(prefills, share):
    options = {"requests": 20, "prefills": prefills, "staged_writes": 0}
    description = BatchParameters(workload="batch", **options).describe()
    assert description.steps.share_with_prefill == share
    assert description.steps.rows_written.max == prefills
    assert description.steps.share_without_write == 1 - share


ALL_BUT_CP = {
    "block_size": [16, 16, 64],
    "dummy_requests": 3,
    "disabled_groups": [2],
    "sliding_window": [5, 0, 0],
    "custom_outputs": True,
}


@pytest.mark.parametrize(
    ("options", "features"),
    [
        ({}, []),
        ({"dummy_requests": 1}, ["dummy_requests"]),
        ({"sliding_window": 0}, []),
        (ALL_BUT_CP, ["custom_outputs", "disabled_groups", "dummy_requests", "sliding_window"]),
        ({"cp_size": 2, "groups": 2, "unsharded_groups": [0]}, ["context_parallelism"]),
    ],
)
def test_features_are_those_of_the_workload(options, features):
    parameters = UniformParameters(requests=4, tokens=8, **options)
    assert parameters.describe().features == features
    assert build_workload(parameters).features == set(features)
    facts = str(workload_document("a", parameters.describe()).lead)
    assert ("features: " + ", ".join(features) in facts) == bool(features)


def test_dummy_requests_are_in_the_batch_and_hold_nothing():
    plain = UniformParameters(requests=4, tokens=8, max_model_len=64)
    padded = plain.model_copy(update={"dummy_requests": 3}).describe()
    assert (padded.requests_served, padded.steps.num_reqs.max) == (4, 7)
    assert padded.steps.num_tokens.max == 8 + 3
    assert padded.steps.row_blocks == plain.describe().steps.row_blocks


def test_blocks_of_a_row_by_what_a_column_stands_for():
    options = {"block_size": [8, 16, 8], "cp_size": 2, "unsharded_groups": [2]}
    description = UniformParameters(requests=1, tokens=1, max_model_len=64, **options).describe()
    assert description.widths == [4, 2, 8]
    figures = [(r.block_size, r.num_groups, r.blocks.max) for r in description.steps.row_blocks]
    assert figures == [(16, 1, 4), (32, 1, 2), (8, 1, 8)]


def test_blocks_before_a_window_are_free_and_used_again(traced):
    parameters = traced([(0, 40, 60)], {"steps": 1}, block_size=4)
    window = parameters.model_copy(update={"sliding_window": 8, "num_blocks": 25})
    assert parameters.describe().peak_blocks_in_use == 25
    description = window.describe()
    assert description.peak_blocks_in_use == 10  # all of the prefill, then the window
    assert description.steps == parameters.describe().steps
    assert description.features == ["sliding_window"]


def test_a_description_survives_json():
    description = BatchParameters(workload="batch", requests=3).describe()
    assert Description.model_validate_json(description.model_dump_json()) == description


def test_a_trace_is_described_as_it_was_read(tmp_path):
    times = [0, 1, 2, 3, 3.5, *range(4, 22)]
    lines = [
        {"timestamp": at, "input_length": 12, "output_length": 1, "hash_ids": [1, 2, i]}
        for i, at in enumerate(times)
    ]
    lines[3]["output_length"] = 0
    lines[5]["hash_ids"] = [9]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    parameters = TraceParameters(
        workload="trace",
        trace=str(tmp_path / "m.jsonl"),
        columns={"preset": "mooncake", "hash_tokens": 4, "drop_failed": True},
        part={"begin": 1},
        prefix_caching=True,
        block_size=4,
        window=Window(steps=1),
    )
    description = parameters.describe()
    figures = description.trace
    assert figures is not None
    assert (figures.span_s, figures.rate_per_s) == (0.02, 1000.0)
    assert (figures.requests_failed, figures.requests_in_other_parts) == (1, 1)
    assert figures.requests_sharing_a_prefix == 20
    assert figures.prefix_hits == 19
    assert figures.prefix_hit_tokens == 19 * 8
    (warning,) = figures.warnings
    assert warning.startswith("key timestamp is 3.5 in line 5: milliseconds with a fraction")
    (facts,) = workload_document("m", description).lead
    for fact in (
        "trace: 21 requests in 0.02000 s, 1000 a second; left out: 1 of 0 tokens, as failed and 1 "
        "in other parts",
        "prefixes: 95.2 % of requests begin as another one; 19 hits with 152 cached tokens",
        f"warning: {warning}",
    ):
        assert fact in facts.items
    assert build_workload(parameters).remarks == (
        "1 request of 0 tokens left out, as failed",
        warning,
    )
