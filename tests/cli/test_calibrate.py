"""`bt-bench calibrate`, with calibrations that are made up."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from support.calibrations import make_calibration, make_host_calibration
from support.commands import run
from support.factories import make_environment
from support.fake_gpus import environment_of
from support.refusals import refused

from bt_bench.results.run.calibration import Calibration, LaunchChain, PlainCopies
from bt_bench.worker.measuring.calibration import calibrate as measuring


@pytest.fixture
def on_host(monkeypatch):
    """Makes what is measured on the host up; returns a function that sets the empty call."""

    def with_empty_call(value_us):
        monkeypatch.setattr(
            measuring, "calibrate_host", lambda clock: make_host_calibration(value_us)
        )

    with_empty_call(0.06)
    return with_empty_call


@pytest.fixture
def on_gpu(monkeypatch):
    """Makes a GPU up; returns a function that sets the calibration, and how it was asked for."""
    asked = []

    def with_calibration(calibration):
        def calibrate(clock, port, *, thorough):
            asked.append(thorough)
            return calibration

        monkeypatch.setattr("bt_bench.worker.choose_device", lambda choice: choice)
        monkeypatch.setattr("bt_bench.worker.measuring.ports.CudaPort", lambda: None)
        monkeypatch.setattr(
            "bt_bench.worker.read_environment", lambda kind, choice: make_environment(kind)
        )
        monkeypatch.setattr(measuring, "calibrate", calibrate)
        return asked

    return with_calibration


def test_without_a_gpu():
    assert "no GPU to run on: torch" in refused("calibrate")


def test_of_the_host_alone(on_host):
    outcome = run("calibrate", "--device", "cpu")
    assert outcome.code == 0
    assert "the harness adds less than 0.1 µs to host times  kept" in outcome.out
    assert "Kernels of known length" not in outcome.out


def test_a_missed_promise_is_named_and_ends_with_5(on_host):
    on_host(0.25)
    outcome = run("calibrate", "--device", "cpu")
    assert outcome.code == 5
    assert "MISSED" in outcome.out
    assert (
        "failed self-check: the harness adds less than 0.1 µs to host times; found 0.25"
        in outcome.err
    )


def test_on_a_gpu(on_gpu):
    asked = on_gpu(make_calibration())
    outcome = run("calibrate")
    assert outcome.code == 0
    assert "NVIDIA H200, torch 2.11.0, Triton 3.6.0." in outcome.out
    assert "graph slope" in outcome.out
    assert "MISSED" not in outcome.out
    assert run("calibrate", "--quick").code == 0
    assert asked == [True, False]


def test_json(on_gpu):
    on_gpu(make_calibration(chains=[LaunchChain(launched=4, counted=3)]))
    outcome = run("calibrate", "--json")
    assert outcome.code == 5
    document = outcome.json()
    assert document["schema_version"] == 2
    assert document["environment"]["gpus"][0]["name"] == "NVIDIA H200"
    assert Calibration.model_validate(document["calibration"]).chains[0].counted == 3
    missed = [verdict for verdict in document["verdicts"] if not verdict["kept"]]
    assert [(verdict["name"], verdict["found"]) for verdict in missed] == [("chains", "3 of 4")]


def test_out_has_the_same_as_json(on_host, tmp_path):
    path = tmp_path / "calibration.json"
    outcome = run("calibrate", "--device", "cpu", "--out", path, "--json")
    assert outcome.code == 0
    assert json.loads(path.read_text()) == outcome.json()


def test_what_cannot_be_written_is_refused_before_measuring(tmp_path):
    path = tmp_path / "calibration.json"
    path.write_text("mine")
    assert "exists already" in refused("calibrate", "--device", "cpu", "--out", path)
    assert path.read_text() == "mine"
    said = run("calibrate", "--out", tmp_path / "nowhere" / "x.json").err
    assert f"folder {tmp_path / 'nowhere'} does not exist; create it" in said


def test_where_something_makes_times_false_nothing_is_measured(on_host):
    tracemalloc.start()
    try:
        said = refused("calibrate", "--device", "cpu")
    finally:
        tracemalloc.stop()
    assert "tracemalloc is on: each allocation is recorded, so host times are longer" in said


def test_the_lottery_of_several_gpus(monkeypatch, tmp_path):
    """The second one is 4 % slower in its longest copy, and its host launches faster."""
    from bt_bench.cli import lottery

    def calibrated(device):
        slow = device == "cuda:2"
        copies = PlainCopies(
            moved_bytes=[1024, 1 << 20], samples=[[0.8 + 0.032 * slow], [100.0 + 4 * slow]]
        )
        environment = environment_of(f"{device[-1]}abc1234-0", "NVIDIA H200")
        calibration = make_calibration(copies=copies)
        figures = [
            each.model_copy(update={"samples": [4.0 - slow]}) if each.name == "null_host" else each
            for each in calibration.figures
        ]
        return environment, calibration.model_copy(update={"figures": figures})

    monkeypatch.setattr(lottery, "_calibrated", calibrated)
    out = tmp_path / "lottery.json"
    outcome = run("calibrate", "--gpus", "0,2", "--out", out)
    assert outcome.code == 0, outcome.err
    text = " ".join(outcome.out.split())
    # One tick of the profiler's clock is no difference.
    assert "A copy that moves 1.000 KiB, gpu_us 0.8000 0.8320 0 %" in text
    assert "Copies on these GPUs differ by up to 3.97 %." in text
    assert "Medians in µs GPU-0abc1234 GPU-2abc1234 apart" in text
    assert "An empty kernel, host_us 4.000 3.000 33.3 %" in text
    assert "A copy that moves 1.000 MiB, gpu_us 100.0 104.0 3.97 %" in text
    document = json.loads(out.read_text())
    assert document["apart"]["copy_1048576_bytes"] == pytest.approx(0.04, abs=0.0004)
    assert [each["environment"]["gpus"][0]["uuid"][0] for each in document["gpus"]] == ["0", "2"]


def test_several_devices_without_a_gpu_have_no_lottery(monkeypatch):
    from bt_bench.cli import lottery

    found = make_environment("cpu"), make_host_calibration(0.17)
    monkeypatch.setattr(lottery, "_calibrated", lambda device: found)
    outcome = run("calibrate", "--gpus", "one,two", "--device", "cpu")
    assert "No GPU, so there is no lottery." in outcome.out
    assert "failed self-check: cpu: the harness adds less than 0.1 µs to host times" in outcome.err
    assert outcome.code == 5
