"""`studies/worst.py` says what the results say, and continues what was begun."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.factories import (
    make_case,
    make_failed_case,
    make_measurement,
    make_result,
    make_rounds,
)
from support.goldens import assert_golden

from bt_bench.analysis import PlainCopy
from bt_bench.base.errors import UsageError
from bt_bench.config import dump_config
from bt_bench.config.load import load_config
from bt_bench.protocol import build_workload, record_of
from bt_bench.report import render_document
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.writing import write_result
from bt_bench.results.run.calibration import PlainCopies
from bt_bench.results.run.nouns import Quantity, ReasonCode, Status
from bt_bench.suites.block_tables import operations as ops

STUDIES = Path(__file__).parents[2] / "studies"
MODULES = (
    *("worst_copy", "worst_arms", "worst_runs", "worst_figures", "worst_aims", "worst_text"),
    "worst_picture",
)
NEW = "vllm_0.33.0"
ROUNDS = 120

CONFIG = """\
name: made
variants: [baseline, fused, one_launch, vllm]
operations: [step]
defaults: {workload: spread, max_num_reqs: 64, max_num_batched_tokens: 256, max_model_len: 256}
cases:
  - {name: first, requests: 5, tokens: 40, spread: power_law}
  - {name: second, requests: 8, tokens: 8, groups: 2}
  - {name: third, requests: 0, tokens: 0}
"""
CASES = ("first", "second", "third")
# Host, from the begin of the call to the synchronisation, and device.
ARMS = {
    "baseline": (60.0, 70.0, 9.0),
    "fused": (40.0, 30.0, 6.0),
    "one_launch": (8.0, 14.0, 3.0),
    "vllm": (148.0, 160.0, 12.0),
}
STAGE_US = 2.0


@pytest.fixture(scope="module")
def bench():
    """The modules of the benchmark, under their names."""
    names = (*MODULES, "worst")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STUDIES))
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    for name in names:
        del sys.modules[name]


def samples(us: float, arm: str) -> list[list[float]]:
    """Rounds with a little noise of the arm's own, and one in ten that takes a tenth longer."""
    own = 7 + list(ARMS).index(arm)
    noise = [0.001 * (index % own) + (0.1 if index % 10 == 0 else 0.0) for index in range(ROUNDS)]
    return [[us * (1 + each)] for each in noise]


def case_of(arm: str, case, factors=None, **changes):
    """A case of an arm; `factors` are of host, step and device."""
    times = [us * by for us, by in zip(ARMS[arm], factors or (1, 1, 1), strict=True)]
    quantities = (Quantity.HOST_US, Quantity.STEP_US, Quantity.GPU_US)
    made = [
        make_measurement(
            quantity, samples(us, arm)[: 30 if quantity is Quantity.GPU_US else ROUNDS]
        )
        for quantity, us in zip(quantities, times, strict=True)
    ]
    made.append(
        make_measurement(Quantity.STAGE_US, [[STAGE_US + 0.001 * (i % 5)] for i in range(ROUNDS)])
    )
    workload = record_of(case.parameters, build_workload(case.parameters))
    found = make_case(case.name, ops.STEP, workload=workload)
    logged = {"rounds": make_rounds(ROUNDS, instances=3), "measurements": made}
    return found.model_copy(update=logged | changes)


@pytest.fixture
def written(bench, tmp_path):
    """Writes the run folder of a made-up sweep; `replaced` are cases by arm and name."""

    def write(replaced=None, name="made", arms=tuple(ARMS), complete=True):
        runs = tmp_path / "runs"
        folder = runs / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
        for arm in arms:
            cases = [
                (replaced or {}).get((arm, case.name)) or case_of(arm, case)
                for case in load_config(folder / "config.yaml").cases
            ]
            result = make_result(arm, cases, complete=complete, run_id=name)
            if arm == "vllm":
                summary = "BlockTables of vLLM 0.33.0 itself"
                variant = result.variant.model_copy(update={"summary": summary})
                result = result.model_copy(update={"variant": variant})
            write_result(RunFolder(folder), result)
        return runs

    return write


@pytest.fixture
def again(bench, written, tmp_path):
    """Writes another one in place of the sweep that is there."""

    def write(replaced):
        shutil.rmtree(tmp_path / "runs")
        return written(replaced)

    return write


@pytest.fixture
def spec(tmp_path):
    """The cases of the made-up sweep by name."""
    path = tmp_path / "of-cases.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return {case.name: case for case in load_config(path).cases}


def copies(bench, us=1.0):
    """Copies of any size that take as long."""
    return PlainCopy(((1, us), (1 << 40, us)), "made up")


def worst(bench, runs, copy=None, **options):
    copy = copies(bench) if copy is None else copy
    return bench.worst_aims.worst_of(bench.worst_runs.read_runs(runs), copy, **options)


def row(found, title):
    (chosen,) = [each for each in found.rows if each.title.startswith(title)]
    return chosen


def rendered(bench, found):
    """The page in Markdown, with one blank where cells are padded."""
    page = render_document(bench.worst_text.document(found))
    return "\n".join(" ".join(line.split()) for line in page.splitlines()) + "\n"


def test_whole_page(bench, written, spec):
    slow = case_of("one_launch", spec["second"], (3, 4, 2.5))
    unsupported = make_failed_case(
        "third", ops.STEP, "lacks custom_outputs",
        code=ReasonCode.UNSUPPORTED, status=Status.UNSUPPORTED,
    ).model_copy(update={"workload": case_of("vllm", spec["third"]).workload})  # fmt: skip
    replaced = {("one_launch", "second"): slow, ("vllm", "third"): unsupported}
    found = worst(bench, written(replaced), copies(bench, 5.0))
    page = render_document(bench.worst_text.document(found))
    assert_golden(page, Path(__file__).parent / "golden" / "worst.md")


def test_all_reached(bench, written):
    found = worst(bench, written())
    assert found.problems == []
    assert [each.met() for each in found.rows] == [True] * 5
    assert found.succeeded()
    assert row(found, "host + stage: times").worst[1] == pytest.approx(15, rel=0.01)
    assert row(found, "GPU: times").median == pytest.approx(4, rel=0.01)
    # Of baseline and fused, fused takes less.
    assert row(found, "stage to").values["made/first"] == pytest.approx(32 / 16, rel=0.01)
    assert {each.beside["device"].other for each in found.cases.values()} == {"fused"}
    assert "all aims are reached" in rendered(bench, found).splitlines()[0]


def test_ratios_are_those_of_compare(bench, written):
    """The same question has the same answer by the command, over the same files."""
    from bt_bench.analysis import Criteria, Matchup, Side, judge
    from bt_bench.results import read_compact

    runs = written()
    paths = [runs / "made" / f"{name}.json" for name in ("vllm", "one_launch")]
    sides = [Side(path.stem, read_compact(path)) for path in paths]
    judged = judge([Matchup(*sides)], Criteria(metrics=["host_us+stage_us"])).judgements
    said = next(each for each in judged if each.case == "second")
    ratio = worst(bench, runs).cases["made/second"].against["host + stage"]
    assert (ratio.value, ratio.low, ratio.high) == (1 / said.ratio, 1 / said.high, 1 / said.low)
    assert ratio.verdict == said.verdict.value == "FASTER"


@pytest.mark.parametrize(
    ("factors", "title"),
    [
        ((2.2, 1, 1), "host + stage: times"),
        ((1, 1, 2.5), "GPU: times"),
        ((1, 3, 1), "stage to synchronize"),
    ],
)
def test_each_aim_can_be_missed(bench, written, spec, factors, title):
    slow = case_of("one_launch", spec["second"], factors)
    found = worst(bench, written({("one_launch", "second"): slow}))
    assert [each.title for each in found.rows if not each.met()] == [row(found, title).title]
    assert row(found, title).worst[0] == "made/second"
    assert row(found, title).worst_met() is False
    assert row(found, title).median_met()
    assert not found.succeeded()


def test_slower_counts_only_where_it_is_resolved(bench, written, again, spec):
    """Stage to synchronize of 32 µs by `fused`, and of as much by the judged variant."""
    equal = case_of("one_launch", spec["second"], (1, 30 / 14, 1))
    found = row(worst(bench, written({("one_launch", "second"): equal})), "stage to")
    assert found.values["made/second"] == pytest.approx(1, abs=0.01)
    assert found.worst_met()
    slower = case_of("one_launch", spec["second"], (1, 2.4, 1))
    found = row(worst(bench, again({("one_launch", "second"): slower})), "stage to")
    assert found.worst[0] == "made/second"
    assert found.worst[1] == pytest.approx(32 / 35.6, rel=0.01)
    assert found.slower == ["made/second"]
    assert found.worst_met() is False
    assert found.median_met()


def test_the_best_other_is_the_fastest_even_if_it_cannot_be_compared(bench, written, spec):
    """Samples that are the same in every round are of no clock."""
    odd = case_of("fused", spec["second"])
    steps = [m for m in odd.measurements if m.quantity is not Quantity.STEP_US]
    constant = make_measurement(Quantity.STEP_US, [[31.0]] * ROUNDS)
    stage = [m for m in steps if m.quantity is Quantity.STAGE_US]
    flat = make_measurement(Quantity.STAGE_US, [[2.0]] * ROUNDS)
    odd = odd.model_copy(
        update={"measurements": [*(m for m in steps if m not in stage), constant, flat]}
    )
    found = worst(bench, written({("fused", "second"): odd}))
    ratio = found.cases["made/second"].beside["stage to synchronize"]
    assert (ratio.other, ratio.value) == ("fused", None)
    assert ratio.why.startswith("INVALID: ")
    assert row(found, "stage to").missing == 1


def test_where_a_copy_is_the_bound_its_speed_counts(bench, written):
    runs = written()
    # A third of 12 µs; that by 3 µs is more than the copy itself can do, by 5 µs less.
    found = worst(bench, runs, copies(bench, 4.1))
    assert row(found, "GPU: times").values == {}
    assert not row(found, "GPU: times").missing
    speeds = row(found, "GPU elsewhere")
    assert speeds.worst[1] == pytest.approx(4.1 / 3, rel=0.02)
    assert speeds.met()
    found = worst(bench, runs, copies(bench, 3.9))
    assert row(found, "GPU elsewhere").values == {}
    assert row(found, "GPU elsewhere").met()


def test_a_copy_that_is_not_known(bench, written):
    read = bench.worst_runs.read_runs(written())
    found = bench.worst_aims.worst_of(read, None)
    assert found.problems == ["how long plain copies take is not known"]
    assert [row(found, title).missing for title in ("GPU: times", "GPU elsewhere")] == [3, 3]
    assert not row(found, "GPU elsewhere").met()


def test_what_is_not_known_is_not_reached(bench, written, again, spec):
    assert worst(bench, written()).succeeded()
    for arm in ("baseline", "fused", "one_launch", "vllm"):
        empty = case_of(arm, spec["first"], measurements=[])
        found = worst(bench, again({(arm, "first"): empty}))
        assert not found.succeeded()
        if arm in ("one_launch", "vllm"):
            assert any("made/first" in row.unknown and not row.met() for row in found.rows)


def test_what_the_opponent_does_not_support_is_missing_and_not_unknown(bench, written, spec):
    reason = make_failed_case(message="it has no such option").reason
    lacking = case_of("vllm", spec["first"], status=Status.UNSUPPORTED, reason=reason)
    found = worst(bench, written({("vllm", "first"): lacking}))
    assert row(found, "host + stage: times").missing == 1
    assert not row(found, "host + stage: times").unknown
    assert found.succeeded()


@pytest.mark.parametrize("arm", ["baseline", "fused", "vllm"])
def test_another_arm_that_failed_is_told(bench, written, spec, arm):
    reason = make_failed_case(message="slot 3 is 17").reason
    failed = case_of(arm, spec["first"], status=Status.FAILED, reason=reason)
    found = worst(bench, written({(arm, "first"): failed}))
    name = "vllm_0.33.0" if arm == "vllm" else arm
    assert any(f"{name} failed" in problem for problem in found.problems)
    assert not found.succeeded()


@pytest.mark.parametrize("arm", ["baseline", "fused", "vllm"])
def test_an_arm_that_is_not_there_is_told(bench, written, arm):
    arms = tuple(name for name in ARMS if name != arm)
    found = worst(bench, written(arms=arms))
    name = "vllm_0.33.0" if arm == "vllm" else arm
    assert found.problems == [f"made: has no results of {name}"]
    assert not found.succeeded()


def test_cases_that_no_shard_has_measured_are_told(bench, written):
    runs = written()
    expected = {f"made/{name}" for name in CASES}
    assert worst(bench, runs, expected=expected).succeeded()
    found = worst(bench, runs, expected=expected | {"other/case"})
    assert found.problems == ["1 cases have not been measured: other/case"]
    everything = bench.worst_runs.expected_of(bench.worst_runs.CONFIGS, None, "one_launch")
    assert {"shapes", "origin", "azure_code"} <= {name.split("/")[0] for name in everything}
    assert len(everything) > 400


def test_runs_of_different_code_or_machines_are_not_judged_together(bench, written):
    written()
    first, second = bench.worst_runs.read_runs(written(name="second"))
    changes = {"torch": "9.9", "commit": "f" * 40}
    others = {}
    for arm, result in second.results.items():
        env = result.header.environment.model_copy(update=changes)
        header = result.header.model_copy(update={"environment": env})
        others[arm] = replace(result, header=header)
    mixed = replace(second, results=others)
    found = bench.worst_aims.worst_of([first, mixed], copies(bench))
    assert [problem.split(":")[0] for problem in found.problems[:2]] == [
        "runs are not of one torch",
        "runs are not of one commit",
    ]


def test_tails(bench, spec):
    tail_of = bench.worst_figures.tail_of

    def taken(us, rounds=range(200), steps=1):
        values = np.ones((len(rounds), steps))
        values[np.array(rounds) % 20 == 0] = us
        return SimpleNamespace(rounds=tuple(rounds), samples=values)

    found = tail_of(taken(3.0), taken(2.0))
    assert (found.ours, found.theirs, found.ratio, found.samples) == (3.0, 2.0, 1.5, 200)
    # Only the rounds of both count: none of the slow ones are among those of the other.
    odd = range(1, 200, 2)
    assert tail_of(taken(3.0), taken(2.0, odd)).ours == 1.0
    assert tail_of(taken(3.0, range(40), 3), taken(2.0, range(40), 3)).samples == 120
    assert tail_of(taken(3.0), taken(2.0, range(99))) == "fewer than 100 samples"
    assert tail_of(None, taken(2.0)) == "one side has no samples"
    delayed = tail_of(taken(13.0, range(100)), taken(2.0, range(100)))
    assert (delayed.delayed, delayed.measured_us) == (5, 95 + 5 * 13)
    assert tail_of(taken(12.9), taken(2.0)).delayed == 0


def test_tails_are_told_in_us_too(bench):
    def case(us, theirs_us, tail=(2.0, 1.5)):
        tail = tail and bench.worst_figures.Tail(*tail, samples=100)
        times = {"a": us, "b": theirs_us}
        return SimpleNamespace(us={"host + stage": times}, tail=tail)

    tails = bench.worst_aims._tails_in_us
    cases = [case(10.0, 100.0), case(30.0, 100.0), case(99.0, 1.0, None)]
    (line,) = tails(cases, "a", "b")
    # 10 and 30 µs, and 50 and 50; the last has no tail.
    assert line == (
        "99th percentiles of host + stage lie 20 µs above the median with a, and 50 µs with b "
        "(medians over 2 cases)"
    )
    assert tails([case(99.0, 1.0, None)], "a", "b") == []


def test_delays_are_told_for_the_time_that_was_measured(bench):
    def case(us, delayed, samples=1000):
        tail = bench.worst_figures.Tail(2.0, 1.5, samples, delayed, measured_us=us * samples)
        return SimpleNamespace(us={"host + stage": {"a": us}}, tail=tail)

    cases = [case(10.0, 10), case(11.0, 32), case(16.0, 16), case(50.0, 999)]
    first, second = bench.worst_aims._delays(cases, "a")
    assert first == (
        "Of 2,000 steps with a in cases of 0 to 12 µs, 2.10% take 12 µs or more above the median "
        "of their case: 2.00 for each ms that was measured"
    )
    assert second.endswith("above the median of their case: 1.00 for each ms that was measured")


def test_what_could_not_be_compared(bench, written, spec):
    reason = make_failed_case(message="slot 3 is 17").reason
    failed = case_of("one_launch", spec["first"], status=Status.FAILED, reason=reason)
    found = worst(bench, written({("one_launch", "first"): failed}))
    assert len(found.problems) == 1
    assert "one_launch failed" in found.problems[0]
    assert all(each.missing == 1 for each in found.rows if not each.optional)
    assert "| host + stage, vLLM 0.33.0 | INVALID: failed for one_launch" in rendered(bench, found)
    assert not found.succeeded()


def test_nothing_of_vllm(bench, written):
    found = worst(bench, written(arms=("baseline", "fused", "one_launch")))
    assert row(found, "stage to").met()
    assert row(found, "host + stage: times").met() is False
    assert "vllm_0.33.0 is not in the run" in rendered(bench, found)


def test_nothing_at_all(bench, tmp_path):
    found = worst(bench, tmp_path)
    assert found.problems == ["no run has a case of one_launch"]
    assert not found.succeeded()
    ET.fromstring(bench.worst_picture.picture(found))
    assert "Nothing was compared." in rendered(bench, found)


def test_another_variant_against_another(bench, written):
    found = worst(bench, written(), variant="fused", opponent="baseline")
    ratio = found.cases["made/first"].against["device"]
    assert (ratio.other, ratio.value) == ("baseline", pytest.approx(1.5, rel=0.01))
    assert found.cases["made/first"].beside["device"].other == "baseline"


def test_runs_that_overlap_or_did_not_end(bench, written):
    written()
    found = worst(bench, written(name="made-1of2", complete=False))
    assert found.problems[0] == "made-1of2: the run did not come to its end"
    assert found.problems[1:] == [
        f"made-1of2: made/{case} is in another run, too" for case in CASES
    ]
    assert len(found.cases) == 3


def test_a_workload_that_has_changed_since(bench, written, spec):
    old = case_of("one_launch", spec["first"])
    old = old.model_copy(update={"workload": old.workload.model_copy(update={"digest": "0" * 64})})
    found = worst(bench, written({("one_launch", "first"): old}))
    (problem,) = found.problems
    assert problem == "made, step/first: left out, as its workload has changed since"
    assert list(found.cases) == ["made/second", "made/third"]


def test_sizes_are_kept_beside_the_run(bench, written, monkeypatch):
    runs = written()
    (left,) = bench.worst_runs.read_runs(runs)
    monkeypatch.setattr(bench.worst_runs, "build_workload", None)
    (again,) = bench.worst_runs.read_runs(runs)
    assert again.sizes == left.sizes
    sizes = left.sizes["second"]
    assert (sizes.groups, sizes.requests, sizes.tokens, sizes.rows_written) == (2, 8, 8, 8)
    assert len(sizes.moved_bytes) == 1


def test_sizes_of_another_window_are_not_taken_for_those_of_this_one(bench, written):
    runs = written()
    (left,) = bench.worst_runs.read_runs(runs)
    (kept,) = runs.glob(f"*{bench.worst_runs.SIZES_SUFFIX}")
    stored = json.loads(kept.read_text())
    stored["second"]["parameters"]["requests"] += 1
    stored["second"]["sizes"]["requests"] = 77
    stored["third"]["sizes"]["requests"] = 78
    stored["first"] = stored["first"]["sizes"]  # as they were once kept
    kept.write_text(json.dumps(stored))
    (again,) = bench.worst_runs.read_runs(runs)
    assert again.sizes["second"] == left.sizes["second"]
    assert again.sizes["first"] == left.sizes["first"]
    assert again.sizes["third"].requests == 78


def test_every_case_is_profiled_in_enough_instances_for_an_interval(bench):
    """An instance takes pairs of rounds, and three are the fewest."""
    for piece in bench.worst_runs.pieces_of(bench.worst_runs.CONFIGS, None, "one_launch"):
        plan = piece.spec.plan
        assert min(plan.instances, plan.profile_rounds // 2) >= 3, piece.name


# Copies


def test_copies_of_a_file(bench, tmp_path):
    path = tmp_path / "copy.json"
    path.write_text('{"source": "here", "points": [[1024, 1.0], [4096, 4.0], [8192, 4.0]]}')
    copy = bench.worst_copy.read_copy(path)
    assert copy == PlainCopy(((1024, 1.0), (4096, 4.0), (8192, 4.0)), "here")


@pytest.mark.parametrize("text", ["", "{}", '{"source": "x", "points": [[2, 1.0], [1, 1.0]]}'])
def test_a_file_of_copies_that_is_none(bench, tmp_path, text):
    path = tmp_path / "copy.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"copy.json: .*expected"):
        bench.worst_copy.read_copy(path)


def test_records_of_copies_that_were_dropped(bench):
    sizes = list(bench.worst_copy.MOVED_BYTES)
    samples = [[float(size)] * bench.worst_copy.TIMES for size in sizes]
    whole = PlainCopies(moved_bytes=sizes, samples=samples)
    assert bench.worst_copy.complete_points(whole) == [(size, float(size)) for size in sizes]
    short = PlainCopies(moved_bytes=sizes, samples=[samples[0][1:], *samples[1:]])
    with pytest.raises(UsageError, match=r"move \[1024\] bytes in every attempt; try again"):
        bench.worst_copy.complete_points(short)
    none = PlainCopies(moved_bytes=sizes[:-1], samples=samples[:-1])
    with pytest.raises(UsageError, match=rf"move \[{sizes[-1]}\] bytes"):
        bench.worst_copy.complete_points(none)


@pytest.mark.gpu
def test_copies_on_a_gpu(bench, tmp_path):
    path = tmp_path / "copy.json"
    path.write_text(json.dumps(bench.worst_copy.measure()), encoding="utf-8")
    copy = bench.worst_copy.read_copy(path)
    assert 0.3 < copy.us(1024) < 20
    # Far beyond any cache, at the rate of no device yet.
    assert 0.5e9 / copy.us(2**29) * 1e6 < 2e13
    assert copy.us(2**29) > 2 * copy.us(2**27)


# Sweeps


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_have_all_cases_once(bench, count):
    runs = bench.worst_runs
    shards = [
        runs.pieces_of(("shapes", "origin", "features"), None, "one_launch", runs.Shard(i, count))
        for i in range(1, count + 1)
    ]
    names = [f"{p.spec.name}/{c.name}" for pieces in shards for p in pieces for c in p.spec.cases]
    wanted = [
        f"{name}/{case.name}"
        for name in ("shapes", "origin", "features")
        for case in load_config(name).cases
    ]
    assert names == wanted
    seconds = [runs.seconds_of(pieces) for pieces in shards]
    assert max(seconds) - min(seconds) < 8
    folders = [piece.name for pieces in shards for piece in pieces]
    assert len(set(folders)) == len(folders)


def test_sweeps_are_brief_and_have_vllm(bench):
    runs = bench.worst_runs
    pieces = runs.pieces_of(runs.CONFIGS, None, "one_launch")
    assert [piece.name for piece in pieces] == list(runs.CONFIGS)
    for piece in pieces:
        assert piece.spec.variants[-2:] == ["one_launch", "vllm"]
        assert piece.spec.operations == [ops.STEP]
        assert piece.spec.plan.instances == 4
        assert not piece.spec.plan.control
    assert 600 < runs.seconds_of(pieces) < 1500


def test_cases_can_be_chosen(bench):
    runs = bench.worst_runs
    pieces = runs.pieces_of(("origin", "features"), "medium*", "fused")
    assert [(piece.name, len(piece.spec.cases)) for piece in pieces] == [("origin", 3)]
    with pytest.raises(UsageError, match="-k 'nothing': no case of origin, features matches"):
        runs.pieces_of(("origin", "features"), "nothing", "fused")
    with pytest.raises(UsageError, match="named origin, origin; expected each name once"):
        runs.pieces_of(("origin", "origin"), None, "fused")


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "a/b", "1/"])
def test_what_is_no_shard(bench, text):
    with pytest.raises(ValueError, match=r"shard|invalid literal"):
        bench.worst_runs.Shard.parse(text)
    assert bench.worst_runs.Shard.parse("2/3") == bench.worst_runs.Shard(2, 3)


FAKE = """\
import sys, time
from pathlib import Path
Path({log!r}).open("a").write(" ".join(sys.argv[1:]) + "\\n")
if {hangs}:
    time.sleep(60)
sys.exit({code})
"""


@pytest.fixture
def sweeps(bench, tmp_path, monkeypatch):
    """In place of `bt-bench sweep`, a program that notes what it was asked for."""
    log = tmp_path / "log"

    def fake(code=0, hangs=False):
        path = tmp_path / "fake.py"
        path.write_text(FAKE.format(log=str(log), code=code, hangs=hangs))

        def command(program, _m, _module, *rest):
            return [sys.executable, str(path), *rest]

        popen = bench.worst_runs.subprocess.Popen
        monkeypatch.setattr(
            bench.worst_runs.subprocess,
            "Popen",
            lambda given, **options: popen(command(*given), **options),
        )
        return lambda: log.read_text().splitlines() if log.exists() else []

    return fake


def origin(bench):
    return bench.worst_runs.pieces_of(("origin",), "small*", "one_launch")


def test_a_new_sweep(bench, sweeps, tmp_path):
    asked = sweeps()
    runs = tmp_path / "runs"
    assert bench.worst_runs.run_pieces(origin(bench), runs, ["--device", "cpu"]) == []
    (line,) = asked()
    assert line == f"sweep {runs}/origin.yaml --out {runs}/origin --device cpu"
    spec = load_config(runs / "origin.yaml")
    assert spec.model_copy(update={"suite": origin(bench)[0].spec.suite}) == origin(bench)[0].spec


def begun(bench, written, **options):
    """A run folder of `origin`, with the config of its piece."""
    runs = written(name="origin", **options)
    text = dump_config(origin(bench)[0].spec, runs / "origin")
    (runs / "origin" / "config.yaml").write_text(text, encoding="utf-8")
    return runs


def test_a_sweep_that_was_begun_otherwise_is_not_taken_for_this_one(bench, sweeps, written):
    asked = sweeps()
    runs = written(name="origin")
    with pytest.raises(UsageError, match="origin is of other cases or another plan than"):
        bench.worst_runs.run_pieces(origin(bench), runs, [], resume=True)
    runs = begun(bench, lambda **_: runs)
    brief = bench.worst_runs.pieces_of(("origin",), "small*", "one_launch", quick=True)
    with pytest.raises(UsageError, match="origin is of other cases or another plan than"):
        bench.worst_runs.run_pieces(brief, runs, [], resume=True)
    assert asked() == []


def test_a_sweep_that_was_begun(bench, sweeps, written):
    asked = sweeps()
    runs = begun(bench, written, complete=False)
    with pytest.raises(UsageError, match=r"origin exists, .* pass --resume"):
        bench.worst_runs.run_pieces(origin(bench), runs, [])
    assert asked() == []
    assert bench.worst_runs.run_pieces(origin(bench), runs, [], resume=True) == []
    assert asked() == [f"sweep --resume {runs}/origin"]


def test_a_folder_without_a_run(bench, sweeps, tmp_path):
    asked = sweeps()
    folder = tmp_path / "runs" / "origin"
    folder.mkdir(parents=True)
    assert bench.worst_runs.run_pieces(origin(bench), folder.parent, [], resume=True) == []
    assert len(asked()) == 1  # anew, as nothing was there
    folder.mkdir()
    (folder / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match="origin is not a run folder"):
        bench.worst_runs.run_pieces(origin(bench), folder.parent, [], resume=True)
    assert (folder / "precious.txt").is_file()


def test_a_sweep_that_is_complete_is_not_run_again(bench, sweeps, written):
    asked = sweeps()
    assert bench.worst_runs.run_pieces(origin(bench), begun(bench, written), [], resume=True) == []
    assert asked() == []


def test_a_sweep_that_fails(bench, sweeps, tmp_path):
    sweeps(code=70)
    problems = bench.worst_runs.run_pieces(origin(bench), tmp_path / "runs", [])
    assert problems == ["origin: bt-bench sweep ended with 70"]
    sweeps(code=5)  # a case failed, which the results say
    assert bench.worst_runs.run_pieces(origin(bench), tmp_path / "others", []) == []


def test_the_time_is_up(bench, sweeps, tmp_path):
    asked = sweeps(hangs=True)
    pieces = bench.worst_runs.pieces_of(("origin", "quick"), None, "one_launch")
    problems = bench.worst_runs.run_pieces(pieces, tmp_path / "runs", [], limit_s=1.0)
    assert problems == [
        "origin: stopped after 1 s; go on with --resume",
        "quick: not begun, since the time is up; go on with --resume",
    ]
    assert len(asked()) == 1


# What is written


def test_stored_figures(bench, written, tmp_path):
    found = worst(bench, written())
    bench.worst.write(found, tmp_path / "out")
    text = (tmp_path / "out" / "worst.json").read_text()
    stored = json.loads(text)
    assert list(stored["cases"]) == [f"made/{case}" for case in CASES]
    assert len([line for line in text.splitlines() if line.startswith('  "made/')]) == 3
    case = stored["cases"]["made/first"]
    assert case["us"]["device"][NEW] == pytest.approx(12, rel=0.01)
    assert case["against"]["device"]["verdict"] == "FASTER"
    assert len(str(case["against"]["device"]["value"])) <= 7
    assert (tmp_path / "out" / "worst.md").is_file()


def test_picture(bench, written):
    found = worst(bench, written())
    text = bench.worst_picture.picture(found)
    assert text == bench.worst_picture.picture(found)
    root = ET.fromstring(text)
    name = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{name}g")) == 5
    dots = [path for path in root.iter(f"{name}path") if path.get("stroke-width") == "3"]
    assert len(dots) == 8
    assert all(path.get("d").count("M") == 3 for path in dots)
    texts = [each.text for each in root.iter(f"{name}text")]
    assert "vLLM 0.33.0 (3 cases)" in texts
    assert "aim, worst, vLLM 0.33.0" in texts


def test_ticks_are_few_and_within(bench):
    for low, high in ((0.9, 1.3), (0.5, 30), (0.01, 1e6), (0.99, 1.01)):
        ticks = bench.worst_picture._ticks(low, high)
        assert all(low <= tick <= high for tick in ticks)
        assert 1 <= len(ticks) <= 12


@pytest.mark.slow
def test_on_a_cpu(bench, tmp_path, monkeypatch):
    """Without a GPU there is no time to compare, and everything says so."""
    config = tmp_path / "made.yaml"
    config.write_text(CONFIG.replace(", vllm]", "]"), encoding="utf-8")
    out = tmp_path / "out"
    command = ["worst.py", "--config", str(config), "--out", str(out), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [*command, "--quick", "-k", "third"])
    assert bench.worst.main() == 1
    assert "not known" in (out / "worst.md").read_text()
    monkeypatch.setattr(sys, "argv", [*command, "--quick", "-k", "third", "--resume"])
    assert bench.worst.main() == 1
