"""Stored baselines: found, listed, replaced, and no name leads out of their folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.factories import make_case, make_failed_case, make_launches, make_result
from support.scenarios import three_cases

from bt_bench.base.errors import UsageError
from bt_bench.results.files.baselines import (
    baseline_names,
    baseline_path,
    find_baseline,
    save_baseline,
    why_no_baseline,
)
from bt_bench.results.files.compact import compacted
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.reading import read_result
from bt_bench.results.files.writing import write_result
from bt_bench.results.run.case import CaseResult
from bt_bench.results.run.nouns import Quantity, ReasonCode, Status
from bt_bench.results.run.result import VariantResult


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return write_result(RunFolder.create_exact(tmp_path / "run"), three_cases())


def test_saved_and_found(tmp_path: Path, result: Path) -> None:
    path = save_baseline(tmp_path, "main", result.read_text())
    assert path == tmp_path / "baselines" / "main.json" == find_baseline(tmp_path, "main")
    assert read_result(path) == three_cases()
    assert baseline_names(tmp_path) == ["main"]


def test_replaced(tmp_path: Path, result: Path) -> None:
    save_baseline(tmp_path, "main", result.read_text())
    result.write_text(result.read_text().replace("quick-", "later-"))
    save_baseline(tmp_path, "main", result.read_text())
    assert read_result(find_baseline(tmp_path, "main")).run_id.startswith("later-")


def test_unknown(tmp_path: Path, result: Path) -> None:
    with pytest.raises(UsageError, match=r"--baseline mian: no such baseline in .*there are"):
        find_baseline(tmp_path, "mian")
    for name in ("main", "v1"):
        save_baseline(tmp_path, name, result.read_text())
    with pytest.raises(UsageError, match=r"did you mean 'main'\? It holds main, v1\."):
        find_baseline(tmp_path, "mian")


@pytest.mark.parametrize("name", ["", "../main", "a/b", ".hidden", "a b", "x" * 101])
def test_names_that_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a file name"):
        baseline_path(tmp_path, name)


def test_a_folder_that_cannot_be_made(tmp_path: Path, result: Path) -> None:
    (tmp_path / "baselines").touch()
    with pytest.raises(UsageError, match="cannot make"):
        save_baseline(tmp_path, "main", result.read_text())


GOOD = make_case("good", samples={Quantity.HOST_US: [[1.0], [2.0], [3.0]]})
UNSUPPORTED = make_failed_case(
    "odd", message="lacks cp_size", code=ReasonCode.UNSUPPORTED, status=Status.UNSUPPORTED
)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (make_result(cases=[GOOD], complete=False), "is a partial result; finish its run with"),
        (make_result(), "has no cases; expected"),
        (
            make_result(cases=[GOOD, make_failed_case("bad", message="slot 3")]),
            "has case gather_slots/bad, which is failed (slot 3); expected all to be ok",
        ),
        (
            make_result(cases=[make_failed_case("few", status=Status.INSUFFICIENT), GOOD]),
            "has case gather_slots/few, which is insufficient (",
        ),
        (
            make_result(cases=[GOOD, make_case("bare")]),
            "has case gather_slots/bare, for which nothing was measured or counted",
        ),
        (
            make_result(cases=[UNSUPPORTED]),
            "has no case that was measured; the first, gather_slots/odd, is unsupported (lacks",
        ),
    ],
)
def test_what_nothing_could_be_compared_with(result: VariantResult, why: str) -> None:
    assert (why_no_baseline(compacted(result)) or "").startswith(why)


@pytest.mark.parametrize(
    "cases", [[GOOD], [GOOD, UNSUPPORTED], [make_case("counted", launches=make_launches(["a"]))]]
)
def test_what_is_a_baseline(cases: list[CaseResult]) -> None:
    assert why_no_baseline(compacted(make_result(cases=cases))) is None
