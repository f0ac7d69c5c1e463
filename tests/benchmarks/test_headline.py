"""`benchmarks/headline.py` says what the results say, and no figure that was not measured."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.factories import (
    make_case,
    make_failed_case,
    make_launches,
    make_measurement,
    make_result,
    make_rounds,
    make_workload,
)
from support.goldens import assert_golden

from bt_bench.analysis import Criteria, Matchup, Side, judge
from bt_bench.config.load import load_config
from bt_bench.protocol import build_workload
from bt_bench.report import render_document
from bt_bench.results import compacted
from bt_bench.results.folders import RunFolder
from bt_bench.results.nouns import LaunchPath, Quantity, Status
from bt_bench.results.series import series_of
from bt_bench.results.writing import write_result
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.calls import bind, stage
from bt_bench.suites.block_tables.inputs import append_many_of, inputs_on
from bt_bench.suites.block_tables.workloads import UniformParameters
from bt_bench.variants.catalogue import find_variants, load, load_apart
from bt_kernels import launches

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COMMITTED = BENCHMARKS.parent / "reports" / "h200" / "headline"
MODULES = ("headline_memory", "headline_runs", "headline_figures", "headline_text", "headline")
CASES = ("one", "four", "eight", "prefill")
STAGE_US = 2.0
# Host by Triton's call, device, and device operations, by the name that tables have.
ARMS = {
    "vllm_0.16.0": (90.0, 13.0, 3),
    "vllm_0.33.0": (140.0, 30.0, 4),
    "baseline": (80.0, 8.0, 3),
    "fused": (60.0, 6.0, 2),
    "one_launch": (8.0, 3.0, 1),
    "one_launch_graph": (9.0, 3.5, 1),
    "baseline_python": (88.0, 8.0, 3),
    "fused_python": (70.0, 6.0, 2),
    "one_launch_python": (75.0, 4.0, 1),
    "one_launch_direct": (50.0, 4.0, 1),
    "one_launch_requests": (40.0, 4.0, 1),
    "one_launch_pinned": (35.0, 4.0, 1),
    "one_launch_carried": (32.0, 3.0, 1),
}
DIRECT_SAVES_US = 6.0


@pytest.fixture(scope="module")
def bench():
    """The modules of the benchmark, under their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    for name in MODULES:
        del sys.modules[name]


def opponent(result):
    """A result under the name that an opponent has where it is the only one."""
    release = result.variant.name.removeprefix("vllm_")
    summary = f"BlockTables of vLLM {release} itself"
    return result.model_copy(
        update={"variant": result.variant.model_copy(update={"summary": summary})}
    )


def timed(quantity, values, rounds=None, path=LaunchPath.JIT):
    """A measurement with a sample per step and round, or with one for a lone step."""
    rows = [value if isinstance(value, list) else [value] for value in values]
    return make_measurement(series_of(quantity, launch_path=path), rounds=rounds, samples=rows)


def steps_case(arm: str, case: str, **changes):
    host_us, gpu_us, operations = ARMS[arm]
    if case == "eight" and arm in ("vllm_0.16.0", "baseline"):
        operations = 10
    drift = [0.25 * (index % 4) for index in range(12)]
    noise = [0.01 * (index % 5) for index in range(12)]
    rare = list(range(0, 12, 2))  # the other launch paths are taken in some rounds
    measurements = [
        timed(Quantity.HOST_US, [host_us + more for more in drift]),
        timed(Quantity.STEP_US, [host_us + 5 + more for more in drift]),
        timed(Quantity.STAGE_US, [STAGE_US - drift[i] + noise[i] for i in range(12)]),
        timed(Quantity.GPU_US, [gpu_us] * 10),
    ]
    if not arm.startswith("vllm") and arm != "one_launch_graph":
        for path in (LaunchPath.COMPILED, LaunchPath.DIRECT):
            saved = DIRECT_SAVES_US if path is LaunchPath.DIRECT else 4.0
            host = [host_us - saved + drift[index] for index in rare]
            measurements.append(timed(Quantity.HOST_US, host, rare, path))
            measurements.append(timed(Quantity.STEP_US, [us + 5 for us in host], rare, path))
    found = make_case(
        case,
        ops.STEP,
        launches=make_launches(["kernel"] * operations),
    )
    made = {"measurements": measurements, "rounds": make_rounds(12)}
    return found.model_copy(update=made | changes)


def steps_run(**replaced):
    """Results of the run `steps`; `replaced` are cases by name of the arm `one_launch`."""
    results = []
    for arm in ARMS:
        cases = [steps_case(arm, case) for case in CASES]
        if arm == "one_launch":
            cases = [replaced.get(case.case, case) for case in cases]
        result = make_result(arm, cases)
        results.append(opponent(result) if arm.startswith("vllm") else result)
    return results


def trace_run(host_us=None, steps=160):
    """Two windows; every third step has a prompt, and takes long."""
    workload = make_workload("trace", steps, "trace")
    sizes = [500 if index % 3 == 2 else 20 for index in range(steps)]
    workload = workload.model_copy(
        update={"sizes": {"num_reqs": [20] * steps, "num_tokens": sizes}}
    )
    results = []
    for arm, us in (host_us or {"vllm": 150.0, "one_launch": 8.0, "one_launch_graph": 7.0}).items():
        row = [5000.0 if size > 20 else us + 0.01 * place for place, size in enumerate(sizes)]
        cases = []
        for window in ("middle_rate1", "middle_rate4"):
            found = make_case(window, ops.STEP, workload=workload)
            samples = [
                timed(Quantity.HOST_US, [row] * 6),
                timed(Quantity.STAGE_US, [[1.0] * steps] * 6),
            ]
            made = {"measurements": samples, "rounds": make_rounds(6)}
            cases.append(found.model_copy(update=made))
        result = make_result(arm, cases)
        if arm == "vllm":
            variant = result.variant.model_copy(
                update={"summary": "BlockTables of vLLM 0.33.0 itself"}
            )
            result = result.model_copy(update={"variant": variant})
        results.append(result)
    return results


def memory(bench, one_launch=(1, 1)):
    """As much device and pinned memory for all, but for `one_launch` by factors."""
    found = []
    for case in CASES:
        for arm in ("vllm_0.16.0", "vllm_0.33.0", "baseline", "one_launch", "one_launch_graph"):
            device, pinned = one_launch if arm == "one_launch" else (1, 1)
            sizes = (device * 8192, device * 8192, pinned * 1024, pinned * 2048)
            found.append(bench.headline_memory.Footprint(case, arm, *sizes))
    return found


@pytest.fixture(scope="module")
def made(bench):
    """Figures of made-up runs."""

    def make(steps=None, trace=None, footprints=None, problems=()):
        runs = (steps_run() if steps is None else steps, trace_run() if trace is None else trace)
        run = bench.headline_runs.Run
        return bench.headline_figures.headline(
            *map(run.of, runs),
            memory(bench) if footprints is None else footprints,
            "bytes of this and that",
            problems,
        )

    return make


def rendered(bench, found):
    """The page in Markdown, with one blank where cells are padded."""
    page = render_document(bench.headline_text.document(found))
    return "\n".join(" ".join(line.split()) for line in page.splitlines()) + "\n"


def row_of(found, title):
    (row,) = [row for row in found.rows if row.title.startswith(title)]
    return row


def test_whole_page(bench, made):
    page = render_document(bench.headline_text.document(made()))
    assert_golden(page, Path(__file__).parent / "golden" / "headline.md")


def test_all_reached(made):
    found = made()
    assert found.succeeded()
    assert [row.reached["one_launch"] for row in found.rows] == [True] * 13
    assert row_of(found, "device operations").factors["one_launch"].value == 4


def test_sums_are_of_the_samples_of_a_round(bench, made):
    """Host rises as stage falls: the sum of a round is much the same, unlike that of others."""
    value = row_of(made(), "host + stage, 1 group").values["one_launch"]
    assert 10.0 <= value.low <= value.value <= value.high <= 10.04  # 8 + 2, and noise
    assert value.count == 12  # by Triton's call, in whose rounds all arms took part
    assert of_one(bench, "host").value == 8.375  # + the drift
    assert of_one(bench, "stage").count == 12
    assert of_one(bench, "stage to synchronize").value == pytest.approx(15.0, abs=0.05)


def of_one(bench, what):
    run = bench.headline_runs.Run.of(steps_run())
    return bench.headline_runs.figure(run.taken("one_launch", "one", what))


def test_factors_are_those_of_compare(bench, made, tmp_path):
    """The same question has the same answer: here and by the command, over the same files."""
    found = made()
    run = {result.variant.name: result for result in steps_run()}
    sides = [Side(n, compacted(run[n])) for n in ("vllm_0.33.0", "one_launch")]
    judged = judge([Matchup(*sides)], Criteria(metrics=["host_us+stage_us"]))
    said = {each.case: each for each in judged.judgements}
    factor = row_of(found, "host + stage, 8 groups").factors["one_launch"]
    assert factor.value == 1 / said["eight"].ratio
    assert (factor.low, factor.high) == (1 / said["eight"].high, 1 / said["eight"].low)
    assert factor.low < 142 / 10 < factor.high
    assert row_of(found, "device, 4 groups").factors["one_launch"].value == pytest.approx(10)


def test_other_rounds_have_nothing_in_common(bench):
    host = timed(Quantity.HOST_US, [1.0, 2.0], [0, 2])
    stage = timed(Quantity.STAGE_US, [1.0], [1])
    case = make_case().model_copy(update={"measurements": [host, stage]})
    run = bench.headline_runs.Run.of([make_result("one_launch", [case])])
    assert run.taken("one_launch", case.case, "stage") is not None
    assert run.taken("one_launch", case.case, "host + stage") is None


def slower(case: str, quantity: Quantity, factor: float = 10.0):
    """The case of `one_launch`, with all samples of a quantity so many times as long."""
    found = steps_case("one_launch", case)
    measurements = [
        measurement.model_copy(
            update={"samples": [[factor * us for us in row] for row in measurement.samples]}
        )
        if measurement.quantity is quantity
        else measurement
        for measurement in found.measurements
    ]
    return found.model_copy(update={"measurements": measurements})


@pytest.mark.parametrize(
    ("case", "quantity", "title"),
    [
        ("one", Quantity.HOST_US, "host + stage, 1 group"),
        ("four", Quantity.HOST_US, "host + stage, 4 groups"),
        ("eight", Quantity.HOST_US, "host + stage, 8 groups"),
        ("one", Quantity.GPU_US, "device, 1 group"),
        ("four", Quantity.GPU_US, "device, 4 groups"),
        ("eight", Quantity.GPU_US, "device, 8 groups"),
        ("prefill", Quantity.GPU_US, "device, 1 request"),
        ("one", Quantity.STEP_US, "stage to synchronize, 1 group"),
        ("four", Quantity.STEP_US, "stage to synchronize, 4 groups"),
        ("eight", Quantity.STEP_US, "stage to synchronize, 8 groups"),
    ],
)
def test_each_aim_can_be_missed(bench, made, case, quantity, title):
    found = made(steps_run(**{case: slower(case, quantity)}))
    missed = [row.title for row in found.rows if row.reached["one_launch"] is False]
    assert len(missed) == 1
    assert missed[0].startswith(title)
    assert not found.succeeded()
    assert rendered(bench, found).startswith("# A step in one launch: NOT all")


@pytest.mark.parametrize(
    "launches",
    [
        make_launches(["kernel", "copy:HtoD"]),
        make_launches(["kernel"], []),  # a step of which nothing was recorded
        make_launches(["kernel"], counted_by="interpreter"),
        None,
    ],
)
def test_a_second_device_operation(made, launches):
    found = made(steps_run(eight=steps_case("one_launch", "eight", launches=launches)))
    row = row_of(found, "device operations")
    assert not row.reached["one_launch"]
    assert row.reached["one_launch_graph"]
    assert not found.succeeded()


def test_what_is_missing_is_no_zero(bench, made):
    steps = [result for result in steps_run() if not result.variant.name.startswith("vllm")]
    trace = [result for result in trace_run() if result.variant.name != "vllm"]
    footprints = [f for f in memory(bench) if not f.variant.startswith("vllm")]
    found = made(steps, trace, footprints)
    assert not found.problems
    relative = [row for row in found.rows if "of vLLM" in row.aim]
    assert len(relative) == 3
    assert all(row.reached["one_launch"] is None for row in relative)
    assert row_of(found, "host + stage, 1 group").reached["one_launch"]
    assert not found.succeeded()
    text = rendered(bench, found)
    assert "| host + stage, 4 groups | – | – | ≤ 18 | 10.02 (10.00 to 10.03) |" in text
    assert "| one | one_launch | 8.000 KiB | 8.000 KiB | – |" in text


def test_nothing_at_all(bench, made):
    found = made([], [], [])
    assert not found.succeeded()
    assert found.problems == ["steps: no results", "trace: no results"]
    text = rendered(bench, found)
    figures = [line.split("|")[6:-1] for line in text.splitlines() if line.startswith("| 9 |")]
    assert len(figures) == 4
    assert {cell.strip() for cells in figures for cell in cells} - {"jit"} == {"–"}


@pytest.mark.parametrize("status", [Status.FAILED, Status.INSUFFICIENT])
def test_a_case_that_is_not_ok(bench, made, status):
    reason = make_failed_case(message="why").reason
    case = steps_case("one_launch", "four", status=status, reason=reason)  # with all its figures
    found = made(steps_run(four=case))
    assert found.problems == [f"steps: one_launch, step/four: {status}: why"]
    assert row_of(found, "host + stage, 4 groups").reached["one_launch"] is None
    assert row_of(found, "device operations").values["one_launch"] is None
    assert f"- {found.problems[0]}" in rendered(bench, found)


def test_a_rung_is_of_its_own_launch_path_or_missing(made):
    jit = steps_case("one_launch", "one")
    jit = jit.model_copy(
        update={"measurements": [m for m in jit.measurements if m.launch_path == "jit"]}
    )
    found = made(steps_run(one=jit))
    rung = found.changes["one"][8]
    assert (rung.rung.variant, rung.rung.path) == ("one_launch", "direct")
    assert set(rung.values.values()) == {None}
    by_jit = row_of(found, "host + stage, 1 group").values["one_launch"]
    assert by_jit.value == pytest.approx(10.0, abs=0.05)


def test_problems_alone_are_a_failure(made):
    assert not made(problems=["steps: bt-bench sweep ended with 70"]).succeeded()
    steps = steps_run()
    steps[0] = steps[0].model_copy(update={"complete": False})
    assert made(steps).problems == ["steps: vllm_0.16.0: the run did not come to its end"]


def test_decode_heavy_steps(bench):
    workload = make_workload("trace", 5, "trace").model_copy(
        update={"sizes": {"num_reqs": [0, 10, 10, 10, 1], "num_tokens": [0, 10, 20, 21, 3]}}
    )
    case = make_case("middle_rate1", ops.STEP, workload=workload)
    assert bench.headline_runs.decode_heavy(case) == [1, 2]


def test_trace_is_of_all_decode_heavy_steps_together(made):
    new, ours, _ = made().trace
    assert (new.variant, new.steps, ours.steps) == ("vllm_0.33.0", 214, 214)
    decode = [index for index in range(160) if index % 3 != 2] * 2
    wanted = np.array([9.0 + 0.01 * index for index in decode])
    assert ours.median_us == pytest.approx(np.median(wanted))
    assert ours.p99_us == pytest.approx(np.percentile(wanted, 99))


def test_too_few_decode_heavy_steps(made):
    assert not made(trace=trace_run(steps=149)).problems
    assert made(trace=trace_run(steps=148)).problems == ["trace: fewer than 200 decode-heavy steps"]


def test_trace_with_a_window_missing(made):
    trace = trace_run(steps=600)
    trace[1] = trace[1].model_copy(update={"cases": trace[1].cases[:1]})
    row = next(row for row in made(trace=trace).trace if row.variant == "one_launch")
    assert row.median_us is row.p99_us is row.of_windows["middle_rate4"] is None
    assert row.of_windows["middle_rate1"] is not None


def test_trace_can_miss_its_aims(made):
    found = made(trace=trace_run({"vllm": 150.0, "one_launch": 20.0, "one_launch_graph": 8.0}))
    reached = [(row.reached["one_launch"], row.reached["one_launch_graph"]) for row in found.rows]
    assert reached[-2:] == [(False, True)] * 2


@pytest.mark.parametrize(
    ("factors", "reached"), [((1, 1), True), ((2, 2), True), ((3, 1), False), ((1, 3), False)]
)
def test_memory_within_twice_of_vllm(bench, made, factors, reached):
    found = made(footprints=memory(bench, factors))
    assert found.memory_reached["one_launch"] is reached
    assert found.memory_reached["one_launch_graph"] is True
    assert found.succeeded() is reached


def test_memory_that_was_not_counted(bench, made):
    broken = bench.headline_memory.Footprint("eight", "one_launch", error="MemoryError: no")
    footprints = [f for f in memory(bench) if (f.case, f.variant) != ("eight", "one_launch")]
    found = made(footprints=[*footprints, broken])
    assert found.memory_reached["one_launch"] is None
    assert found.problems == ["memory: one_launch, eight: MemoryError: no"]


# Memory as it is counted


def tiny_case(name="one", **changes):
    parameters = {
        "workload": "uniform",
        "groups": 2,
        "requests": 3,
        "tokens": 5,
        "max_num_reqs": 4,
        "max_num_batched_tokens": 8,
        "max_model_len": 64,
    }
    return SimpleNamespace(name=name, parameters=UniformParameters(**(parameters | changes)))


def test_footprint_is_what_is_held_more_than_before(bench, device):
    """Each look finds more than the one before, by the place of its digit."""
    counts = itertools.accumulate([5, 10, 100, 7, 20, 200])
    held = (bench.headline_memory.Held(count, 2 * count) for count in counts)
    classes = {name: load(find_variants()[name]) for name in ("baseline", "one_launch")}
    found = bench.headline_memory.footprints([tiny_case()], classes, device, lambda: next(held))
    assert [dataclasses.astuple(f) for f in found] == [
        ("one", "baseline", 10, 110, 20, 220, None),
        ("one", "one_launch", 20, 220, 40, 440, None),
    ]


def test_a_variant_that_raises_leaves_the_others(bench, device):
    def broken(layout, device):
        raise RuntimeError("out of luck")

    classes = {"broken": broken, "baseline": load(find_variants()["baseline"])}
    held = bench.headline_memory.Held(1, 2)
    found = bench.headline_memory.footprints([tiny_case()], classes, device, lambda: held)
    assert [f.error for f in found] == ["RuntimeError: out of luck", None]
    assert (found[0].device_setup, found[1].device_setup) == (None, 0)


# The arms of `benchmarks/steps`


STEP_ARMS = sorted(path.stem for path in (BENCHMARKS / "steps").glob("*.py"))
# Whether a call stages all requests, and whether staging is in C where that can be had.
HOW = {
    "baseline_python": (False, False),
    "fused_python": (False, False),
    "one_launch_python": (False, False),
    "one_launch_direct": (False, False),
    "one_launch_requests": (False, True),
    "one_launch_each": (False, True),
    "one_launch_pinned": (True, True),
    "one_launch_carried": (True, True),
}


@pytest.mark.parametrize("name", STEP_ARMS)
def test_arm_does_the_same_in_its_own_way(name, device):
    found = find_variants([BENCHMARKS / "steps"])
    workload = build_workload(tiny_case().parameters)
    tables = {}
    for arm in (name, "baseline", "one_launch"):
        tables[arm] = load_apart(found[arm])(workload.layout, device)
        for append in workload.setup:
            tables[arm].append_block_ids(append.row, append.block_ids, append.overwrite)
        tables[arm].apply_staged_writes()
        for step in inputs_on(device, workload):
            stage(tables[arm], step)
            block_tables, slots = bind(tables[arm], ops.STEP, step)()
            tables[arm].seen = [*(t.clone() for t in block_tables), slots.clone()]
    for seen, wanted in zip(tables[name].seen, tables["baseline"].seen, strict=True):
        assert torch.equal(seen, wanted)
    batched, in_c = HOW[name]
    assert (append_many_of(tables[name]) is not None) == batched
    # Where there is no compiler, staging is in Python for all.
    of_shipped = type(tables["one_launch"]._staged).__module__
    wanted = of_shipped if in_c else "bt_kernels.staging.writes"
    assert type(tables[name]._staged).__module__ == wanted
    in_words = {"one_launch_python", "one_launch_carried", "one_launch_each"}
    carries = name in in_words and not launches.COMPILES
    assert (getattr(tables[name], "_carrying", None) is not None) == carries


# Configs and the command


def test_configs_have_what_the_tables_need(bench):
    figures = bench.headline_figures
    steps = load_config(BENCHMARKS / "headline.yaml")
    assert tuple(case.name for case in steps.cases) == figures.CASES == CASES
    rungs = (*figures.RUNGS, *figures.OTHERS)
    assert {rung.variant for rung in rungs} <= set(steps.variants)
    assert {rung.path for rung in rungs} <= set(steps.plan.launch_paths)
    assert set(steps.variants) == {*(a for a in ARMS if not a.startswith("vllm")), "vllm"}
    known = find_variants([BENCHMARKS / "steps"])
    assert set(steps.variants) - {"vllm"} <= set(known)
    trace = load_config(BENCHMARKS / "headline_trace.yaml")
    assert tuple(case.name for case in trace.cases) == figures.WINDOWS
    assert trace.variants == ["one_launch", "one_launch_graph", "vllm"]


@pytest.mark.slow
def test_trace_has_enough_decode_heavy_steps(bench):
    trace = load_config(BENCHMARKS / "headline_trace.yaml")
    steps = [step for case in trace.cases for step in build_workload(case.parameters).steps]
    sizes = {"num_reqs": [s.num_reqs for s in steps], "num_tokens": [s.num_tokens for s in steps]}
    case = SimpleNamespace(workload=SimpleNamespace(sizes=sizes))
    heavy = bench.headline_runs.decode_heavy(case)
    assert len(heavy) >= bench.headline_figures.FEWEST_STEPS


def test_command_reads_a_folder(bench, tmp_path, monkeypatch, capsys):
    for name, results in (("steps", steps_run()), ("trace", trace_run())):
        folder = RunFolder.create_exact(tmp_path / "out" / name)
        for result in results:
            write_result(folder, result)
    footprints = [dataclasses.asdict(footprint) for footprint in memory(bench)]
    counted = json.dumps({"pinned_by": "bytes of this and that", "footprints": footprints})
    (tmp_path / "out" / "memory.json").write_text(counted)
    monkeypatch.setattr(sys, "argv", ["headline.py", "--render", "--out", str(tmp_path / "out")])
    assert bench.headline.main() == 0
    page = (tmp_path / "out" / "headline.md").read_text()
    assert page == (Path(__file__).parent / "golden" / "headline.md").read_text()
    said = json.loads((tmp_path / "out" / "headline.json").read_text())
    assert said["rows"][1]["values"]["one_launch"]["value"] == pytest.approx(10.0, abs=0.05)
    (tmp_path / "out" / "memory.json").unlink()
    assert bench.headline.main() == 1
    monkeypatch.setattr(sys, "argv", ["headline.py", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="is never overwritten"):
        bench.headline.main()


def test_the_committed_page_is_of_the_committed_runs(bench):
    found = bench.headline.read(COMMITTED)
    assert render_document(bench.headline_text.document(found)) == (
        COMMITTED / "headline.md"
    ).read_text(encoding="utf-8")


def test_command_writes_what_there_is_when_a_sweep_fails(bench, tmp_path, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(command)
        return SimpleNamespace(returncode=70, stdout="")

    monkeypatch.setattr(bench.headline.subprocess, "run", run)
    monkeypatch.setattr(
        bench.headline, "measure_memory", lambda *_: (memory(bench), "bytes of this and that")
    )
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["headline.py", "--quick", "--out", str(out)])
    assert bench.headline.main() == 1
    page = (out / "headline.md").read_text()
    assert "- steps: bt-bench sweep ended with 70" in page
    assert "| one | one_launch | 8.000 KiB |" in " ".join(page.split())
    steps, trace = commands
    assert str(BENCHMARKS / "steps") in steps
    assert "window.steps=16" in trace
    assert "window.steps=16" not in steps
