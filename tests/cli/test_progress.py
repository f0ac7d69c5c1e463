"""Progress of a sweep, as lines and as bars."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn

from bt_bench.cli.progress import Bars, Lines, TimeLeft, outcome
from bt_bench.results.case import StopReason
from bt_bench.runs.sweep import CaseReport
from bt_bench.worker.outcome import RoundProgress

PRECISE = CaseReport("step/one", [], [], 96, StopReason.PRECISE, 0.841)


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (PRECISE, "ok, 96 rounds (precise), ± 0.84 %"),
        (CaseReport("step/one", ["a", "b"]), "FAILED: a, b"),
        (
            CaseReport("step/one", ["a"], ["b"], 48, StopReason.TIME),
            "FAILED: a, INSUFFICIENT: b, 48 rounds (time)",
        ),
    ],
)
def test_how_a_case_ended(report, text):
    assert outcome(report) == text


def test_lines_go_on_where_a_run_was_interrupted(capsys):
    lines = Lines()
    lines.start(4, done=2)
    lines.phase("one", "checking")
    lines.round(RoundProgress(1, 96))
    lines.worker_replaced("while measured: the worker was ended by SIGKILL")
    lines.finish_case(PRECISE)
    captured = capsys.readouterr()
    assert captured.out == ""
    replaced, case = captured.err.splitlines()
    assert replaced == (
        "bt-bench: while measured: the worker was ended by SIGKILL; a fresh worker takes over"
    )
    assert case.startswith("[3/4]    0.0 s  step/one: ok, 96 rounds (precise)")


def test_time_left_follows_from_the_cases_that_are_done():
    now = [100.0]
    time_left = TimeLeft(lambda: now[0])
    time_left.start(4)
    assert time_left.seconds() is None
    now[0] = 110.0
    time_left.finish_case()
    assert time_left.seconds() == 30.0
    assert time_left.seconds(of_case=2.5) == 22.5


def shown(bars, stream):
    """What the bars look like now."""
    stream.seek(0)
    stream.truncate()
    bars.console.print(bars.get_renderable())
    return stream.getvalue()


def test_bars_show_case_round_interval_and_time_left():
    stream = io.StringIO()
    bars = Progress(
        TextColumn("{task.description}", markup=False),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        console=Console(file=stream, width=120, force_terminal=False),
    )
    progress = Bars(bars)
    progress.start(4, done=1)
    progress.phase("step/[one]", "measuring")
    progress.round(RoundProgress(48, 400, 1.234, 75.0))
    text = shown(bars, stream)
    assert "step/[one]: measuring" in text
    assert "48/400" in text
    assert "± 1.23 % 1:15 left" in text
    assert "1/4" in text
    progress.worker_replaced("the worker was ended by SIGSEGV")
    progress.finish_case(CaseReport("step/[one]", ["fused"]))
    assert "the worker was ended by SIGSEGV; a fresh worker takes over" in stream.getvalue()
    assert "step/[one]: FAILED: fused" in stream.getvalue()
    progress.phase("step/two", "checking")
    text = shown(bars, stream)
    assert "2/4" in text
    assert "± 1.23 %" not in text
