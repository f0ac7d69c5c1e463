"""Pairs of runs of equal code, made up: what passes, what is planted, and what is told of both."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equal_pairs
import numpy as np
import pytest
from counting import Outcome, broken, total
from equal_pairs import PROMISES, outcome_of, page, slow_down
from support.commands import run
from support.factories import make_case, make_launches, make_result, make_rounds

from bt_bench.report import render_document
from bt_bench.results import Cache, LaunchPath, Load, Quantity, RunFolder, Series, series_of
from bt_bench.results.files.writing import write_result
from bt_bench.suites.block_tables import operations as ops

HOST, STAGE, GPU, STEP = map(
    series_of, (Quantity.HOST_US, Quantity.STAGE_US, Quantity.GPU_US, Quantity.STEP_US)
)
COMMITTED = Path(__file__).parents[2] / "reports" / "equal-pairs"


def write_run(
    runs: Path,
    number: int,
    host: float = 1.0,
    slower: float = 1.0,
    variants: Sequence[str] = ("baseline", "fused"),
) -> None:
    """A run of variants and two cases on a host of some speed; launching may be slower."""
    folder = runs / f"run-{number:02}"
    folder.mkdir(parents=True)
    names = ", ".join(variants)
    (folder / "config.yaml").write_text(f"variants: [{names}]\n", encoding="utf-8")
    times_us = {HOST: 60.0 * host * slower, STAGE: 3.0 * host, GPU: 8.0, STEP: 75.0 * host}
    generator = np.random.default_rng(number)
    for variant in variants:
        cases = []
        for name in ("small", "large"):
            samples = {
                series: (us * generator.lognormal(0, 0.01, (48, 1))).tolist()
                for series, us in times_us.items()
            }
            parts = {"rounds": make_rounds(48), "launches": make_launches(["k"])}
            cases.append(make_case(name, ops.STEP, samples, **parts))
        write_result(RunFolder(folder), make_result(variant, cases, run_id=f"run{number}"))


def run_main(monkeypatch: pytest.MonkeyPatch, runs: Path, out: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["equal_pairs.py", str(runs), "--out", str(out)])
    return equal_pairs.main()


def compare_here(base: Path, other: Path) -> tuple[int, Any]:
    """As the script compares, without a process."""
    done = run("compare", base, other, "--json")
    return done.code, done.json()


def test_equal_runs_pass_and_planted_slowdowns_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the host was a third slower in one of the runs."""
    monkeypatch.setattr(equal_pairs, "compare", compare_here)
    runs, out = tmp_path / "runs", tmp_path / "out"
    for number, host in enumerate((1.0, 1.3, 1.2, 0.9)):
        write_run(runs, number, host)
    assert run_main(monkeypatch, runs, out) == 0
    found = json.loads((out / "equal-pairs.json").read_text(encoding="utf-8"))
    (machine,) = found["measured"]["machines"]
    assert (machine["runs"], machine["device"]) == (4, "NVIDIA H200")
    pairs = found["pairs"]
    assert [(pair["base"], pair["other"], pair["variant"]) for pair in pairs] == [
        (f"run-0{2 * pair}", f"run-0{2 * pair + 1}", variant)
        for pair in range(2)
        for variant in ("baseline", "fused")
    ]
    for pair in pairs:
        planted, limits = pair["planted"], pair["limits"]
        assert (pair["code"], planted["verdict"], planted["code"]) == (0, "SLOWER", 1)
        assert set(limits) == {"host_us", "gpu_us"}
        assert planted["limit"] in limits[planted["metric"]]
        assert planted["slower_us"] == pytest.approx(2 * planted["limit"] * planted["base_us"])
    text = (out / "equal-pairs.md").read_text(encoding="utf-8")
    assert text == render_document(page(found))
    assert "4 on one NVIDIA H200 (Example CPU 9000, torch 2.11.0, Triton 3.6.0)" in " ".join(
        text.split()
    )


def test_code_that_is_not_equal_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    for number, slower in enumerate((1.0, 1.5)):
        write_run(runs, number, slower=slower, variants=["fused"])
    assert run_main(monkeypatch, runs, out) == 1
    (pair,) = json.loads((out / "equal-pairs.json").read_text(encoding="utf-8"))["pairs"]
    assert pair["code"] == 1


def test_runs_without_a_partner_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, 0)
    with pytest.raises(SystemExit):
        run_main(monkeypatch, tmp_path, tmp_path / "out")
    assert "has 1 run folders; expected an even number" in capsys.readouterr().err


def outcome(code: int = 0, found: int = 1, verdict: str = "SLOWER") -> Outcome:
    planted = {"verdict": verdict, "code": found}
    return outcome_of({"code": code, "verdicts": {"SAME": 4}, "limits": {}, "planted": planted})


@pytest.mark.parametrize(
    ("outcomes", "is_kept"),
    [
        ([outcome()] * 10, True),
        ([*[outcome()] * 9, outcome(found=0, verdict="INCONCLUSIVE")], True),
        ([*[outcome()] * 8, *[outcome(found=0)] * 2], False),
        ([*[outcome()] * 9, outcome(code=5)], False),
        # Another figure's verdict is not what was planted.
        ([*[outcome()] * 8, *[outcome(verdict="INCONCLUSIVE")] * 2], False),
        ([outcome_of({"code": 0, "verdicts": {}, "limits": {}, "planted": None})], False),
    ],
)
def test_what_keeps_the_promise(outcomes: list[Outcome], is_kept: bool) -> None:
    assert (broken(PROMISES, total(outcomes)) == []) == is_kept


def test_the_committed_page_is_of_the_committed_pairs() -> None:
    text = (COMMITTED / "equal-pairs.md").read_text(encoding="utf-8")
    found = json.loads((COMMITTED / "equal-pairs.json").read_text(encoding="utf-8"))
    assert render_document(page(found)) == text
    for variant, kind in found["kinds"].items():
        of = total(outcome_of(each) for each in found["pairs"] if each["variant"] == variant)
        assert {name: rate["times"] for name, rate in kind["rates"].items()} == {
            name: rate.times for name, rate in of.rates.items()
        }
        assert broken(PROMISES, of) == []


SERIES = {
    HOST: "host",
    series_of(Quantity.HOST_US, load=Load.BUSY): "host",
    series_of(Quantity.HOST_US, launch_path=LaunchPath.COMPILED): "",
    STAGE: "stage",
    GPU: "gpu",
    series_of(Quantity.GPU_US, load=Load.BUSY, l2=Cache.COLD): "gpu",
    series_of(Quantity.SPAN_US): "gpu",
    STEP: "host gpu",
    series_of(Quantity.PIPELINED_US): "host",
    series_of(Quantity.EVENT_US): "host gpu",
    series_of(Quantity.EVENT_US, load=Load.BUSY): "gpu",
    series_of(Quantity.EVENT_US, launch_path=LaunchPath.COMPILED): "gpu",
}
"""Which slowdowns are part of which series."""


@pytest.mark.parametrize("name", ["host", "gpu", "stage"])
def test_a_slowdown_is_in_all_that_contains_it(name: str) -> None:
    rows: dict[Series, list[list[float]]] = {series: [[1.0, 2.0], [3.0, 4.0]] for series in SERIES}
    slow, other = (make_case(each, samples=rows, num_steps=2) for each in ("slow", "other"))
    slow = slow.model_copy(update={"control": slow.measurements})
    result = json.loads(make_result("fused", [slow, other]).model_dump_json())
    before = json.loads(json.dumps(result))
    slow_down(result, slow.key, Quantity(f"{name}_us"), 0.5)
    for kind in ("measurements", "control"):
        found = [each["samples"] for each in result["cases"][0][kind]]
        more = [0.5 * (name in parts.split()) for parts in SERIES.values()]
        assert found == [[[1 + by, 2 + by], [3 + by, 4 + by]] for by in more]
    assert result["cases"][1] == before["cases"][1]


def test_a_window_is_slower_by_all_of_its_steps() -> None:
    case = make_case("slow", samples={HOST: [[10.0]]}, num_steps=3)
    result = json.loads(make_result("fused", [case]).model_dump_json())
    result["cases"][0]["measurements"][0]["per"] = "window"
    slow_down(result, case.key, Quantity.HOST_US, 0.5)
    assert result["cases"][0]["measurements"][0]["samples"] == [[11.5]]
