"""Progress of sweeps and gates as bars."""

from __future__ import annotations

import io
import os
import re
import sys

import pytest
from rich.console import Console
from support.terminals import run_in_terminal

from bt_bench.cli.progress import (
    Bars,
    TimeLeft,
    made_bars,
    told_on_stderr,
)
from bt_bench.results.run.case import StopReason
from bt_bench.runs.progress import CaseReport
from bt_bench.worker.tasks.outcome import RoundProgress

PRECISE = CaseReport("step/one", [], [], 96, StopReason.PRECISE, 0.841)


def test_time_left_follows_from_the_cases_that_are_done():
    now = [100.0]
    time_left = TimeLeft(lambda: now[0])
    time_left.start(4)
    assert time_left.seconds() is None
    now[0] = 110.0
    time_left.advance()
    assert time_left.seconds() == 30.0
    assert time_left.seconds(of_unit=2.5) == 22.5


def shown(bars, stream):
    """What the bars say now, without how long they are and since when."""
    stream.seek(0)
    stream.truncate()
    bars.console.print(bars.get_renderable())
    return re.sub(r"[━╸╺]|\d:\d\d:\d\d", "", stream.getvalue())


def bars_on(stream):
    return made_bars(Console(file=stream, width=120, force_terminal=False))


def test_bars_show_case_round_interval_and_time_left():
    stream = io.StringIO()
    bars = bars_on(stream)
    progress = Bars(bars, "sweep")
    progress.start(4, done=1)
    progress.phase("measuring", "step/[one]")
    progress.round(RoundProgress(48, 400, "measuring", 1.234, 75.0))
    text = shown(bars, stream)
    assert "step/[one]: measuring" in text
    assert "48/400" in text
    assert "± 1.23 % 1:15 left" in text
    assert "1/4" in text
    progress.worker_replaced("the worker was ended by SIGSEGV")
    progress.advance(CaseReport("step/[one]", ["fused"]))
    assert "the worker was ended by SIGSEGV; a fresh worker takes over" in stream.getvalue()
    assert "step/[one]: FAILED: fused" in stream.getvalue()
    progress.phase("checking", "step/two")
    text = shown(bars, stream)
    assert "2/4" in text
    assert "± 1.23 %" not in text


def test_bars_name_the_phase_of_a_case_so_that_rounds_do_not_stand_still():
    stream = io.StringIO()
    bars = bars_on(stream)
    progress = Bars(bars, "sweep")
    progress.start(4, unit="cases")
    progress.phase("checking the variants on the conformance workloads")
    progress.round(RoundProgress(3, 25, "conformance workloads"))
    text = shown(bars, stream)
    assert re.search("checking the variants on the conformance workloads +0/4", text)
    assert re.search(r"^conformance workloads +3/25", text, re.MULTILINE)
    progress.phase("measuring", "step/one")
    progress.round(RoundProgress(12, 4000, "measuring", 1.234, 0.1))
    progress.round(RoundProgress(7, 90, "checking after timing"))
    text = shown(bars, stream)
    assert re.search(r"^sweep +0/4", text, re.MULTILINE)
    assert re.search(r"^step/one: checking after timing +7/90 *$", text, re.MULTILINE)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_bars_keep_their_numbers_where_it_is_narrow(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    bars = made_bars(console)
    progress = Bars(bars, "sweep")
    progress.start(10, done=3, unit="cases")
    progress.phase("checking", "step/shuffled_padded_2grp")
    progress.round(RoundProgress(128, 2000, "checking among the timed rounds", 12.34, 83.0))
    console.print(bars.get_renderable())
    run, case = console.file.getvalue().splitlines()
    assert re.match("sweep .* 3/10 +cases", run)
    assert re.match("step/shuffled_.*128/2000 ± 12.34 % 1:23 left 0:00:0", case)


def test_bars_of_a_gate_show_phase_and_processes_but_no_time_left():
    stream = io.StringIO()
    bars = bars_on(stream)
    progress = Bars(bars, "gate")
    assert shown(bars, stream).split() == ["gate", "0/?"]
    progress.start(36, unit="processes")
    progress.phase("timing")
    progress.advance()
    assert shown(bars, stream).split() == ["timing", "1/36", "processes"]
    progress.say("after 12 rounds: 1 [SAME]")
    assert "after 12 rounds: 1 [SAME]\n" in stream.getvalue()
    progress.start(24, unit="processes")
    assert "0/24" in shown(bars, stream)


def test_what_goes_on_is_told_now_and_then_with_all_seconds(capsys):
    clock = [1000.0]
    with told_on_stderr("loading torch", lambda: clock[0]) as tell:
        for seconds in (6, 31, 40, 62, 65, 92):
            clock[0] = 1000.0 + seconds
            tell(f"exploring fused\x1b: {seconds} scenarios")
    assert capsys.readouterr().err.splitlines() == [
        f"bt-bench: exploring fused\\x1b: {told} scenarios, {told} s" for told in (31, 62, 92)
    ]


TOLD = """
import sys
from bt_bench.cli.progress import progress_on_stderr, told_on_stderr
clock = iter(range(10**6))
with told_on_stderr("loading torch", lambda: next(clock)) as tell:
    print("a result")
    tell("checking")
    print("a message", file=sys.stderr)
with progress_on_stderr("sweep") as bars:
    bars.start(1)
    print("another result")
"""


@pytest.mark.parametrize("to_file", [True, False])
def test_results_go_to_stdout_beside_what_is_live_on_a_terminal(tmp_path, to_file):
    """Rich would take them for lines of the terminal, where stdout is a file."""
    command = [sys.executable, "-c", TOLD]
    with (tmp_path / "out").open("wb") as file:
        code, printed = run_in_terminal(80, command, os.environ, file if to_file else None)
    assert code == 0
    assert "a message" in printed
    results = (tmp_path / "out").read_text() if to_file else printed
    assert results.count("a result") == results.count("another result") == 1
    assert ("a result" in printed) is not to_file
    # Nobody has told of them: they go on by themselves.
    assert re.search(r"loading torch, \d+ s", printed)
