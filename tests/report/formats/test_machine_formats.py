"""JSON, CSV and JUnit, each read back by a real reader."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from dataclasses import fields, replace
from io import StringIO

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped
from support import judgements
from support.judgements import judged, judgement

from bt_bench.analysis.verdicts import Cause, Evidence, Judgement, Overall, Systematic, Verdict
from bt_bench.report.formats.csv_format import EVIDENCE_COLUMNS, WARNINGS_COLUMN, render_csv
from bt_bench.report.formats.json_format import FIELDS, JUDGED_SCHEMA_VERSION, render_json
from bt_bench.report.formats.junit_format import render_junit

# JSON


def read_json(comparison):
    def refuse(name):
        raise AssertionError(name)

    return json.loads(render_json(comparison), parse_constant=refuse)


def test_json_has_everything():
    whole = judgements.rich()
    found = read_json(whole)
    assert found["schema_version"] == JUDGED_SCHEMA_VERSION
    assert (found["title"], found["base"]) == (whole.title, whole.base)
    assert tuple(found["others"]) == whole.others
    assert tuple(found["facts"]) == whole.facts
    assert tuple(found["warnings"]) == whole.warnings
    assert found["counts"] == {verdict.value: whole.count(verdict) for verdict in Verdict}
    names = {field.name for field in fields(Judgement)}
    for each, read in zip(whole.judgements, found["judgements"], strict=True):
        assert set(read) == names | {"percent"}
        for name in names - {"evidence"}:
            assert read[name] == getattr(each, name), name
        assert (read["evidence"] is None) == (each.evidence is None)
    assert [set(each) for each in found["overall"]] == [{f.name for f in fields(Overall)}] * 3


def test_json_has_all_evidence():
    (each, *_) = judgements.timed()
    (read,) = read_json(judged(each))["judgements"]
    margin = read["evidence"].pop("margin")
    assert each.evidence is not None
    assert margin == {
        **{"share": each.evidence.margin.share, "binds": "configured"},
        **{"configured": 0.02, "floor": 0.0},
    }
    systematic = read["evidence"].pop("systematic")
    assert systematic == {"copies": None, "slowed": 0.0, "sped": 0.0}
    names = {field.name for field in fields(Evidence)} - {"margin", "systematic"}
    assert read["evidence"] == {name: getattr(each.evidence, name) for name in names}


def test_json_counts_what_decides():
    whole = judged(judgement(verdict=Verdict.SLOWER, decides=False), judgement())
    found = read_json(whole)
    assert (found["counts"]["SLOWER"], found["counts"]["SAME"]) == (1, 1)
    assert (found["deciding"]["SLOWER"], found["deciding"]["SAME"]) == (0, 1)


def test_json_has_a_judgement_a_line_and_names_as_they_are():
    hostile = judgements.hostile()
    lines = render_json(hostile).splitlines()
    ones = sum(line.startswith('    {"operation": ') for line in lines)
    assert ones == len(hostile.overall) + len(hostile.judgements)
    found = read_json(hostile)
    assert found["title"] == judgements.HOSTILE
    assert found["judgements"][0]["case"] == judgements.HOSTILE


def test_json_of_a_number_that_it_cannot_hold_is_null():
    (each,) = read_json(judged(judgement(ratio=1.5, low=0.1, high=math.inf)))["judgements"]
    assert (each["low"], each["high"]) == (0.1, None)


# CSV


def read_csv(comparison):
    return list(csv.DictReader(StringIO(render_csv(comparison), newline=""), strict=True))


def test_csv_has_a_row_per_judgement_and_numbers_stay_numbers():
    whole = judgements.rich()
    rows = read_csv(whole)
    for each, row in zip(whole.judgements, rows, strict=True):
        assert list(row) == [*FIELDS, *EVIDENCE_COLUMNS, WARNINGS_COLUMN]
        for name in ("base_value", "ratio", "low", "high", "percent"):
            value = getattr(each, name)
            assert row[name] == "" if value is None else float(row[name]) == value
        assert row["advisory"] == str(each.advisory).lower()
        evidence = each.evidence
        assert row["tests"] == ("" if evidence is None else str(evidence.tests))
        assert row["estimate"] == ("" if evidence is None else repr(evidence.estimate))
    assert any(row["percent"].startswith("-") for row in rows)


def test_csv_has_all_fields():
    names = {field.name for field in fields(Judgement)} - {"evidence"}
    assert set(FIELDS) == names | {"percent"}
    evidence = {field.name for field in fields(Evidence)} - {"systematic"}
    assert set(EVIDENCE_COLUMNS) >= evidence
    assert len(EVIDENCE_COLUMNS) == len(evidence) + 3 + len(fields(Systematic))


def test_csv_is_as_in_rfc_4180():
    text = render_csv(judgements.hostile())
    lines = text.split("\r\n")
    assert len(lines) == len(judgements.hostile().judgements) + 2  # the heading, the empty end
    assert "\n" not in "".join(lines)
    assert "\r" not in "".join(lines)
    assert '""' in text


@pytest.mark.parametrize("start", [*"=+-@＝＋－＠", "\t=", "\r=", "\n=", " ="])
def test_csv_has_no_formulas(start):
    (row,) = read_csv(judged(judgement(case=f"{start}1+1", detail=f"{start}1+1")))
    assert row["case"] == row["detail"] == f"'{start.strip()}1+1"


def test_csv_leaves_other_texts_alone():
    (row,) = read_csv(judged(judgement(case='a=1, "b" -2')))
    assert row["case"] == 'a=1, "b" -2'


# JUnit


def read_junit(comparison):
    return JUnitXml.fromstring(render_junit(comparison).encode())


def outcome_of(case):
    (outcome,) = case.result or (None,)
    return type(outcome)


def test_junit_has_a_suite_per_operation_and_a_test_per_judgement():
    whole = judgements.rich()
    root = read_junit(whole)
    suites = {suite.name: suite for suite in root}
    wanted = Counter(each.operation for each in whole.judgements)
    assert {name: len(list(suite)) for name, suite in suites.items()} == wanted
    for counted in (root, *suites.values()):
        before = (counted.tests, counted.failures, counted.errors, counted.skipped)
        counted.update_statistics()
        assert before == (counted.tests, counted.failures, counted.errors, counted.skipped)
    assert (root.tests, root.failures, root.errors, root.skipped) == (23, 4, 9, 3)


@pytest.mark.parametrize("verdict", [Verdict.SLOWER, Verdict.MISSING, Verdict.INVALID])
def test_junit_fails_on_nothing_that_does_not_decide(verdict):
    root = read_junit(judged(judgement(verdict=verdict, decides=False)))
    assert (root.tests, root.failures, root.errors, root.skipped) == (1, 0, 0, 1)


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (Verdict.SLOWER, Failure),
        (Verdict.MISSING, Error),
        (Verdict.INVALID, Error),
        (Verdict.INCONCLUSIVE, Skipped),
        (Verdict.FASTER, type(None)),
        (Verdict.SAME, type(None)),
    ],
)
def test_junit_outcomes(verdict, outcome):
    each = judgement(verdict=verdict, cause=Cause.EXACT, detail="for a reason")
    ((case,),) = read_junit(judged(each))
    assert outcome_of(case) is outcome
    if case.result:
        (found,) = case.result
        assert found.type == f"{verdict}.exact"
        assert found.message.startswith(f"{each.word}: step/medium_batch_4grp gpu_us, ")
        assert found.message.endswith(": for a reason")
        assert found.text == found.message


def test_junit_names_tell_tests_apart_and_mark_what_is_advisory():
    names = [
        (case.classname, case.name) for suite in read_junit(judgements.rich()) for case in suite
    ]
    assert len(set(names)) == len(names)
    assert sum(name.endswith("(advisory)") for _, name in names) == 1


def test_junit_shows_the_numbers_of_a_failure():
    suites = read_junit(judgements.rich())
    (case,) = [
        case
        for suite in suites
        for case in suite
        if outcome_of(case) is Failure and "host_us" in case.name
    ]
    assert "t = 0.0144442 / 0.003 = 4.815" in case.system_out


def test_junit_holds_any_name():
    root = read_junit(judgements.hostile())
    shown = "<b>|x|*_`\"&'</td>]]> ::error::pwned ##[error]pwned =1+1 [31m"
    assert root.name == shown
    assert all(case.name.startswith(shown) for suite in root for case in suite if case.name)
    assert root.tests == len(judgements.hostile().judgements)


def test_junit_of_one_that_lost_its_evidence():
    (each, *_) = judgements.timed()
    ((case,),) = read_junit(judged(replace(each, evidence=None)))
    assert "no test was made" in case.system_out
