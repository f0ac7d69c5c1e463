"""What is told of a case when it is stored, and of a run as lines."""

from __future__ import annotations

import re

import pytest

from bt_bench.results.run.case import StopReason
from bt_bench.runs.progress import CaseReport, Lines
from bt_bench.worker.tasks.outcome import RoundProgress

PRECISE = CaseReport("step/one", [], [], 96, StopReason.PRECISE, 0.841)


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (
            CaseReport("step/one", rounds=96, stopped=StopReason.PRECISE, half_width_percent=0.841),
            "ok, 96 rounds (precise), ± 0.84 %",
        ),
        (CaseReport("step/one", ["a", "b"]), "FAILED: a, b"),
        (
            CaseReport("step/one", ["a"], ["b"], 48, StopReason.TIME),
            "FAILED: a, INSUFFICIENT: b, 48 rounds (time is up)",
        ),
        (CaseReport("step/one", unsupported=["a"]), "ok, unsupported: a"),
        (CaseReport("step/one", left_out=["a"]), "ok, not run: a"),
    ],
)
def test_how_a_case_ended(report, text):
    assert report.is_ok == (text in ("ok, 96 rounds (precise), ± 0.84 %", "ok, not run: a"))
    assert report.text == f"step/one: {text}"


def test_lines_go_on_where_a_run_was_interrupted():
    written: list[str] = []
    lines = Lines(written.append)
    lines.start(4, done=2)
    lines.phase("checking", "one")
    lines.round(RoundProgress(1, 96))
    lines.worker_replaced("while measured: the worker was ended by SIGKILL")
    lines.advance(PRECISE)
    for what in ("waiting, as process 1 does",) * 2:
        lines.round(RoundProgress(0, 1, what))
        lines.round(RoundProgress(0, 1, what, is_news=True))
        lines.round(RoundProgress(0, 1, what, is_news=True))
    replaced, case, *waits = written
    assert replaced == (
        "bt-bench: while measured: the worker was ended by SIGKILL; a fresh worker takes over"
    )
    assert case.startswith("[3/4]    0.0 s  step/one: ok, 96 rounds (precise)")
    assert waits == ["    0.0 s  waiting, as process 1 does"] * 2


def test_lines_of_a_gate_say_what_begins_and_what_is_known_but_not_each_process():
    written: list[str] = []
    lines = Lines(written.append)
    lines.phase("importing the variants")
    lines.start(36, unit="processes")
    lines.phase("setting up 3 processes")
    for _ in range(3):
        lines.advance()
    lines.phase("timing")
    lines.say("after 12 rounds: 1 SAME")
    assert [re.sub(r" +\d\.\d s  ", "", line) for line in written] == [
        "importing the variants",
        "setting up 3 processes (0 of 36 processes)",
        "timing (3 of 36 processes)",
        "after 12 rounds: 1 SAME",
    ]
