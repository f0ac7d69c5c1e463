"""`studies/headline.py` packs what the results say, and continues what was begun."""

from __future__ import annotations

import importlib
import json
import math
import sys
from dataclasses import replace
from functools import cache
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

from bt_bench.base.errors import UsageError
from bt_bench.config import dump_config
from bt_bench.config.load import load_config
from bt_bench.protocol import build_workload, record_of
from bt_bench.report import render_document
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.writing import write_result
from bt_bench.results.run.nouns import Quantity, ReasonCode, Status
from bt_bench.suites.block_tables import operations as ops

ROOT = Path(__file__).parents[2]
MODULES = ("recompute", "headline_runs", "headline_page", "headline")
FOLDERS = sorted(path.parent for path in (ROOT / "reports").rglob("samples.npz"))
ROUNDS = 120
QUANTITIES = "host by vllm, gpu by vllm, whole by vllm"

CONFIG = """\
name: made
variants: [baseline, fused, one_launch_each, vllm]
operations: [step]
defaults: {workload: spread, max_num_reqs: 64, max_num_batched_tokens: 256, max_model_len: 256}
cases:
  - {name: first, requests: 5, tokens: 40, spread: power_law}
  - {name: second, requests: 8, tokens: 8, groups: 2}
  - {name: third, requests: 0, tokens: 0}
"""
CASES = ("first", "second", "third")
EXPECTED = [f"made/{case}" for case in CASES]
# Host, from the begin of the call to the synchronisation, and device.
ARMS = {
    "baseline": (60.0, 70.0, 9.0),
    "fused": (40.0, 30.0, 6.0),
    "one_launch_each": (8.0, 14.0, 3.0),
    "vllm": (148.0, 160.0, 12.0),
}
STAGE_US = 2.0


@pytest.fixture(scope="module")
def study():
    """The modules of the study, under their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "studies"))
        made = SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
        load, stock = made.headline_runs.load_config, cache(load_stock)
        patch.setattr(
            made.headline_runs,
            "load_config",
            lambda where, overrides=(), operations=None, suite=None: (
                load(where, overrides=overrides, operations=operations, suite=suite)
                if isinstance(where, Path)
                else stock(where, tuple(overrides), operations and tuple(operations), suite)
            ),
        )
        yield made
    for name in MODULES:
        del sys.modules[name]


def load_stock(name, overrides, operations, suite):
    """Loads a stock config, whose hundreds of cases take half a second, once for all tests."""
    return load_config(name, overrides=overrides, operations=operations, suite=suite)


def samples(us: float, arm: str) -> list[list[float]]:
    """Rounds with a little noise of the arm's own, and one in ten that takes a tenth longer."""
    own = 7 + list(ARMS).index(arm)
    noise = [0.001 * (index % own) + (0.1 if index % 10 == 0 else 0.0) for index in range(ROUNDS)]
    return [[us * (1 + each)] for each in noise]


def case_of(arm: str, case, instances=3, **changes):
    """A case of an arm."""
    quantities = (Quantity.HOST_US, Quantity.STEP_US, Quantity.GPU_US)
    made = [
        make_measurement(
            quantity, samples(us, arm)[: 30 if quantity is Quantity.GPU_US else ROUNDS]
        )
        for quantity, us in zip(quantities, ARMS[arm], strict=True)
    ]
    made.append(
        make_measurement(Quantity.STAGE_US, [[STAGE_US + 0.001 * (i % 5)] for i in range(ROUNDS)])
    )
    workload = record_of(case.parameters, build_workload(case.parameters))
    found = make_case(case.name, ops.STEP, workload=workload)
    logged = {"rounds": make_rounds(ROUNDS, instances=instances), "measurements": made}
    return found.model_copy(update=logged | changes)


@pytest.fixture
def written(tmp_path):
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
            write_result(RunFolder(folder), make_result(arm, cases, complete=complete, run_id=name))
        return runs

    return write


@pytest.fixture
def spec(tmp_path):
    """The cases of the made-up sweep by name."""
    path = tmp_path / "of-cases.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return {case.name: case for case in load_config(path).cases}


# Packing


def test_ratios_are_those_of_the_samples(study, written):
    packed = study.headline.packed_of(written(), EXPECTED)
    lines = [
        study.recompute.line(packed.samples, title)
        for title in study.recompute.lines_of(packed.samples)
    ]
    wanted = (15, 4, 162 / 16, 2, None)  # of baseline and fused, fused takes less
    for found, value in zip(lines, wanted, strict=True):
        assert set(found) == {f"made/{case}" for case in CASES}
        if value is not None:
            assert list(found.values()) == pytest.approx([value] * 3, rel=0.01)
    assert packed.facts["verdicts"] == {
        "host": {"FASTER": 3},
        "gpu": {"FASTER": 3},
        "whole": {"FASTER": 3},
    }
    assert packed.facts["problems"] == []


def test_batches_have_lines_of_their_own(study, written):
    arms = replace(study.headline_runs.BATCHES, others=("fused",))
    packed = study.headline.packed_of(written(), EXPECTED, arms)
    samples = dict(packed.samples, arms=np.array([*packed.samples["arms"][:2], "separate"]))
    call, spread, separate = [*study.recompute.LINES][-3:]
    assert study.recompute.lines_of(packed.samples)[-2:] == [call, spread]
    assert study.recompute.lines_of(samples) == [*study.recompute.LINES]
    assert min(study.recompute.line(samples, call).values()) == pytest.approx(148 / 8, rel=0.01)
    ours = samples["made/first call"][0, :, 0] / 1000
    wanted = np.percentile(ours - np.median(ours), 99)
    assert study.recompute.line(samples, spread)["made/first"] == pytest.approx(wanted)
    found = study.recompute.line(samples, separate)
    assert min(found.values()) == pytest.approx(32 / 16, rel=0.01)
    shown = " ".join(render_document(study.headline_page.page(samples, packed.facts)).split())
    assert "ours is slower, in 0 of 3 cases; 3 have rounds enough to have shown 5 %" in shown
    few = {key: array[:, :40] if key.endswith("call") else array for key, array in samples.items()}
    assert study.recompute.line(few, spread) == {}


def test_ratios_are_those_of_compare(study, written):
    """The same question has the same answer by the command, over the same files."""
    from bt_bench.analysis import Criteria, Matchup, Side, judge
    from bt_bench.results import read_compact

    runs = written()
    packed = study.headline.packed_of(runs, EXPECTED)
    sides = [
        Side(arm, read_compact(runs / "made" / f"{arm}.json"))
        for arm in ("vllm", "one_launch_each")
    ]
    for what, metric in study.headline_runs.METRICS.items():
        judged = judge([Matchup(*sides)], Criteria(metrics=[metric.name])).judgements
        assert len(judged) == 3
        for each in judged:
            ratio = study.recompute.times_less(packed.samples, f"made/{each.case} {what}")
            assert ratio == pytest.approx(1 / each.ratio, rel=1e-4)


@pytest.mark.parametrize("instances", [1, 2])
def test_a_ratio_needs_three_instances(study, written, spec, instances):
    few = case_of("one_launch_each", spec["first"], instances=instances)
    theirs = case_of("vllm", spec["first"], instances=instances)
    runs = written({("one_launch_each", "first"): few, ("vllm", "first"): theirs})
    packed = study.headline.packed_of(runs, EXPECTED)
    assert study.recompute.times_less(packed.samples, "made/first host") is None
    assert study.recompute.times_less(packed.samples, "made/second host") is not None


def test_only_rounds_of_both_count(study):
    both = np.array([[[1], [2], [-1], [4]], [[10], [20], [5], [-1]]])
    data = {"a": both, "a instances": np.array([0, 1, 2, 3])}
    assert study.recompute.times_less(data, "a") is None  # two rounds
    both[1, 3] = 40
    assert study.recompute.times_less(data, "a") == pytest.approx(10)
    assert study.recompute.typical(data, "a", 0) == 0.002
    assert study.recompute.typical({"a": both * 0 - 1}, "a", 0) == math.inf


def test_steps_in_which_nothing_is_launched_are_left_out(study):
    both = np.array([[[1, 0], [1, 0], [1, 0]], [[3, 0], [3, 0], [3, 0]]])
    data = {"a": both, "a instances": np.arange(3)}
    assert study.recompute.times_less(data, "a") == pytest.approx(3)
    both[1, 0, 1] = 2  # the other arm launches something
    assert study.recompute.times_less(data, "a") is None


def test_tails_are_of_a_hundred_samples_or_more(study, written):
    packed = study.headline.packed_of(written(), EXPECTED)
    ours, theirs = packed.samples["made/first host"][:2, :, 0].astype(float)
    late = [np.percentile(each / np.median(each), 99) for each in (ours, theirs)]
    assert study.recompute.tail(packed.samples, "made/first host") == pytest.approx(
        late[0] / late[1]
    )
    assert study.recompute.tail(packed.samples, "made/first gpu") is None  # of 30 rounds


def test_what_vllm_does_not_support_is_missing_and_no_problem(study, written, spec):
    unsupported = make_failed_case(
        "third", ops.STEP, "lacks custom_outputs",
        code=ReasonCode.UNSUPPORTED, status=Status.UNSUPPORTED,
    )  # fmt: skip
    packed = study.headline.packed_of(written({("vllm", "third"): unsupported}), EXPECTED)
    assert packed.facts["unsupported"] == ["made/third"]
    assert packed.facts["problems"] == []
    found = study.recompute.line(packed.samples, "GPU: times less than vLLM")
    assert set(found) == {"made/first", "made/second"}


def test_problems_are_told(study, written, spec):
    failed = make_failed_case("second", ops.STEP, "wrong block table")
    runs = written({("fused", "second"): failed}, arms=("fused", "one_launch_each"), complete=False)
    problems = study.headline.packed_of(runs, EXPECTED).facts["problems"]
    assert problems == [
        "made: has no results of baseline",
        "made: has no results of vllm",
        "made: did not come to its end",
        "made, step/second: fused failed: wrong block table",
        *(f"{case}: has no samples of {QUANTITIES}" for case in EXPECTED),
    ]


def test_cases_without_samples_are_told(study, written, spec):
    case = case_of("one_launch_each", spec["second"])
    without = case.model_copy(update={"measurements": case.measurements[:2]})  # no gpu_us
    runs = written({("one_launch_each", "second"): without})
    problems = study.headline.packed_of(runs, [*EXPECTED, "made/fourth"]).facts["problems"]
    assert problems[0] == "made/fourth: is in no run"
    assert problems[1].startswith("made/second: has no samples of ")
    assert "gpu by one_launch_each" in problems[1]
    assert len(problems) == 2


def test_runs_of_different_code_or_machines_are_not_packed_together(study, written):
    runs = written()
    written(name="other")
    path = runs / "other" / "fused.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    result["environment"] |= {"commit": "f" * 40, "cpu": "another", "host": "f" * 12}
    path.write_text(json.dumps(result), encoding="utf-8")
    problems = study.headline.packed_of(runs, EXPECTED).facts["problems"]
    assert [each.split(":")[0] for each in problems] == [
        *["other"] * 3,
        *(f"runs are not of one {what}" for what in ("machine", "host", "commit")),
    ]


def test_nothing_at_all(study, tmp_path):
    with pytest.raises(UsageError, match="has no results of sweeps"):
        study.headline.packed_of(tmp_path, EXPECTED)


def test_files(study, written, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["headline.py", "pack", str(written()), "--out", str(out)])
    monkeypatch.setattr(study.headline, "pieces_of", lambda *_, **__: [])
    assert study.headline.main() == 0
    assert "3 cases beside vLLM" in capsys.readouterr().out
    with np.load(out / "samples.npz") as stored:
        assert study.headline.digest(stored) == digest_in(out)
        page = study.headline_page.page(stored, json.loads((out / "facts.json").read_text()))
    assert (out / "headline.md").read_text(encoding="utf-8") == render_document(page)
    shown = " ".join(render_document(page).split())
    assert "| host + stage: times less than vLLM | 15.0 | 15.0 | 15.0 | made/" in shown
    assert "| nothing is written | 1 | 10.0 to 10.0 | 15.0 to 15.0, median 15.0 |" in shown
    assert "bt-bench compare says of host, sweep by sweep: 3 FASTER" in shown


def digest_in(folder: Path) -> str:
    return json.loads((folder / "facts.json").read_text(encoding="utf-8"))["samples_sha256"]


# What is in the repository


# Of a commit two: neither the samples nor the pages change often.
@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: "-".join(folder.parts[-2:]))
def test_the_page_is_that_of_its_samples(study, folder):
    assert (folder / "samples.npz").stat().st_size < 3_000_000
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    with np.load(folder / "samples.npz") as stored:
        data = dict(stored)
    assert study.headline.digest(data) == facts["samples_sha256"]
    page = render_document(study.headline_page.page(data, facts))
    assert page == (folder / "headline.md").read_text(encoding="utf-8")


def test_another_sample_is_found(study, written):
    packed = study.headline.packed_of(written(), EXPECTED)
    changed = dict(packed.samples)
    changed["made/second gpu"] = changed["made/second gpu"].copy()
    changed["made/second gpu"][1, 17, 0] += 1200  # of 12 µs
    assert study.headline.digest(changed) != packed.facts["samples_sha256"]


# Sweeps


@pytest.mark.parametrize("count", [1, 7])
def test_shards_have_all_cases_once(study, count):
    runs = study.headline_runs
    shards = [runs.pieces_of(shard=runs.Shard(i, count)) for i in range(1, count + 1)]
    names = [f"{p.spec.name}/{c.name}" for pieces in shards for p in pieces for c in p.spec.cases]
    assert sorted(names) == sorted(
        f"{name}/{case.name}" for name in runs.CONFIGS for case in load_config(name).cases
    )
    seconds = [runs.seconds_of(pieces) for pieces in shards]
    longest = max(runs.seconds_of([p]) / len(p.spec.cases) for pieces in shards for p in pieces)
    assert max(seconds) - min(seconds) <= longest
    folders = [piece.name for pieces in shards for piece in pieces]
    assert len(set(folders)) == len(folders)


def test_sweeps_are_brief_and_have_vllm(study):
    runs = study.headline_runs
    pieces = runs.pieces_of()
    assert [piece.name for piece in pieces if "-slow" not in piece.name] == list(runs.CONFIGS)
    (slow,) = [piece for piece in pieces if "-slow" in piece.name]
    assert (slow.spec.name, len(slow.spec.cases), slow.spec.plan.case_seconds) == ("shapes", 3, 8)
    for piece in pieces:
        assert piece.spec.variants[-2:] == ["one_launch_each", "vllm"]
        assert set(piece.spec.variants) <= set(runs.HEADLINE.all)
        assert piece.spec.operations == [ops.STEP]
        # Rounds are profiled in pairs of one instance, and a ratio needs three instances.
        plan = piece.spec.plan
        assert min(plan.instances, plan.profile_rounds // 2) >= 3
        assert not plan.control
    assert 600 < runs.seconds_of(pieces) < 1500


def test_floors_have_the_calls_of_vllm_in_the_layouts_of_engines(study):
    runs = study.headline_runs
    pieces = runs.pieces_of(arms=runs.FLOORS)
    assert {piece.spec.name for piece in pieces} == {*runs.CONFIGS, "layouts"}
    for piece in pieces:
        assert piece.spec.variants == ["one_launch_each", "three_calls", "vllm"]


@pytest.mark.parametrize("count", [3, 4])
def test_shards_of_batches_are_balanced(study, count):
    runs = study.headline_runs
    shards = [
        runs.pieces_of(shard=runs.Shard(i, count), arms=runs.BATCHES) for i in range(1, count + 1)
    ]
    pieces = [piece for pieces in shards for piece in pieces]
    names = [case.name for piece in pieces for case in piece.spec.cases]
    assert sorted(names) == sorted(
        case.name for case in load_config("batches", suite="batch_preparation").cases
    )
    for piece in pieces:
        assert piece.spec.operations == ["prepare"]
        assert set(piece.spec.variants) == set(runs.BATCHES.all)
        assert piece.spec.plan.case_seconds == 3
    seconds = [runs.seconds_of(pieces) for pieces in shards]
    assert max(seconds) < 1.2 * min(seconds)


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("decode_1req_4grp", "decodes"),
        ("drafts3_32req_4tails", "decodes with drafts"),
        ("prefill_4x2048", "prefills, and mixes of them with decodes"),
        ("mixed_drafts", "prefills, and mixes of them with decodes"),
    ],
)
def test_kinds_of_batches(study, case, kind):
    assert study.headline_page._kind_of(f"batches/{case}", {"requests": 1}) == kind
    assert study.headline_page._kind_of(f"batches/{case}", {}) == "windows of two traces"


def test_cases_can_be_chosen(study):
    runs = study.headline_runs
    hundred = (ROOT / "studies" / "hundred.txt").read_text(encoding="utf-8").split()
    pieces = runs.pieces_of(hundred)
    assert sum(len(piece.spec.cases) for piece in pieces) == len(set(hundred)) == 100
    pieces = runs.pieces_of(["origin/small_batch_1grp"])
    assert [(piece.name, len(piece.spec.cases)) for piece in pieces] == [("origin", 1)]
    with pytest.raises(UsageError, match="origin/nothing is no case of shapes, origin"):
        runs.pieces_of(["origin/nothing"])
    with pytest.raises(UsageError, match="no case is chosen; expected lines CONFIG/CASE"):
        runs.pieces_of([])


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "a/b", "1/"])
def test_what_is_no_shard(study, text):
    with pytest.raises(ValueError, match=r"shard|invalid literal"):
        study.headline_runs.Shard.parse(text)
    assert study.headline_runs.Shard.parse("2/3") == study.headline_runs.Shard(2, 3)


FAKE = """\
import sys, time
from pathlib import Path
Path({log!r}).open("a").write(" ".join(sys.argv[1:]) + "\\n")
if {hangs}:
    time.sleep(60)
sys.exit({code})
"""


@pytest.fixture
def sweeps(study, tmp_path, monkeypatch):
    """In place of `bt-bench sweep`, a program that notes what it was asked for."""
    log = tmp_path / "log"

    def fake(code=0, hangs=False):
        path = tmp_path / "fake.py"
        path.write_text(FAKE.format(log=str(log), code=code, hangs=hangs))

        def command(program, _m, _module, *rest):
            return [sys.executable, str(path), *rest]

        popen = study.headline_runs.subprocess.Popen
        monkeypatch.setattr(
            study.headline_runs.subprocess,
            "Popen",
            lambda given, **options: popen(command(*given), **options),
        )
        return lambda: log.read_text().splitlines() if log.exists() else []

    return fake


def origin(study, *cases, **options):
    return study.headline_runs.pieces_of(cases or ["origin/small_batch_1grp"], **options)


def test_a_new_sweep(study, sweeps, tmp_path):
    asked = sweeps()
    runs = tmp_path / "runs"
    assert study.headline_runs.run_pieces(origin(study), runs, ["--device", "cpu"]) == []
    (line,) = asked()
    assert line == f"sweep {runs}/origin.yaml --out {runs}/origin --device cpu"
    spec = load_config(runs / "origin.yaml")
    assert spec.model_copy(update={"suite": origin(study)[0].spec.suite}) == origin(study)[0].spec


def begun(study, written, **options):
    """A run folder of `origin`, with the config of its piece."""
    runs = written(name="origin", **options)
    text = dump_config(origin(study)[0].spec, runs / "origin")
    (runs / "origin" / "config.yaml").write_text(text, encoding="utf-8")
    return runs


def test_a_sweep_that_was_begun_otherwise_is_not_taken_for_this_one(study, sweeps, written):
    asked = sweeps()
    runs = written(name="origin")
    with pytest.raises(UsageError, match="origin is of other cases or another plan than"):
        study.headline_runs.run_pieces(origin(study), runs, [], resume=True)
    runs = begun(study, lambda **_: runs)
    with pytest.raises(UsageError, match="origin is of other cases or another plan than"):
        study.headline_runs.run_pieces(origin(study, quick=True), runs, [], resume=True)
    assert asked() == []


def test_a_sweep_that_was_begun(study, sweeps, written):
    asked = sweeps()
    runs = begun(study, written, complete=False)
    with pytest.raises(UsageError, match=r"origin exists, .* pass --resume"):
        study.headline_runs.run_pieces(origin(study), runs, [])
    assert asked() == []
    assert study.headline_runs.run_pieces(origin(study), runs, [], resume=True) == []
    assert asked() == [f"sweep --resume {runs}/origin"]


def test_a_folder_without_a_run(study, sweeps, tmp_path):
    asked = sweeps()
    folder = tmp_path / "runs" / "origin"
    folder.mkdir(parents=True)
    assert study.headline_runs.run_pieces(origin(study), folder.parent, [], resume=True) == []
    assert len(asked()) == 1  # anew, as nothing was there
    folder.mkdir()
    (folder / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match="origin is not a run folder"):
        study.headline_runs.run_pieces(origin(study), folder.parent, [], resume=True)
    assert (folder / "precious.txt").is_file()


def test_a_sweep_that_is_complete_is_not_run_again(study, sweeps, written):
    asked = sweeps()
    assert (
        study.headline_runs.run_pieces(origin(study), begun(study, written), [], resume=True) == []
    )
    assert asked() == []


def test_a_sweep_that_fails(study, sweeps, tmp_path):
    sweeps(code=70)
    problems = study.headline_runs.run_pieces(origin(study), tmp_path / "runs", [])
    assert problems == ["origin: bt-bench sweep ended with 70"]
    sweeps(code=5)  # a case failed, which the results say
    assert study.headline_runs.run_pieces(origin(study), tmp_path / "others", []) == []


def test_the_time_is_up(study, sweeps, tmp_path):
    asked = sweeps(hangs=True)
    pieces = origin(study, "origin/small_batch_1grp", "features/decode_plain")
    problems = study.headline_runs.run_pieces(pieces, tmp_path / "runs", [], limit_s=1.0)
    assert problems == [
        "origin: stopped after 1 s; go on with --resume",
        "features: not begun, since the time is up; go on with --resume",
    ]
    assert len(asked()) == 1
