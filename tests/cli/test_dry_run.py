"""`sweep --dry-run` finds what can be found without measuring, and says how long a sweep takes."""

from __future__ import annotations

import pytest
from support.commands import TINY, run

from bt_bench.cli import dry_run
from bt_bench.config.load import load_config
from bt_bench.worker import Hello

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD_ROW = "2023-11-16 18:15:46,5,3\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(folder, cases, head="", *options):
    (folder / "my.yaml").write_text(f"{TINY.partition('cases:')[0]}{head}cases:\n{cases}")
    outcome = run("sweep", "my.yaml", "--dry-run", *options)
    assert outcome.code == 2, outcome.err
    assert outcome.out == ""
    assert not (folder / "reports").exists()
    return outcome.err


def test_damaged_and_short_traces_are_found_all_at_once(folder):
    (folder / "damaged.csv").write_text(f"{HEADER}{GOOD_ROW}2023-11-16 18:15:47,x,3\n")
    (folder / "short.csv").write_text(HEADER + GOOD_ROW)
    cases = (
        "- {name: a, workload: trace, trace: damaged.csv, window: {steps: 2}}\n"
        "- {name: b, workload: trace, trace: short.csv, window: {at: middle, steps: 9}}\n"
        "- {name: c, workload: trace, trace: short.csv, window: {steps: 2}}\n"
        "- {name: d, workload: trace, trace: damaged.csv, window: {steps: 2}}\n"
    )
    _began, first, second = refused(folder, cases).splitlines()
    assert "case 'a': " in first
    assert "damaged.csv:3: column ContextTokens is 'x'; expected a whole number" in first
    assert "case 'b': window 'middle' needs 9 steps" in second


def test_memory_that_there_is_not(folder):
    sizes = "max_num_reqs: 16384, max_model_len: 4194304, max_num_batched_tokens: 8"
    message = refused(
        folder, f"- {{name: huge, requests: 1, tokens: 1, {sizes}}}\n", "", "--device", "cpu"
    )
    assert "case 'huge' would need " in message


def test_a_variant_that_does_not_import_is_named_with_its_line(folder):
    (folder / "kernels" / "broken.py").write_text("x = 1\nimport no_such_module\n")
    message = refused(
        folder, "- {name: a, requests: 1, tokens: 1}\n", "kernels: kernels\n",
        *("--variants", "baseline,broken", "--device", "cpu"),
    )  # fmt: skip
    assert "kernels/broken.py:2: the variant file does not import: ModuleNotFoundError" in message


def test_the_time_is_said_to_be_an_estimate(folder):
    (folder / "my.yaml").write_text(TINY)
    assert run("sweep", "my.yaml", "--dry-run", "--json").json()["estimated_seconds"] > 0
    assert "  time: about 20 seconds, an estimate" in run("sweep", "my.yaml", "--dry-run").out


def test_a_shard_without_a_case_has_a_plan(folder):
    (folder / "my.yaml").write_text(TINY)
    shards = [
        run("sweep", "my.yaml", "--shard", f"{index}/9", "--dry-run", "--json").json()
        for index in range(1, 10)
    ]
    assert min(len(shard["cases"]) for shard in shards) == 0
    assert all(shard["estimated_seconds"] > 0 for shard in shards)


def test_the_estimate_is_for_all_devices(folder):
    (folder / "my.yaml").write_text(TINY)
    two = ("sweep", "my.yaml", "--dry-run", "--gpus", "one,two", "--device", "cpu")
    assert " seconds on 2 devices, an estimate" in run(*two).out
    both, alone = run(*two, "--json").json(), run(*two[:3], "--json").json()
    assert (both["devices"], alone["devices"]) == (2, 1)
    assert both["estimated_seconds"] < alone["estimated_seconds"]


@pytest.mark.parametrize(
    ("config", "device", "told"),
    [("origin", "cpu", True), ("origin", "cuda", False), ("quick", "cpu", False)],
)
def test_a_long_sweep_without_a_gpu_says_so(config, device, told, capsys):
    spec = load_config(config)
    dry_run.warn_if_long(spec, [None] * 4, Hello(device, None, None), 1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("bt-bench: this sweep may take about ") == told
    if told:
        assert all(what in captured.err for what in ("an estimate", "'quick'", "-k", "rounds"))
