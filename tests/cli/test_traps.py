"""The traps that tools for comparing benchmarks have, each shown not to be one of this tool.

A test is named after its trap; most are put to `compare` as a user runs it, and to the gate's loop
on rounds that are made up.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from junitparser import Failure, JUnitXml
from support.commands import Outcome, run, run_apart
from support.factories import make_case, make_failed_case, make_result, make_rounds
from support.gate_rounds import HEAD, Replay, subject, without
from support.gate_rounds import make_rounds as gate_rounds

from bt_bench.analysis.deciding import Correction, Rules, exit_code
from bt_bench.analysis.verdicts import Cause, Judged, Verdict
from bt_bench.base.errors import ExitCode
from bt_bench.base.names import FailOn
from bt_bench.report.formats import FORMATS
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.writing import write_result
from bt_bench.results.gate.rounds import GateRound, SeriesKey
from bt_bench.results.run.case import CaseResult, ControlSpread
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.series import series_of
from bt_bench.runs.gate.loop import GatePlan, run_gate

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a variant's result into one run folder, and gives its path."""

    def write_variant(variant: str, cases: Sequence[CaseResult], folder: str = "run") -> Path:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        return write_result(RunFolder(path), make_result(variant, cases, run_id=folder))

    return write_variant


def timed(
    value: float, name: str = "x", seed: int = 0, *, noise: float = 0.002, rounds: int = 48
) -> CaseResult:
    factors = np.exp(noise * np.random.default_rng(seed).standard_normal(rounds))
    return make_case(name, samples={Quantity.HOST_US: [[float(value * by)] for by in factors]})


def compare(write: Write, base: Sequence[CaseResult], other: Sequence[CaseResult], *options: str):
    return run("compare", write("baseline", base), write("fused", other), *options)


def gate(rounds: Sequence[GateRound], *subjects: SeriesKey, rules: Rules | None = None) -> Judged:
    return run_gate(Replay(rounds), GatePlan(subjects), rules or Rules()).judged


def verdicts(outcome: Outcome) -> list[str]:
    return [each["verdict"] for each in outcome.json()["judgements"]]


# Regressions that exit 0


def test_trap_exit_0_on_a_regression(write: Write) -> None:
    assert compare(write, [timed(50.0)], [timed(60.0, seed=1)]).code == 1
    one = subject()
    assert exit_code(gate(gate_rounds(12, {one: (100.0, 120.0, 100.0)}), one)) == 1


# The number of changes as the exit code


@pytest.mark.parametrize("count", [1, 2, 256])
def test_trap_exit_code_is_the_number_of_changes(write: Write, count: int) -> None:
    names = [f"c{index}" for index in range(count)]
    base = [timed(50.0, name, 1) for name in names]
    assert compare(write, base, [timed(60.0, name, 2) for name in names]).code == 1
    subjects = [subject(name) for name in names]
    rounds = gate_rounds(12, dict.fromkeys(subjects, (100.0, 120.0, 100.0)))
    assert exit_code(gate(rounds, *subjects)) == 1


def test_trap_improvements_fail_the_build(write: Write) -> None:
    names = ("x", "y", "z")
    base = [timed(50.0, name, 1) for name in names]
    outcome = compare(write, base, [timed(40.0, name, 2) for name in names], "--format", "json")
    assert (outcome.code, verdicts(outcome)) == (0, ["FASTER"] * 3)
    one = subject()
    assert exit_code(gate(gate_rounds(12, {one: (100.0, 80.0, 100.0)}), one)) == 0


# What goes wrong inside a test, taken for an outcome of it


def test_trap_an_exception_counts_as_significant(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise ValueError("unequal lengths")

    monkeypatch.setattr("bt_bench.analysis.compare.judge.answer", fail)
    outcome = compare(write, [timed(50.0)], [timed(60.0, seed=1)])
    assert outcome.code == ExitCode.INTERNAL
    assert outcome.out == ""
    assert "ValueError: unequal lengths" in outcome.err


@pytest.mark.parametrize("folder", ["run", "later"])
def test_trap_unequal_sample_counts_count_as_significant(write: Write, folder: str) -> None:
    def device(us: float, **fields: int) -> CaseResult:
        rows = timed(us, **fields).measurements[0].samples
        return make_case(samples={Quantity.GPU_US: rows}, rounds=make_rounds(48))

    base = write("baseline", [device(50.0, seed=1)])
    fewer = write("fused", [device(50.0, seed=2, rounds=41)], folder)
    outcome = run("compare", base, fewer, "--format", "json")
    assert (outcome.code, verdicts(outcome)) == (0, ["SAME"])
    slower = write("fused", [device(60.0, seed=2, rounds=41)], folder)
    assert run("compare", base, slower).code == 1


def test_trap_unequal_sample_counts_in_a_gate_count_as_significant() -> None:
    one, other = subject("one"), subject("other")
    rounds = gate_rounds(20, dict.fromkeys((one, other), (100.0, 100.0, 100.0)))
    found = gate(without(rounds, HEAD, one, 15), one, other)
    assert found.count(Verdict.SLOWER) == found.count(Verdict.FASTER) == 0


# What is gone, and so cannot be slow


def test_trap_a_benchmark_that_vanished_passes(write: Write) -> None:
    base, other = [timed(50.0), timed(50.0, "gone", 1)], [timed(50.0, seed=2)]
    outcome = compare(write, base, other, "--format", "json")
    assert (outcome.code, verdicts(outcome)) == (4, ["SAME", "MISSING"])


def test_trap_a_metric_that_vanished_passes(write: Write) -> None:
    series = (Quantity.HOST_US, Quantity.STEP_US)
    values = {each: timed(50.0, seed=i).measurements[0].samples for i, each in enumerate(series)}
    both = make_case(samples=values)
    for kept, code in zip(series, (0, 4), strict=True):  # that of an exploratory one is told
        one = make_case(samples={kept: timed(50.0, seed=7).measurements[0].samples})
        outcome = compare(write, [both], [one])
        assert outcome.code == code
        assert "1 MISSING" in outcome.out
        assert compare(write, [both], [one], "--all-metrics").code == 4


def test_trap_a_case_without_figures_on_both_sides_passes(write: Write) -> None:
    base, other = [timed(50.0), make_case("hollow")], [timed(50.0, seed=2), make_case("hollow")]
    outcome = compare(write, base, other, "--format", "json")
    assert (outcome.code, verdicts(outcome)) == (5, ["SAME", "INVALID"])


@pytest.mark.parametrize("keep", [0, 1])
def test_trap_a_benchmark_that_vanished_passes_the_gate(keep: int) -> None:
    one, gone = subject("one"), subject("gone")
    rounds = gate_rounds(32, dict.fromkeys((one, gone), (100.0, 100.0, 100.0)))
    found = gate(without(rounds, HEAD, gone, keep), one, gone)
    assert found.judgements[1].verdict in (Verdict.MISSING, Verdict.INVALID)
    assert exit_code(found) in (4, 5)


# Errors that exit 0


def test_trap_errors_exit_0(write: Write, tmp_path: Path) -> None:
    good = write("baseline", [timed(50.0)])
    cut = tmp_path / "cut.json"
    cut.write_text(good.read_text()[:-99])
    failed = write("fused", [make_failed_case("x")])
    nowhere = f"junit={good}/junit.xml"
    for arguments, code in (
        ((good, cut), 2),
        ((good, tmp_path / "gone.json"), 2),
        ((good, failed), 5),
        ((good, failed, "--fail-on", "slower"), 4),
        ((good, write("lost", [timed(50.0, "else")]), "--allow-missing"), 4),
        ((good, write("even", [timed(50.0, seed=3)]), "--format", nowhere), 2),
        ((good, write("even", [timed(50.0, seed=3)]), "--metric", "hosts_us"), 2),
        ((good, write("even", [timed(50.0, seed=3)])), 0),
    ):
        assert run("compare", *arguments).code == code, arguments


def test_trap_errors_of_the_gate_exit_0(tmp_path: Path) -> None:
    assert run("gate", "--config", tmp_path / "gone.yaml", "--base", "HEAD").code == 2
    assert exit_code(gate([], subject())) == 4


# Names that do not match


def test_trap_unmatched_names_are_skipped(write: Write) -> None:
    base = write("baseline", [timed(50.0), timed(50.0, "only_base", 1)])
    other = write("fused", [timed(50.0, seed=2), timed(50.0, "only_other", 3)])
    for name in FORMATS:
        outcome = run("compare", base, other, "--format", name)
        assert outcome.code == 4
        assert "only_base" in outcome.out, name
        assert "only_other" in outcome.out, name


def test_trap_a_renamed_case_is_not_compared(write: Write) -> None:
    renamed = timed(60.0, seed=1).model_copy(
        update={"case": "renamed", "key": "gather_slots/renamed"}
    )
    assert compare(write, [timed(50.0)], [renamed]).code == 1


# Many cases


def many(seed: int) -> list[CaseResult]:
    return [timed(5000.0, f"c{i}", 1000 * seed + i, noise=0.2) for i in range(200)]


def test_trap_no_correction_for_many_cases(write: Write) -> None:
    sides = (write("baseline", many(1)), write("fused", many(2)))
    strict = ("--threshold", "0", "--alpha", "0.05")
    assert run("compare", *sides, *strict, "--correction", "none").code == 1
    assert run("compare", *sides, *strict).code == 0


def test_trap_no_correction_for_many_cases_of_a_gate() -> None:
    subjects = [subject(f"c{index}") for index in range(60)]
    levels = dict.fromkeys(subjects, (100.0, 100.0, 100.0))
    for correction, factor in ((Correction.HOLM, 60), (Correction.NONE, 1)):
        rules = Rules(correction=correction)
        found = gate(gate_rounds(32, levels), *subjects, rules=rules)
        evidence = [each.evidence for each in found.judgements if each.evidence]
        smallest = min(evidence, key=lambda each: each.p_slower)
        assert smallest.adjusted_slower == pytest.approx(min(1.0, factor * smallest.p_slower))
        assert found.count(Verdict.SLOWER) == 0


# Reports


def test_trap_no_junit(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    base = [timed(50.0), timed(50.0, "gone", 1), timed(50.0, "same", 2)]
    other = [timed(60.0, seed=3), timed(50.0, "same", 4)]
    assert compare(write, base, other, "--format", f"junit={path}").code == 1
    report = JUnitXml.fromfile(str(path))
    assert (report.tests, report.failures, report.errors) == (3, 1, 1)
    outcomes = [case.result for suite in report for case in suite]
    assert isinstance(outcomes[0][0], Failure)
    assert "SLOWER" in outcomes[0][0].message


@pytest.mark.parametrize("rounds", [6, 12])
def test_trap_a_noisy_regression_is_hidden(
    write: Write, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no pass in silence: all formats list it, even those that are cut, with its interval."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    names = [f"quiet{index}" for index in range(99)]
    noisy = {"noise": 0.3, "rounds": rounds}
    base = [*(timed(50.0, name, 1) for name in names), timed(50.0, "noisy", 2, **noisy)]
    other = [*(timed(50.0, name, 3) for name in names), timed(65.0, "noisy", 4, **noisy)]
    for name in FORMATS:
        outcome = compare(write, base, other, "--format", name, "--only-changed")
        assert outcome.code == 0
        assert "noisy" in outcome.out, name
        assert "noisy" in compare(write, base, other, "--format", name).out, name
        if name not in ("json", "csv"):
            assert "INCONCLUSIVE" in outcome.out or "inconclusive" in outcome.out, name
    assert compare(write, base, other, "--fail-on", "slower,inconclusive").code == 3


@pytest.mark.parametrize(("head", "noise"), [(103.0, 0.02), (103.0, 0.05), (105.0, 0.1)])
def test_trap_a_noisy_regression_is_hidden_by_the_gate(head: float, noise: float) -> None:
    """What noise hides is not the same."""
    one = subject()
    found = gate(gate_rounds(32, {one: (100.0, head, 100.0)}, noise=noise), one)
    (judgement,) = found.judgements
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.high is not None
    assert judgement.high > 1.02
    assert exit_code(found, [FailOn.INCONCLUSIVE]) == 3


def test_trap_a_noisy_regression_is_hidden_by_a_margin_for_noise(write: Write) -> None:
    spread = ControlSpread(series=series_of(Quantity.HOST_US), arm="baseline", difference_us=4.0)
    base = timed(50.0).model_copy(update={"control_spreads": [spread]})
    outcome = compare(write, [base], [timed(55.0, seed=1)], "--format", "json")
    assert (outcome.code, verdicts(outcome)) == (0, ["INCONCLUSIVE"])


@pytest.mark.parametrize("samples", [1, 2])
def test_trap_insufficient_data_is_no_status(write: Write, samples: int) -> None:
    sides = [[timed(value, rounds=samples)] for value in (50.0, 90.0)]
    outcome = compare(write, *sides, "--format", "json")
    assert outcome.code == 5
    (judgement,) = outcome.json()["judgements"]
    assert (judgement["verdict"], judgement["cause"]) == ("INVALID", Cause.TOO_FEW)
    assert judgement["ratio"] is None


def test_trap_no_intervals(write: Write) -> None:
    (judgement,) = compare(write, [timed(50.0)], [timed(60.0, seed=1)], "--format", "json").json()[
        "judgements"
    ]
    assert 1.19 < judgement["low"] < judgement["ratio"] < judgement["high"] < 1.21


def test_trap_stdout_is_not_clean(write: Write) -> None:
    write("lost", [timed(50.0, "else")])
    other = write("lost", [timed(50.0, "else")], "later")
    outcome = run("compare", write("fused", [timed(50.0)]), other, "--json")
    assert outcome.code == 4
    assert json.loads(outcome.out)["kind"] == "judged"
    assert "error" in outcome.err
    rows = csv.reader(io.StringIO(run("compare", other, write("fused", []), "--format=csv").out))
    assert len({len(row) for row in rows}) == 1


def test_trap_files_of_one_run_are_not_paired_by_round(write: Write) -> None:
    """Drift that hits both sides of a round is ten times what they differ by."""
    drift = np.linspace(1.0, 2.0, 48)

    def drifting(value: float, seed: int) -> CaseResult:
        samples = [row[0] for row in timed(value, seed=seed).measurements[0].samples]
        log = make_rounds(48)
        return make_case(
            "x",
            samples={Quantity.HOST_US: [[float(v)] for v in samples * drift]},
            rounds=log,
        )

    assert compare(write, [drifting(50.0, 1)], [drifting(55.0, 2)]).code == 1


# Completions


@pytest.mark.parametrize(
    ("shell", "asked"),
    [
        ("bash", {"COMP_WORDS": "bt-bench comp", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "bt-bench comp"}),
        (
            "fish",
            {"_TYPER_COMPLETE_ARGS": "bt-bench comp", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        ),
    ],
)
def test_trap_no_completions(shell: str, asked: dict[str, str]) -> None:
    wanted = asked | {"_BT_BENCH_COMPLETE": f"complete_{shell}"}
    prologue = "\n".join(
        (
            "import os, sys",
            "sys.argv[0] = 'bt-bench'",
            "sys.modules['torch'] = sys.modules['triton'] = None",
            f"os.environ.update({wanted!r})",
        )
    )
    assert "compare" in run_apart(prologue=prologue).out
