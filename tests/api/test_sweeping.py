"""Sweeps from Python; `docs/api.md` has one with a worker, which tests run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import RAISING_VARIANT, TINY, run, without_worker

from bt_bench.api.sweeping import sweep
from bt_bench.base.errors import UsageError
from bt_bench.config.yaml import parse_yaml
from bt_bench.runs.sweep import running as runs_sweep


def tiny() -> dict[str, Any]:
    root = parse_yaml(TINY, "tiny", [])  # type: ignore[arg-type]
    assert root is not None
    return dict(root.plain())


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def swept(config: Any, **options: Any) -> Any:
    with without_worker():
        return sweep(config, **options)


def test_a_path_a_text_and_a_mapping_are_one_config_and_nothing_is_printed(capsys):
    Path("tiny.yaml").write_text(TINY)
    options = {"k": "one", "operations": ["step"]}
    runs = [
        swept(config, out=f"run-{number}", **options)
        for number, config in enumerate(("tiny.yaml", Path("tiny.yaml"), tiny()))
    ]
    assert capsys.readouterr() == ("", "")
    for found in runs:
        assert (found.complete, found.variants, found.failed) == (True, ("baseline", "fused"), ())
        assert [case.name for case in found.cases] == ["one", "one"]
        assert found.case("one", variant="fused").samples["stage_us"].values.shape == (2, 1)
    assert len({found.cases[0].workload.digest for found in runs}) == 1
    assert [str(found.path) for found in runs] == ["run-0", "run-1", "run-2"]
    shown = run("show", "run-0").out
    assert shown.startswith(str(runs[0]))
    written = runs[0].results[0].tool.command
    assert written == ["bt_bench.sweep", "tiny.yaml", "--operations", "step", "-k", "one"]


def test_workers_share_the_cases():
    found = swept(tiny(), variants="fused", operations="step", device="cpu", gpus=["one", "two"])
    (result,) = found.results
    assert result.parts is not None
    assert len(result.parts) == 2
    assert {case.key for case in result.cases} == {"step/one", "step/two"}
    assert result.tool.command[-4:] == ["--device", "cpu", "--gpus", "one,two"]
    with pytest.raises(UsageError, match="--gpus 0,0: 0 is there twice; expected all, or indices"):
        swept(tiny(), gpus=[0, 0])


@pytest.mark.parametrize(
    ("gpus", "told"),
    [
        (2, "2"),
        (True, "true"),
        ([], "[]"),
        ((), "()"),
        ([0, True], "[0, true]"),
        ([1.0], "[1.0]"),
        ([None], "[null]"),
        ({0: 2}, "{0: 2}"),
    ],
)
def test_gpus_that_name_none_are_refused_before_anything_is_read(gpus, told):
    with pytest.raises(
        UsageError, match=re.escape(f"--gpus is {told}; expected all, or a list of")
    ):
        sweep({}, gpus=gpus)


@pytest.mark.parametrize("gpus", [("0", "x"), [np.int64(0), "x"], "0,x"])
def test_gpus_are_a_text_or_a_list_of_indices_and_uuids(gpus):
    with pytest.raises(UsageError, match="--gpus 0,x: 'x' is no GPU; expected all, or indices and"):
        swept(tiny(), gpus=gpus)


def test_options_are_those_of_the_command():
    progress: list[str] = []
    found = swept(
        tiny(),
        variants="fused",
        operations="step",
        k="one",
        set={"requests": [1, np.int64(2)], "plan.rounds": 3, "plan.loads": ["idle"]},
        device="cpu",
        reports=Path("kept"),
        progress=progress.append,
    )
    assert found.path.parent == Path("kept")
    assert found.variants == ("fused",)
    assert sorted(case.name for case in found.cases) == ["one-requests=1", "one-requests=2"]
    assert found.results[0].plan.rounds == 3
    assert any("calibrating the harness" in line for line in progress)
    assert [line[:5] for line in progress[-3:-1]] == ["[1/2]", "[2/2]"]
    assert "writing the tables and the page (2 of 2 cases)" in progress[-1]


def test_settings_of_the_project_count_and_variables_do_not(monkeypatch):
    Path("pyproject.toml").write_text('[tool.bt-bench]\nreports = "ours"\n')
    monkeypatch.setenv("BT_BENCH_REPORTS", "theirs")
    found = swept(tiny(), variants=["fused"], operations="step", k="one")
    assert found.path.parent.resolve() == Path("ours").resolve()


def test_a_variant_that_fails_does_not_raise():
    Path("mine").mkdir()
    Path("mine/raising.py").write_text(RAISING_VARIANT)
    found = swept(
        tiny(), kernels="mine", variants=["baseline", "raising"], operations="gather_slots", k="one"
    )
    (case,) = found.failed
    assert (case.variant, case.status) == ("raising", "failed")
    assert "no gather today" in (case.reason or "")


def test_an_interrupted_sweep_keeps_its_results_and_says_where(monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs_sweep, "conformance_checks", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        swept(tiny(), out="run")
    (note,) = caught.value.__notes__
    assert note.endswith(
        "the results so far are in run; bt-bench sweep --resume run continues the run"
    )
    assert Path("run/fused.json").is_file()


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ("quik", {}, "did you mean the stock config 'quick'"),
        ({}, {}, "'cases' is missing"),
        ({"cases": [{"name": object()}]}, {}, "config has <object .* of type object; expected num"),
        ({"cases": {1, 2}}, {}, "config has {1, 2} of type set; expected numbers, texts"),
        ("quick", {"device": "gpu"}, "--device 'gpu' is not a device; expected auto, cuda"),
        ("quick", {"set": {"request": 1}}, "unknown axis 'request'; did you mean 'requests'"),
        ("quick", {"set": {"requests": object()}}, "--set requests is <object"),
        ("quick", {"variants": "fuse"}, "did you mean 'fused'"),
        ("quick", {"progress": True}, "progress is true; expected a function, such as print"),
        ("quick", {"suite": "nope"}, "nope"),
    ],
)
def test_what_is_wrong_raises(config, options, message):
    with pytest.raises(UsageError, match=message):
        swept(config, **options)
    assert not Path("reports").exists()


def test_a_mapping_that_holds_itself_is_refused():
    config = tiny()
    config["cases"].append(config)
    with pytest.raises(UsageError, match="config is no mapping that YAML can hold: Circular"):
        swept(config)


def test_a_light_installation_is_refused_as_by_the_command(monkeypatch):
    monkeypatch.setattr("bt_bench.base.extras.missing_packages", lambda: ["torch", "Triton"])
    with pytest.raises(UsageError, match=r"sweep needs torch and Triton, which are not installed"):
        sweep("quick")
