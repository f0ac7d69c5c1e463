"""How a calibration is printed."""

from __future__ import annotations

import re
from pathlib import Path

from support.calibrations import make_calibration, make_host_calibration, make_injection
from support.goldens import assert_golden

from bt_bench.base.document import Document
from bt_bench.report.calibration import calibration_document, calibration_section
from bt_bench.report.console import render_plain
from bt_bench.report.markdown import render_document
from bt_bench.results.run.calibration import Calibration, DeviceLine, Figure, LaunchChain
from bt_bench.results.run.nouns import Method

GOLDEN = Path(__file__).parent / "golden"


def section_text(calibration: Calibration) -> str:
    return render_document(Document("Run", (), (calibration_section(calibration),)))


def test_whole_document() -> None:
    text = render_plain(calibration_document(make_calibration(), ["NVIDIA H200, torch 2.11."]))
    assert_golden(text, GOLDEN / "calibration.txt")


def test_section_of_a_run() -> None:
    assert_golden(section_text(make_calibration()), GOLDEN / "calibration_section.md")


def test_tables_fit_into_a_terminal_of_100_columns() -> None:
    tables = [
        line.rstrip()
        for line in render_plain(calibration_document(make_calibration())).splitlines()
        if "  " in line
    ]
    assert max(map(len, tables)) <= 100


def test_without_a_gpu_there_are_only_figures_of_the_host() -> None:
    document = calibration_document(make_host_calibration())
    assert [section.title for section in document.sections] == [
        "Promises",
        "Cost of the harness",
    ]
    text = section_text(make_host_calibration())
    assert "empty\\_call" in text or "empty_call" in text
    assert "Cold L2" not in text
    assert "gradient" not in text


def test_a_missed_promise_stands_out() -> None:
    calibration = make_calibration(
        chains=[LaunchChain(launched=4, counted=3)], injection=make_injection(gpu=5)
    )
    text = render_plain(calibration_document(calibration))
    assert text.count("MISSED") == 2
    assert "3 of 4" in text
    assert section_text(calibration).count("Failed self-check:") == 2


def test_what_was_not_measured_is_absent_and_not_0() -> None:
    whole = make_calibration()
    without = {quantity: [] for quantity in whole.injection.without}
    injection = whole.injection.model_copy(update={"without": without})
    text = render_plain(calibration_document(make_calibration(injection=injection, lines=[])))
    assert re.search(r"^gpu_us +–¹ +10\.58 +–¹$", text, re.MULTILINE)
    assert "Kernels of known length" not in text


def test_a_file_with_less_than_it_should_hold_is_printed() -> None:
    line = DeviceLine(method=Method.PROFILER, set_us=[3, 10, 50], reported_us=[[3.6], []])
    figures = [Figure(name="empty_call", what="nothing", samples=[])]
    calibration = make_calibration(figures=figures, lines=[line])
    assert "Failed self-check" in section_text(calibration)
    assert "not measured" in render_plain(calibration_document(calibration))
