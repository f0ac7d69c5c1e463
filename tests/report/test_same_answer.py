"""Tables of a sweep and `bt-bench compare` answer the same question alike, on committed runs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.commands import run
from support.committed import ORIGIN

from bt_bench.base.document import ABSENT
from bt_bench.config import planned_variants
from bt_bench.report.formats.texts import change_text, interval_text
from bt_bench.report.run.arranged import Arms, arrange
from bt_bench.report.run.regime_tables import change_table, exploratory_table
from bt_bench.report.run.tables import event_table
from bt_bench.results import operations_of, read_run

REPORTS = Path(__file__).parents[2] / "reports"
ROOFLINE = REPORTS / "h100" / "profile" / "roofline"
RUNS = [ORIGIN, ROOFLINE, REPORTS / "h200" / "page_indices" / "sweep"]
COLUMNS = {
    **{"Host (%)": "host_us", "Device (%)": "gpu_us", "Stage (%)": "stage_us", "Step": "step_us"},
    **{"Busy hot": "event_us/busy", "Busy cold": "event_us/busy/cold", "Graph": "gpu_us/graph"},
}

Judgements = dict[tuple[str, str, str], dict[str, object]]


def judgements(*arguments: object) -> Judgements:
    """What `compare` says, by case, side and metric; but for whether it decides the exit code."""
    outcome = run("compare", *arguments, "--json", "--fail-on", "none")
    found = json.loads(outcome.out)["judgements"]
    for judgement in found:
        del judgement["decides"]
    return {(f"{j['operation']}/{j['case']}", j["other"], j["metric"]): j for j in found}


@cache
def whole(folder: Path, *arguments: str) -> Judgements:
    return judgements(folder, *arguments)


def order_of(folder: Path) -> tuple[str, ...]:
    return planned_variants(folder) or ()


def cells(arms: Arms) -> Iterator[tuple[tuple[str, str, str], tuple[str, str | None, str]]]:
    """Case, side and metric; change in percent, interval and verdict, of all cells of changes."""
    for operation in operations_of(arms.baseline.result.suite).values():
        places = [
            (f"{operation}/{case_id.case}", other.name)
            for case_id in arms.cases_of(operation)
            for other in arms.others
        ]
        if table := change_table(arms, operation):
            for place, row in zip(places, table.rows, strict=True):
                for at in range(1, len(row), 3):
                    metric = COLUMNS[table.columns[at]]
                    change, interval, verdict = (cell.text for cell in row[at : at + 3])
                    yield (*place, metric), (change, interval, verdict)
        if table := exploratory_table(arms, operation):
            for place, row in zip(places, table.rows, strict=True):
                for column, cell in zip(table.columns[1:], row[1:], strict=True):
                    change, _, verdict = cell.text.rpartition(" ")
                    yield (*place, COLUMNS[column]), (change or ABSENT, None, verdict)
        for place, row in zip(places, event_table(arms, operation).rows, strict=True):
            yield (*place, "event_us"), (row[4].text, None, row[5].text)


def verdicts_of_cells(arms: Arms, said: Judgements) -> list[str]:
    """Return the verdicts of all cells, which are those that `compare` says."""
    verdicts = []
    for place, (change, interval, verdict) in cells(arms):
        if verdict == ABSENT:
            assert place not in said
            continue
        judgement = said[place]
        assert (change, verdict) == (change_text(judgement["ratio"]), judgement["verdict"])  # type: ignore[arg-type]
        if interval not in (None, ABSENT):
            ends = [float(end) / 100 for end in interval.split(" to ")]
            exact = [judgement["low"] - 1, judgement["high"] - 1]  # type: ignore[operator]
            assert ends == pytest.approx(exact, abs=0.0005)
        verdicts.append(verdict)
    return verdicts


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_tables_say_what_compare_says(folder: Path) -> None:
    arms = arrange(read_run(folder, order_of(folder)))
    assert len(verdicts_of_cells(arms, whole(folder))) >= 10


@pytest.mark.parametrize("pattern", ["host_us", "[eg]*"])
def test_what_is_shown_changes_nothing(pattern: str) -> None:
    """Metrics that are selected have the verdicts, the numbers and the intervals of all."""
    everything = whole(ORIGIN, "--metric", "*")  # parts of times are shown only if asked for
    assert whole(ORIGIN).items() <= everything.items()
    selected = judgements(ORIGIN, "--metric", pattern)
    assert selected
    assert selected.items() <= everything.items()


def test_both_compare_with_the_first_variant_of_the_config(tmp_path: Path) -> None:
    """Where there is no variant `baseline`, and the first one is not the first by its name."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("fused", "one_launch"):
        shutil.copy(ORIGIN / f"{name}.json.xz", folder)
    config = (ORIGIN / "config.yaml").read_text(encoding="utf-8")
    others = re.sub(r"^variants:.*\n(?:[ -].*\n)*", "", config, flags=re.MULTILINE)
    (folder / "config.yaml").write_text(f"variants: [one_launch, fused]\n{others}")
    in_order = read_run(folder, ["one_launch", "fused"])
    arms, said = arrange(in_order), judgements(folder)
    others = {other for (_, other, _), _ in cells(arms)}
    assert {other for _, other, _ in said} == others == {"fused"}
    assert {*verdicts_of_cells(arms, said)} == {"SLOWER", "SAME", "INCONCLUSIVE"}


def test_a_sum_changes_nothing_and_lies_between() -> None:
    """Sums are judged apart, so that whatever is asked beside them has the same answer."""
    asked = judgements(ORIGIN, "--metric", "host_us+stage_us", "--metric", "host_us")
    sums = {place: each for place, each in asked.items() if place[2] == "host_us+stage_us"}
    assert len(sums) == len(asked) / 2 == 20
    for (case, other, _), judgement in sums.items():
        host = asked[case, other, "host_us"]
        assert host == whole(ORIGIN)[case, other, "host_us"]
        assert judgement["exploratory"]
        assert judgement["base_value"] > host["base_value"]  # type: ignore[operator]
        evidence = judgement["evidence"]
        assert isinstance(evidence, dict)
        assert evidence["tests"] == 10


def test_other_sides_change_nothing() -> None:
    pair = judgements(ORIGIN / "baseline.json.xz", ORIGIN / "fused.json.xz")
    assert pair == {place: each for place, each in whole(ORIGIN).items() if place[1] == "fused"}


def test_the_interval_is_the_one_that_was_tested() -> None:
    """Beyond the margin, within it, or neither: each verdict can be seen in its interval."""
    alike = judgements(ORIGIN / "fused.json.xz", ORIGIN / "one_launch.json.xz")  # in gather_slots
    verdicts = set()
    for judgement in [*whole(ORIGIN).values(), *alike.values(), *whole(ROOFLINE).values()]:
        evidence = judgement["evidence"]
        if not isinstance(evidence, dict):
            continue
        margin = evidence["margin"]["share"]
        low, high = judgement["low"], judgement["high"]
        assert isinstance(low, float)
        assert isinstance(high, float)
        seen = "INCONCLUSIVE"
        if low > 1 + margin:
            seen = "SLOWER"
        elif high < 1 - margin:
            seen = "FASTER"
        elif 1 - margin <= low and high <= 1 + margin:
            seen = "SAME"
        assert judgement["verdict"] == seen, interval_text(low, high)
        verdicts.add(seen)
    assert verdicts == {"FASTER", "SAME", "INCONCLUSIVE", "SLOWER"}
