"""Commands with vLLM's own block tables as variants."""

from __future__ import annotations

import json
import re

import pytest
from support.commands import run
from support.refusals import refused
from support.vllm_stand_in import NEW, OLD, write_stand_in

from bt_bench.base.errors import UsageError
from bt_bench.cli.options import without_opponents
from bt_bench.config.load import load_config

CONFIG = """\
variants: [baseline, vllm]
operations: [step]
plan: {rounds: 2, warmup_rounds: 0, instances: 1}
cases:
  - {name: one, groups: 2, requests: 2, tokens: 4, max_num_reqs: 4, max_num_batched_tokens: 16, \
max_model_len: 64}
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def sources(tmp_path):
    old = write_stand_in(tmp_path / "old", OLD, "0.1")
    new = write_stand_in(tmp_path / "new", NEW, "0.2")
    return ("--vllm-source", old, "--vllm-source", new)


def test_list_says_what_there_is_and_why_there_is_not(sources):
    (row,) = [line for line in run("list").out.splitlines() if line.startswith("  vllm")]
    assert "not available: vLLM is not installed; pass" in row
    assert run("list", "--json").json()["not_available"][0]["name"] == "vllm"
    out = run("list", *sources).out
    assert "  vllm_0.1            BlockTables of vLLM 0.1 itself" in out
    assert "not available" not in out


def test_a_config_goes_on_without_it_and_a_flag_does_not(config, monkeypatch, sources):
    plain = ("sweep", config, "--dry-run")
    outcome = run(*plain)
    assert outcome.code == 0
    assert "variants: baseline\n" in outcome.out
    assert "bt-bench: vllm is left out: vLLM is not installed" in outcome.err
    assert "variant 'vllm' is not available: vLLM is not installed" in refused(
        *plain, "--variants", "baseline,vllm"
    )
    monkeypatch.setenv("BT_BENCH_VLLM_SOURCE", str(sources[1]))
    assert "variants: baseline, vllm\n" in run(*plain).out
    assert run("check", config, "--vllm-source", config).code == 2


def test_several_run_beside_ours_and_results_say_which(config, tmp_path, sources):
    checks = ["shrinking"]  # some of what vLLM is held to
    folder = tmp_path / "run"
    assert run("sweep", config, *sources, "--out", folder, checks=checks).code == 0
    result = json.loads((folder / "vllm_0.1.json").read_text())
    assert result["variant"]["summary"] == "BlockTables of vLLM 0.1 itself"
    (case,) = result["cases"]
    assert case["status"] == "ok"
    assert "rows_kept" in case["check"]["differences"]
    assert json.loads((folder / "baseline.json").read_text())["run_id"] == result["run_id"]
    report = " ".join((folder / "comparison.md").read_text().split())
    assert "vllm_0.2 is BlockTables of vLLM 0.2 itself. It was checked by its own" in report
    assert "baseline is" not in report
    assert "variants: [baseline, vllm_0.1, vllm_0.2]" in (folder / "config.yaml").read_text()
    # A run is gone on with as it was begun.
    assert "'vllm_0.1' is not available: only vllm (vLLM 0.1)" in refused(
        "sweep", "--resume", folder, *sources[:2]
    )
    assert run("sweep", "--resume", folder, *sources, checks=checks).code == 0


def test_a_check_says_what_it_was_held_to(config, sources):
    outcome = run("check", config, "--variants", "vllm", *sources[2:], checks=None)
    assert outcome.code == 0
    assert re.search(r"skipped vllm · \d+ checks? of .* · lacks dummy_requests\n", outcome.out)
    each = run("check", config, "--variants", "vllm", *sources[2:], "--all", checks=None).out
    assert "skipped vllm · conformance:dummies · step · lacks dummy_requests" in each
    assert "vllm was checked by its own definitions; see docs/vllm.md" in outcome.out


def test_there_are_no_revisions_of_it(config, capsys):
    spec = load_config(config)
    assert without_opponents(spec, by_name=False).variants == ["baseline"]
    assert "bt-bench: vllm is left out: revisions of the kernels" in capsys.readouterr().err
    with pytest.raises(UsageError, match="variant 'vllm' cannot take part"):
        without_opponents(spec, by_name=True)
    plain = spec.model_copy(update={"variants": ["fused"]})
    assert without_opponents(plain, by_name=True) is plain
