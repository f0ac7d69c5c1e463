"""Reads reports of a stand-in for `ncu_report`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.ncu import STALLED, FakeAction, FakeMetric, fake_module

from bt_bench.base.errors import UsageError
from bt_bench.results import Counter, ReasonCode, Stall
from bt_bench.runs.profile import ncu_report_file
from bt_bench.runs.profile.ncu_report_file import load_module, read_variants
from bt_bench.runs.profile.ncu_tool import Ncu

RANGES = {"fused": "fused.step.one", "baseline": "baseline.step.one"}
PATH = Path("report.ncu-rep")


def read(*actions, calls=2, most=100, ranges=RANGES):
    return read_variants(fake_module(*actions), PATH, ranges, calls, most)


def test_values_are_of_each_call_and_in_base_units():
    sectors = "lts__t_sectors_srcunit_tex"

    def action(ns):
        metrics = {
            "gpu__time_duration.sum": ns,
            f"{sectors}.sum": 10,
            "dram__bytes_read.sum": 2000,
            f"{sectors}_aperture_sysmem_op_read_lookup_miss.sum": FakeMetric(None),
            "launch__registers_per_thread": 32,
        }
        return FakeAction("gather", "fused.step.one", metrics)

    fused, baseline = read(action(4500), action(4000))
    (kernel,) = fused.kernels
    assert kernel.name == "gather"
    assert kernel.values == {
        Counter.DURATION_NS: [4500.0, 4000.0],
        Counter.L2_BYTES: [320.0, 320.0],
        Counter.DRAM_READ_BYTES: [2000.0, 2000.0],
        Counter.REGISTERS: [32.0, 32.0],
    }
    # Nothing is said of what the tool could not take, and a variant may launch nothing.
    assert Counter.PCIE_READ_BYTES not in kernel.values
    assert baseline.kernels == []
    assert baseline.reason is None


def test_a_counter_that_one_call_lacks_is_absent():
    has = {"launch__grid_size": 3}
    fused, _ = read(FakeAction("a", "fused.step.one", has), FakeAction("a", "fused.step.one", {}))
    assert fused.kernels[0].values == {}


def test_kernels_are_in_the_order_of_a_call_and_of_their_variant():
    launched = [
        FakeAction(name, range_)
        for range_ in ("baseline.step.one", "fused.step.one")
        for _call in range(2)
        for name in ("a", "b", "a")
    ]
    fused, baseline = read(*launched, FakeAction("outside", None))
    assert [kernel.name for kernel in fused.kernels] == ["a", "b", "a"]
    assert [kernel.name for kernel in baseline.kernels] == ["a", "b", "a"]


def test_stalls_are_by_reason_and_line_over_all_calls():
    lines = {16: ("/x/parts.py", 85), 32: ("/x/parts.py", 85), 48: ("/x/parts.py", 90)}
    metrics = {
        f"{STALLED}long_scoreboard": FakeMetric(9, instances={16: 3, 32: 2, 48: 4, 64: 1}),
        f"{STALLED}long_scoreboard_not_issued": FakeMetric(9, instances={16: 100}),
        f"{STALLED}selected": FakeMetric(6, instances={16: 6}),
        f"{STALLED}wait": FakeMetric(2),
    }
    action = FakeAction("a", "fused.step.one", metrics, lines)
    kernel = read(action, action)[0].kernels[0]
    assert kernel.samples == 2 * (10 + 6 + 2)
    assert kernel.stalls == [
        Stall(reason="long_scoreboard", place="parts.py:85", samples=10),
        Stall(reason="long_scoreboard", place="parts.py:90", samples=8),
        Stall(reason="wait", samples=4),
        Stall(reason="long_scoreboard", samples=2),
    ]


def test_calls_that_differ_are_no_measurement():
    names = ["a", "b", "a"]
    fused, _ = read(*(FakeAction(name, "fused.step.one") for name in names))
    assert fused.reason.code is ReasonCode.PROFILER_INCOMPLETE
    assert "its 2 calls did not launch the same kernels" in fused.reason.message
    assert "saw 3 launches, 2 of a, 1 of b" in fused.reason.message
    fused, _ = read(*(FakeAction(name, "fused.step.one") for name in "abba"))
    assert fused.reason is not None


def test_a_report_that_was_cut_says_so():
    actions = [FakeAction("a", "fused.step.one")] * 2
    fused, baseline = read(*actions, most=2)
    assert fused.reason is None
    assert "more kernels than are profiled" in baseline.reason.message


def test_a_damaged_report():
    with pytest.raises(UsageError, match=r"cannot read report.ncu-rep: no kernel was found in it"):
        read()

    def broken(path):
        raise RuntimeError("bad magic")

    with pytest.raises(UsageError, match=r"bad magic; pip install -U ncu-report"):
        read_variants(SimpleNamespace(load_report=broken), PATH, RANGES, 2, 10)


def test_the_module_is_the_installed_one_or_that_of_the_tool(tmp_path, monkeypatch):
    monkeypatch.setattr(ncu_report_file, "MODULE", "ncu_report_stand_in")
    ncu = Ncu(tmp_path / "ncu", "2025.3.1.0")
    with pytest.raises(UsageError, match=r"it cannot be imported .*; pip install ncu-report"):
        load_module(ncu)
    folder = ncu.modules[0]
    folder.mkdir(parents=True)
    module = folder / "ncu_report_stand_in.py"
    module.write_text("raise ImportError('no library')\n")
    importlib.invalidate_caches()
    with pytest.raises(UsageError, match=r"python does not import \(ImportError: no library\)"):
        load_module(ncu)
    module.write_text("MINE = True  # now it is there\n")
    assert load_module(ncu).MINE
    assert str(folder) not in sys.path
    monkeypatch.delitem(sys.modules, "ncu_report_stand_in")
