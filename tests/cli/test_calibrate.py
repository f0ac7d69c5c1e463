"""`bt-bench calibrate`, with calibrations that are made up."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from support.calibrations import make_calibration, make_host_calibration
from support.commands import run
from support.factories import make_environment
from support.refusals import refused

from bt_bench.results.run.calibration import Calibration, LaunchChain
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
    assert "not as promised: the harness adds less than 0.1 µs to host times; 0.25" in outcome.err


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
