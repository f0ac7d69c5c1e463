"""`--shard K/N` of `sweep` and `check`, and `bt-bench merge`, as typed."""

from __future__ import annotations

import re

import pytest
from support.commands import TINY, run
from support.refusals import refused

from bt_bench.base.errors import UsageError
from bt_bench.cli.gpus import chosen_gpus
from bt_bench.cli.sharding import share_of
from bt_bench.config import divide, load_config
from bt_bench.results import CaseResult, read_division, read_run


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A folder with a serial run, and the runs of two shards that are balanced by it."""
    folder = tmp_path_factory.mktemp("shards")
    config = folder / "tiny.yaml"
    config.write_text(
        TINY.replace("operations: [gather_slots, step]", "operations: [gather_slots]")
    )
    assert run("sweep", config, "--out", folder / "serial").code == 0
    for index in (1, 2):
        options = ("--shard", f"{index}/2", "--balance", folder / "serial")
        outcome = run("sweep", config, *options, "--out", folder / f"{index}")
        assert outcome.code == 0, outcome.err
        assert f"shard {index}/2: 1 of 2 cases, divided by their seconds in tiny-" in outcome.err
    return folder


def without_times(case: CaseResult) -> dict[str, object]:
    """All of a case but its times, and which part of a merged run it is of."""
    fields = case.model_dump(exclude={"part", "seconds", "stopping", "rounds", "control_spreads"})
    for name in ("measurements", "control"):
        fields[name] = [each.series for each in getattr(case, name)]
    return fields


def test_a_sweep_in_two_shards_equals_a_serial_one_in_all_but_times(swept, tmp_path):
    outcome = run("merge", swept / "2", swept / "1", "--out", tmp_path / "merged")
    assert outcome.code == 0, outcome.err
    assert "Merged 2 shards: 4 results of 2 variants, in " in outcome.out
    for serial, merged in zip(
        read_run(swept / "serial"), read_run(tmp_path / "merged"), strict=True
    ):
        assert [*map(without_times, merged.cases)] == [*map(without_times, serial.cases)]
        same = ("config", "plan", "suite", "variant", "complete", "crashes", "schema_version")
        assert all(getattr(merged, name) == getattr(serial, name) for name in same)
    configs = [folder / "config.yaml" for folder in (swept / "serial", tmp_path / "merged")]
    assert configs[0].read_text() == configs[1].read_text()


def test_a_merged_run_is_shown_and_compared(swept, tmp_path):
    out = tmp_path / "merged"
    document = run("merge", swept / "1", swept / "2", "--out", out, "--json").json()
    assert (document["cases"], document["complete"], document["shards"]) == (4, True, [1, 2])
    shown = run("show", out)
    assert shown.code == 0
    assert "It is merged of 2 shards." in " ".join(shown.out.split())
    assert "comparison.md" not in shown.out
    assert run("compare", out).code == run("compare", swept / "serial").code
    between = run("compare", swept / "serial", out, "--metric", "launches")
    assert between.code == 0, between.out + between.err


def test_a_partial_merge_needs_a_flag(swept, tmp_path):
    out = tmp_path / "merged"
    message = refused("merge", swept / "1", "--out", out, code=4)
    assert "shard 2/2 is missing: 1 case: " in message
    assert run("merge", swept / "1", "--out", out, "--allow-partial").code == 0
    assert "PARTIAL: merged of 1 of 2 shards; 1 of 2 workloads are done" in run("show", out).out
    assert "merged without all shards" in refused("compare", out, code=4)
    assert "is merged of 1 shards and measures nothing" in refused("sweep", "--resume", out)


def test_a_shard_is_resumed_as_it_was_divided(swept, tmp_path):
    division = read_division(swept / "1")
    outcome = run("sweep", "--resume", swept / "1")
    assert outcome.code == 0, outcome.err
    assert read_division(swept / "1") == division
    config = swept / "1" / "config.yaml"
    before = config.read_text()
    config.write_text(before.replace("seed: 0", "seed: 5"))
    message = refused("sweep", "--resume", swept / "1")
    config.write_text(before)
    assert "does not have the cases that shards.jsonl beside it gives to shard 1/2" in message


def test_a_shard_without_a_case_ends_well_and_says_so(swept, tmp_path):
    config, out = swept / "tiny.yaml", tmp_path / "empty"
    options = ("--shard", "3/3", "--balance", swept / "serial", "--out", out)
    outcome = run("sweep", config, *options)
    assert outcome.code == 0
    assert "shard 3/3 has no case, so nothing is measured" in outcome.err
    assert sorted(path.name for path in out.iterdir()) == ["config.yaml", "shards.jsonl"]
    assert run("sweep", "--resume", out, "--json").json()["complete"] is True
    message = refused("merge", out, "--out", tmp_path / "merged")
    assert "has no results; expected the run of at least one shard" in message


def test_a_dry_run_lists_the_cases_of_the_shard(swept):
    options = ("--shard", "1/2", "--balance", swept / "serial", "--dry-run")
    outcome = run("sweep", swept / "tiny.yaml", *options)
    assert "  shard 1/2: 1 of 2 cases, divided by their seconds in tiny-" in outcome.out
    document = run("sweep", swept / "tiny.yaml", *options, "--json").json()
    assert len(document["cases"]) == 1
    assert (document["shard"]["index"], document["shard"]["cases"]) == (1, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shard", "3/2"), "--shard 3/2: expected K/N"),
        (("--balance", "reports/x"), "--balance reports/x divides cases among shards; add --shard"),
        (("--shard", "1/2", "--balance", "gone"), "gone does not exist; expected the folder of a"),
    ],
)
def test_a_wrong_shard_is_refused(swept, options, message):
    assert message in refused("sweep", swept / "tiny.yaml", *options)


def test_check_takes_a_share_of_the_cases(swept):
    options = ("--shard", "1/2", "--explore", "0", "--json")
    outcome = run("check", swept / "tiny.yaml", *options)
    assert outcome.code == 0, outcome.err
    names = {check["workload"] for check in outcome.json()["checks"]} & {"one", "two"}
    own, _ = divide(load_config(swept / "tiny.yaml"), 1, 2)
    assert names == {case.name for case in own.cases}
    options = ("--shard", "1/2", "--explore", "9", "--require-paths")
    message = refused("check", swept / "tiny.yaml", *options)
    assert "--shard 1/2: --paths needs all scenarios; leave one of them out" in message


def test_workers_share_a_check(swept):
    options = ("--device", "cpu", "--variants", "fused", "--all", "--explore", "5")
    one = run("check", swept / "tiny.yaml", *options)
    two = run("check", swept / "tiny.yaml", *options, "--gpus", "one,two")
    assert (one.code, two.code) == (0, 0), two.err
    untimed = [re.sub(r"in \d+ s", "in … s", each.out) for each in (one, two)]
    assert untimed[0] == untimed[1]


@pytest.mark.parametrize("count", [1, 3, 7, 98])
def test_shares_of_scenarios_cover_each_once(count):
    shares = [share_of(range(98), index, count) for index in range(1, count + 1)]
    assert [number for share in shares for number in share] == [*range(98)]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_workers_share_the_cases_of_a_sweep(swept, tmp_path):
    out = tmp_path / "both"
    options = ("--device", "cpu", "--gpus", "one,two", "--out", out)
    outcome = run("sweep", swept / "tiny.yaml", *options)
    assert outcome.code == 0, outcome.err
    assert "Its cases were measured on device 1 and device 2." in " ".join(outcome.out.split())
    assert "device 2: calibrating the harness" in outcome.err
    for serial, both in zip(read_run(swept / "serial"), read_run(out), strict=True):
        assert [*map(without_times, both.cases)] == [*map(without_times, serial.cases)]
    assert run("show", out).code == 0
    assert run("compare", out).code == run("compare", swept / "serial").code


@pytest.mark.parametrize(
    ("visible", "gpus"), [("2,3", ["cuda:0", "cuda:1"]), ("2,-1,3", ["cuda:0"]), ("-1", [])]
)
def test_all_gpus_are_those_that_cuda_sees(monkeypatch, visible, gpus):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if gpus:
        assert chosen_gpus("all", None) == gpus
    else:
        with pytest.raises(UsageError, match="no GPU that CUDA_VISIBLE_DEVICES=-1 leaves visible"):
            chosen_gpus("all", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gpus", "0,0"), "--gpus 0,0: 0 is there twice; expected all, or indices and UUIDs"),
        (("--gpus", "0,"), "--gpus 0,: a name is empty; expected all"),
        (("--gpus", "0,H100"), "--gpus 0,H100: 'H100' is no GPU; expected all, or indices"),
        (("--gpus", "all"), "--gpus all: this host has no GPU that NVML lists; expected one, or"),
        (("--gpus", "0,1"), "no GPU to run on: torch"),
        (("--gpus", "GPU-12ab"), "no GPU to run on: torch"),
        (("--gpus", "all", "--device", "cpu"), "--device cpu has no GPU; expected a name for each"),
        (("--gpus", "0", "--device", "cuda:1"), "--gpus 0 and --device cuda:1 both name GPUs"),
        (("--gpus", "0,1", "--profile"), "--profile takes one GPU, and --gpus several"),
        (("--gpus", "0,1", "--cluster", "local"), "--gpus has no meaning with --cluster"),
    ],
)
def test_wrong_gpus_are_refused(swept, options, message, monkeypatch):
    monkeypatch.setattr("bt_bench.runs.gpus.gpu_uuids", list)
    assert message in refused("sweep", swept / "tiny.yaml", *options)
