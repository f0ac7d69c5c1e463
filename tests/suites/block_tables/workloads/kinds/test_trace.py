"""Windows of traces, and what a layout takes."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bt_bench.base.errors import UsageError
from bt_bench.protocol import build_workload, built_record
from bt_bench.suites.batch_preparation.workloads.kinds import (
    TraceParameters as InputTraceParameters,
)
from bt_bench.suites.block_tables.workloads import (
    TraceParameters,
    UniformParameters,
    Window,
    estimate_bytes,
)
from bt_bench.suites.block_tables.workloads.assemble import layout_of
from bt_bench.suites.block_tables.workloads.kinds.trace import tokens_per_step
from bt_bench.suites.block_tables.workloads.serving import trace
from bt_bench.suites.block_tables.workloads.serving.scheduler import Scheduler, iterate_steps
from bt_bench.suites.block_tables.workloads.steps import Append, Step
from bt_bench.suites.block_tables.workloads.window import first_step
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.layout import TableLayout

REQUESTS = [(0.05 * i, 10 + 7 * (i % 5), 4 + i % 9) for i in range(30)]


@pytest.fixture
def parameters(write_trace):
    path = write_trace(REQUESTS)

    def make(**changes: Any) -> TraceParameters:
        window = changes.pop("window", {"steps": 10})
        fixed = {"workload": "trace", "trace": path, "block_size": [4, 16], "max_num_reqs": 16}
        return TraceParameters(**(fixed | {"window": Window(**window)} | changes))

    return make


def all_steps(parameters: TraceParameters) -> list[Step]:
    return list(iterate_steps(Scheduler(parameters)))


def tables_of(appends: list[Append]) -> dict[int, list[list[int]]]:
    tables: dict[int, list[list[int]]] = {}
    for append in appends:
        table = tables.setdefault(append.row, [[] for _ in append.block_ids])
        for ids, new in zip(table, append.block_ids, strict=True):
            if append.overwrite:
                ids.clear()
            ids.extend(new)
    return tables


def same_steps(window: tuple[Step, ...], sequence: list[Step]) -> bool:
    layout = TableLayout((1,), (1,), 1, 1)
    return (
        Workload(layout, "int64", (), window).digest()
        == Workload(layout, "int64", (), tuple(sequence)).digest()
    )


@pytest.mark.parametrize("at", ["start", 0, 7, 31, "middle", "busiest"])
def test_a_window_is_part_of_the_sequence_and_its_setup_the_state_before(parameters, at):
    window_parameters = parameters(window={"at": at, "steps": 10})
    steps = all_steps(window_parameters)
    start = first_step(window_parameters.window, tokens_per_step(window_parameters))
    workload = build_workload(window_parameters)
    assert same_steps(workload.steps, steps[start : start + 10])
    assert all(append.overwrite for append in workload.setup)

    before = tables_of([append for step in steps[:start] for append in step.appends])
    setup = tables_of(list(workload.setup))
    assert all(before[row] == table for row, table in setup.items())
    assert [table for table in setup.values() if not any(table)] == []
    running_rows = set(workload.steps[0].idx_mapping.tolist())
    assert running_rows <= set(setup) | {
        append.row for append in workload.steps[0].appends if append.overwrite
    }


def test_where_windows_start(parameters):
    tokens = tokens_per_step(parameters())
    assert first_step(Window(at="start", steps=3), tokens) == 0
    assert first_step(Window(at=5, steps=3), tokens) == 5
    assert first_step(Window(at="middle", steps=4), np.arange(10)) == 3
    assert first_step(Window(at="middle", steps=10), np.arange(10)) == 0
    assert first_step(Window(at="busiest", steps=2), np.array([1, 9, 2, 5, 5, 5, 1])) == 1
    assert first_step(Window(at="busiest", steps=3), np.array([1, 9, 1, 5, 5, 5, 1])) == 1


@pytest.mark.parametrize("at", ["start", "middle", "busiest"])
def test_a_window_longer_than_the_sequence_is_refused(parameters, at):
    num_steps = len(all_steps(parameters()))
    message = f"needs {num_steps + 1} steps from step 0, .*but the sequence has {num_steps};"
    with pytest.raises(UsageError, match=message):
        build_workload(parameters(window={"at": at, "steps": num_steps + 1}))


@pytest.mark.parametrize("at", [1_000_000, -3])
def test_a_window_beyond_the_end_is_refused(parameters, at):
    num_steps = len(all_steps(parameters()))
    at = num_steps + at if at < 0 else at
    wanted = rf"window 'late' needs 10 steps from step {at}, which is {at + 10}, "
    with pytest.raises(UsageError, match=wanted + f"but the sequence has {num_steps};"):
        build_workload(parameters(window={"name": "late", "at": at, "steps": 10}))


def test_dtypes_of_a_trace(parameters):
    workload = build_workload(parameters(idx_mapping_dtype="int32"))
    assert workload.idx_mapping_dtype == "int32"
    for step in workload.steps:
        assert step.idx_mapping.dtype == np.int64
        assert step.query_start_loc.dtype == np.int32
        assert step.positions.dtype == np.int64
    for append in workload.setup + workload.steps[0].appends:
        assert all(type(ids) is list for ids in append.block_ids)
        assert all(type(block_id) is int for ids in append.block_ids for block_id in ids)


def test_options_reach_the_workload_of_a_trace(parameters):
    workload = build_workload(
        parameters(sliding_window=[6, 0], disabled_groups=[1], custom_outputs=True)
    )
    assert workload.features == {"sliding_window", "disabled_groups", "custom_outputs"}
    assert all(step.num_computed_tokens is not None for step in workload.steps)


def test_a_window_restores_tables_whose_passed_columns_count(parameters):
    """A row may name blocks that are another row's by now, but never has fewer of them."""
    changes = {"window": {"at": 20, "steps": 10}, "num_blocks": 30}
    plain, window = (
        build_workload(parameters(**changes, **options)) for options in ({}, {"sliding_window": 5})
    )
    counts = [
        {append.row: [len(ids) for ids in append.block_ids] for append in workload.setup}
        for workload in (plain, window)
    ]
    assert counts[0] == counts[1]
    for before, after in zip(plain.steps, window.steps, strict=True):
        assert before.idx_mapping.tolist() == after.idx_mapping.tolist()


def test_seeds(parameters):
    digests = [build_workload(parameters(seed=seed)).digest() for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_the_digest_does_not_change_between_versions(parameters):
    workload = build_workload(parameters(window={"at": "middle", "steps": 20}, num_blocks=40))
    assert workload.digest()[:16] == "83d9984166141c46"


def test_rate_makes_batches_larger(parameters):
    def mean_batch(rate: float) -> float:
        return float(np.mean([step.num_reqs for step in all_steps(parameters(rate=rate))]))

    assert mean_batch(8.0) > 2 * mean_batch(1.0)


def test_layout_and_bytes():
    sizes = {"max_model_len": 1000, "max_num_reqs": 8, "max_num_batched_tokens": 32}
    layout = layout_of(UniformParameters(requests=1, tokens=1, block_size=[16, 100], **sizes))
    assert layout == TableLayout((16, 100), (63, 10), 8, 32)
    assert estimate_bytes(layout) == 2 * 4 * 8 * (63 + 10) + 8 * 2 * 32


def test_validation_does_not_read_the_trace(parameters, tmp_path):
    (tmp_path / "trace.csv").write_text("no trace", encoding="utf-8")
    parameters().check()
    with pytest.raises(UsageError, match="column TIMESTAMP is missing"):
        build_workload(parameters())


def test_a_window_of_the_start_reads_no_more_than_it_needs(parameters, tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "LINES", 4)
    path = tmp_path / "trace.csv"
    digest = build_workload(parameters(window={"steps": 3})).digest()
    path.write_text(path.read_text(encoding="utf-8") + "\r\nand so on", encoding="utf-8")
    for at in ("start", 0):
        early = parameters(window={"at": at, "steps": 3})
        early.check_by_reading()
        assert early.num_programs() > 0
        assert build_workload(early).digest() == digest
    for at in ("middle", "busiest", 1000):
        late = parameters(window={"at": at, "steps": 3})
        for read in (late.check_by_reading, late.build, late.describe):
            with pytest.raises(UsageError, match=r"trace.csv:32: column ContextTokens is missing"):
                read()


def test_a_request_that_is_too_large_is_found_wherever_it_is(parameters, monkeypatch):
    monkeypatch.setattr(trace, "LINES", 4)
    small = {"max_model_len": 60, "num_blocks": 7, "window": {"at": "middle", "steps": 3}}
    with pytest.raises(UsageError, match=r"request 4 of the trace alone needs"):
        parameters(**small).check_by_reading()


def test_a_trace_in_parts_gives_the_same_steps(parameters, monkeypatch):
    window = {"at": "middle", "steps": 20}
    whole = build_workload(parameters(window=window, num_blocks=40)).digest()
    monkeypatch.setattr(trace, "LINES", 3)
    assert build_workload(parameters(window=window, num_blocks=40)).digest() == whole
    assert whole[:16] == "83d9984166141c46"


BAILIAN = '{"chat_id": 7, "timestamp": 0.5, "input_length": 9, "output_length": 2}\n'
SESSION = '{"session_id": "a", "timestamp": 1, "input_length": 9, "output_length": 2}\n' + (
    '{"session_id": "a", "delay": 5, "input_length": 9, "output_length": 2}\n'
)
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,5,3\n"
FAILED = "Timestamp,Model,Request tokens,Response tokens\n5,a,5,3\n6,a,6,0\n"


@pytest.mark.parametrize(
    ("name", "preset", "content", "expected"),
    [
        ("u1.jsonl", "mooncake", BAILIAN.encode(), "the trace is one of Bailian, whose times are"),
        ("u2.csv", "azure", b"version https://git-lfs.github.com/spec/v1\nsize 9\n", "Git LFS"),
        ("u2.csv.gz", "azure", gzip.compress(AZURE), 1),
        ("u2.csv", "burstgpt", FAILED.encode(), 1),
        ("u2.jsonl", "mooncake", SESSION.encode(), 2),
    ],
    ids=["milliseconds", "pointer", "packed", "failed", "sessions"],
)
def test_what_users_met(tmp_path, name, preset, content, expected):
    """By the interface of b44bb22, which accepted the first, and refused the others otherwise."""
    (tmp_path / name).write_bytes(content)
    given = {"workload": "trace", "trace": str(tmp_path / name), "columns": {"preset": preset}}
    parameters = TraceParameters(**given, window=Window(steps=1))
    if isinstance(expected, int):
        assert parameters.describe().requests_served == expected
    else:
        with pytest.raises(UsageError, match=expected):
            parameters.check_by_reading()


def test_the_record_of_a_result_has_what_was_left_out(write_trace):
    path = write_trace([(1, 1, 1), (2, 4, 0), (3, 1, 3)])
    columns = {"drop_failed": True}
    given = {"workload": "trace", "trace": path, "columns": columns, "window": Window(steps=2)}
    record = built_record(TraceParameters(**given))
    assert record.remarks == ["1 request of 0 tokens left out, as failed"]
    tables = InputTraceParameters(**given)
    assert build_workload(tables).remarks == tuple(record.remarks)
    without = replace(build_workload(tables), remarks=())
    assert without.digest() == built_record(tables).digest


def test_remarks_are_no_part_of_the_digest(parameters):
    workload = build_workload(parameters())
    assert replace(workload, remarks=("dropped",)).digest() == workload.digest()
    assert replace(workload, remarks=("dropped",)) == workload
