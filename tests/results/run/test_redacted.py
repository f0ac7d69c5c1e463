"""Redaction of whole results: no planted secret is left in any output."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import run
from support.committed import ORIGIN
from support.factories import (
    make_case,
    make_crash,
    make_environment,
    make_failed_case,
    make_result,
)
from support.timelines import a_timeline

from bt_bench.analysis import judge_run
from bt_bench.base import Redactor
from bt_bench.report import render_comparison, render_run, run_json
from bt_bench.report.evidence import Evidence, ReportedRun
from bt_bench.report.formats import FORMATS
from bt_bench.report.report_formats import REPORT_FORMATS
from bt_bench.report.run.arranged import arrange
from bt_bench.results import Condition, Harm, RunFolder, VariantResult, read_run, redacted
from bt_bench.results.files.writing import write_result
from bt_bench.results.run.nouns import Quantity, Reason, ReasonCode
from bt_bench.suites.block_tables import operations as ops

USER, HOST, FOLDER = "zqann", "zqnode.corp.example", "zqsecret"
HOME = f"/home/{USER}/{FOLDER}"


def planted(variant: str, us: float, user: str = USER, host: str = HOST) -> VariantResult:
    """A result with secrets in every text that users or their code can put there."""
    home = f"/home/{user}/{FOLDER}"
    case = make_case(
        "decode",
        ops.STEP,
        {Quantity.HOST_US: [[us + math.sin(index)] for index in range(48)]},
    )
    workload = case.workload.model_copy(
        update={
            "parameters": case.workload.parameters
            | {"trace": f"{home}/my traces/x.csv", "layout_source": f"tables of {user}"},
            "remarks": [f"{home}/x.csv: 3 requests were left out"],
        }
    )
    case = case.model_copy(update={"workload": workload, "notes": [f"see {home}/log.txt"]})
    failed = make_failed_case(
        f"of_{user}",
        ops.STEP,
        code=ReasonCode.RAISED,
        message=f"ValueError: {user}@{host} (mine.py:12) {home}/a",
    )
    crash = make_crash().model_copy(
        update={
            "reason": Reason(
                code=ReasonCode.CRASHED, message=f'File "{home}/my lib/mine.py", line 12, in f'
            )
        }
    )
    condition = Condition(
        name=f"LD_PRELOAD={home}/lib.so", effect="times are longer", remedy="unset it",
        harm=Harm.NOTED,
    )  # fmt: skip
    environment = make_environment(host=host, cpu=f"CPU of {user}", conditions=[condition])
    made = make_result(variant, [case, failed], environment=environment, crashes=[crash])
    words = [
        "bt-bench",
        "sweep",
        f"{home}/my config.yaml",
        "--set",
        f"trace={home}/my traces/a b.csv",
    ]
    tool = made.tool.model_copy(update={"command": [*words, f"--out=~{user}/{FOLDER}/x"]})
    info = made.variant.model_copy(update={"summary": f"copied from {home}/kernels"})
    return made.model_copy(update={"tool": tool, "variant": info})  # fmt: skip


def outputs(results: list[VariantResult]) -> dict[str, str]:
    arms = arrange(results)
    judged = judge_run(results)
    assert judged is not None
    evidence = Evidence((Path(f"{HOME}/run"),), (ReportedRun(arms, 4),), "baseline", judged)
    evidence = redacted(evidence)
    shown = redacted(results)
    judged = redacted(judged, Redactor(users=[USER], hosts=[HOST]))
    return {
        **{name: render(evidence) for name, render in REPORT_FORMATS.items()},
        **{f"compare {name}": render(judged) for name, render in FORMATS.items()},
        "show md": render_comparison(shown),
        "show": render_run(shown, whole=True),
        "show json": json.dumps(run_json(shown)),
        "result": "".join(each.model_dump_json() for each in shown),
    }


def test_no_planted_secret_is_left_in_any_format():
    results = [planted("baseline", 100), planted("fused", 50)]
    before = "".join(each.model_dump_json() for each in results)
    found = outputs(results)
    for secret in (USER, "zqnode", FOLDER):
        assert secret in before
        for name, text in found.items():
            assert secret not in text, name
    assert "mine.py:12" in found["show md"]
    assert "my config.yaml" in found["pr"]
    assert "trace=a b.csv" in found["pr"]
    assert all("my traces" not in text for text in found.values())
    assert "FASTER" in found["pr"]


def test_a_redacted_result_is_a_result_and_is_redacted_once(tmp_path):
    made = redacted([planted("baseline", 100), planted("fused", 50)])
    assert redacted(made) == made
    folder = RunFolder.create_exact(tmp_path / "run")
    for each in made:
        write_result(folder, each)
    assert read_run(folder) == made
    host = made[0].environment.host
    assert host is not None
    assert (len(host), host) == (12, made[1].environment.host)


def test_names_and_numbers_stay():
    result = planted("fused", 50)
    made = redacted(result)
    assert made.variant.name == "fused"
    assert made.variant.source_sha256 == result.variant.source_sha256
    assert made.cases[0].measurements is result.cases[0].measurements
    assert made.cases[0].operation == ops.STEP
    assert [case.case for case in made.cases] == ["decode", "of_<user>"]
    assert made.cases[0].workload.parameters["trace"] == "x.csv"


def test_a_result_without_secrets_is_left_as_it_is():
    results = read_run(ORIGIN)
    for each, made in zip(results, redacted(results), strict=True):
        command = [*each.tool.command[:-1], "origin"]
        tool = each.tool.model_copy(update={"command": command})
        assert made == each.model_copy(update={"tool": tool})


def test_profiles_are_redacted():
    timeline = a_timeline()
    environment = timeline.environment.model_copy(update={"cpu": f"CPU of {HOME}/x"})
    made = redacted(timeline.model_copy(update={"environment": environment}))
    assert made == timeline.model_copy(
        update={"environment": environment.model_copy(update={"cpu": "CPU of x"})}
    )


words = st.from_regex(r"zq[a-z]{2,6}([-_.]?[a-z0-9]{1,3})?", fullmatch=True)


@settings(max_examples=10, deadline=None)
@given(user=words, host=words)
def test_no_name_is_left_in_a_result(user, host):
    text = redacted(planted("baseline", 100, user, host)).model_dump_json()
    assert user not in text
    assert host not in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "--format", "pr"),
        ("report", "--format", "json"),
        ("show", "--all"),
        ("show", "--json"),
        ("compare", "--all"),
        ("compare", "--format", "junit"),
    ],
    ids=" ".join,
)
def test_commands_redact(arguments, tmp_path):
    folder = RunFolder.create_exact(tmp_path / "run")
    for made in (planted("baseline", 100), planted("fused", 50)):
        write_result(folder, made)
    command, *options = arguments
    outcome = run(command, folder.path, *options, "--redact")
    assert outcome.out
    for secret in (USER, "zqnode", FOLDER, str(tmp_path)):
        assert secret not in outcome.out
