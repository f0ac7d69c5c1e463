"""`bt-bench profile --tool ncu`, with a stand-in for Nsight Compute."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
from support.factories import make_environment
from support.ncu import FakeAction, FakeMetric, fake_module, fake_ncu

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.cli.profile.ncu import ncu_profile
from bt_bench.cli.profile.places import without_places
from bt_bench.config.load import load_config
from bt_bench.protocol import build_workload
from bt_bench.results import Reason, ReasonCode, read_counters
from bt_bench.runs.profile import ncu
from bt_bench.worker.profiling.marking import MarkAnswer, Marked


@pytest.fixture
def request_(request_):
    """A request for counters of one case."""
    return replace(request_, tool="ncu", device="auto")


@pytest.fixture(autouse=True)
def profiled(config, tmp_path, monkeypatch):
    """Puts a stand-in on `PATH`; gives a function that sets what it finds."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    answer = tmp_path / "answer.json"
    fake_ncu(
        tmp_path / "bin" / "ncu",
        body=f'cp {answer} "$folder"; echo "profiling fused, 1 of 1" > "$folder/progress.txt"; '
        'echo a report > "$report"',
    )

    case = load_config(str(config), select="one").cases[0]
    digest = build_workload(case.parameters).digest()

    def found(us=4.0, failure=None):
        ranges = {} if failure else {"fused": "fused.step.one"}
        failures = {"fused": Reason(code=ReasonCode.RAISED, message=failure)} if failure else {}
        marked = Marked(
            environment=make_environment(),
            step=0,
            num_steps=1,
            digest=digest,
            ranges=ranges,
            failures=failures,
        )
        answer.write_text(MarkAnswer(marked=marked, tracebacks=["A traceback"]).model_dump_json())
        duration = FakeMetric(us * 1e3)
        action = FakeAction("gather", "fused.step.one", {"gpu__time_duration.sum": duration})
        monkeypatch.setitem(sys.modules, "ncu_report", fake_module(action, action, action))

    found()
    return found


def test_the_profile_is_printed_and_kept(request_, capsys):
    assert ncu_profile(request_) is ExitCode.OK
    out, err = capsys.readouterr()
    assert "Counters of step/one" in out
    assert "Nsight Compute, which runs each kernel some 40 times: profiling fused, 1 of 1" in err
    assert (
        f"Profile: {request_.out}/ (profile.md, counters.json, kernels.ncu-rep, report.html)" in out
    )
    assert f"--against {request_.out}" in out
    assert {path.name for path in request_.out.iterdir()} == {
        "profile.md",
        "counters.json",
        "kernels.ncu-rep",
        "report.html",
    }
    assert (request_.out / "kernels.ncu-rep").read_bytes() == b"a report\n"
    assert read_counters(request_.out).variants[0].kernels[0].name == "gather"
    assert "Throughput and occupancy" in (request_.out / "profile.md").read_text()


def test_json_and_what_has_changed(request_, profiled, tmp_path, capsys):
    ncu_profile(request_)
    profiled(us=8.0)
    again = replace(request_, against=request_.out, out=tmp_path / "again")
    capsys.readouterr()
    assert ncu_profile(replace(again, as_json=True)) is ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["folder"] == str(tmp_path / "again")
    assert document["counters"]["figures"][0]["us"] == 8.0
    (change,) = document["changes"]
    assert (change["what"], change["more"]) == ("duration in ns", True)
    ncu_profile(replace(again, out=tmp_path / "once more"))
    out = capsys.readouterr().out
    assert f"Against {request_.out}" in out
    assert "duration in ns" in out


def test_a_variant_that_fails(request_, profiled, capsys):
    profiled(failure="while profiled: oh no")
    assert ncu_profile(replace(request_, traceback=True)) is ExitCode.CHECK_FAILED
    out, err = capsys.readouterr()
    assert "FAILED: fused: while profiled: oh no" in out
    assert "A traceback" in err


def test_a_report_that_is_too_large_is_said_to_be(request_, monkeypatch, capsys):
    monkeypatch.setattr(ncu, "MOST_REPORT_BYTES", 4)
    ncu_profile(request_)
    out, err = capsys.readouterr()
    assert "is not kept: more than 4 B" in err
    assert "(profile.md, counters.json, report.html)" in out


def test_refusals_before_anything_runs(request_, config, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"one operation, and 2 are chosen: gather_slots, step"):
        ncu_profile(replace(request_, operations_by_name=True))
    spec = load_config(str(config), select="one", operations=["stage"])
    with pytest.raises(UsageError, match=r"operation 'stage' launches nothing"):
        ncu_profile(replace(request_, spec=spec))
    with pytest.raises(UsageError, match=r"--device cpu has none"):
        ncu_profile(replace(request_, device="cpu"))
    with pytest.raises(UsageError, match=r"has no counters.json"):
        ncu_profile(replace(request_, against=tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("bt_bench.runs.profile.ncu_tool.INSTALLED", ("/none/ncu",))
    with pytest.raises(UsageError, match=r"ncu is neither on PATH"):
        ncu_profile(request_)
    assert not request_.out.exists()


def test_where_a_profile_goes_is_not_repeated():
    given = ["profile", "x", "--out", "a", "--reports=b", "-k", "c"]
    assert list(without_places(given)) == ["profile", "x", "-k", "c"]
