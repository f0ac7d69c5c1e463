"""`gate --shard K/N`, and `merge` of gates, as typed; with scripted workers."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from support import fake_rounds
from support.commands import run
from support.refusals import refused
from support.repositories import commit, repository, write
from support.staging import STAGING

from bt_bench.config import divide, load_config
from bt_bench.results import read_recording
from bt_bench.runs import judge_recording

SHARDS = 4  # of which one has no case, and another one the regression
CASES = ("tiny", "wide", "long", "more")
CONFIG = STAGING + "".join(
    f"  - {{name: {name}, requests: 2, tokens: {tokens}}}\n"
    for tokens, name in enumerate(CASES[1:], start=5)
)
SLOWED, GONE = "long", "gone"
FILE = '"""A variant."""\n'


def script(folder="mine", **factors):
    return {f"{folder}/script.json": json.dumps({"one": {"us": 100.0, "factors": factors}})}


def gate(index, *options, count=SHARDS, config="my.yaml", kernels="mine"):
    common = ("--rounds", "6", "--max-rounds", "6", "--device", "cpu", "--fail-on", "slower")
    folders = ("--config", config, "--base", "HEAD", "--kernels", kernels)
    return run("gate", *folders, *common, "--shard", f"{index}/{count}", *options)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The gates of all shards, by index; the head is slower in one case, and lost another one."""
    lost = f"  - {{name: {GONE}, requests: 1, tokens: 4}}\n"
    files = {"mine/one.py": FILE, "my.yaml": CONFIG + lost, ".gitignore": "gates/\n"}
    files |= {"other/one.py": f"{FILE}# Another one.\n", **script("other")}
    top = repository(tmp_path_factory.mktemp("gates") / "repo", files | script())
    write(top, script(**{SLOWED: 1.1}) | {"my.yaml": CONFIG})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(top)
        patch.setattr("bt_bench.runs.gate.sides.Supervisor", fake_rounds.InProcess)
        outcomes = {k: gate(k, "--out", f"gates/{k}") for k in range(1, SHARDS + 1)}
        yield {k: (top / "gates" / str(k), outcome) for k, outcome in outcomes.items()}


def folders(shards):
    return [folder for folder, _ in shards.values()]


def measured(shards):
    """The folders of the shards that have cases."""
    return [folder for index, (folder, _) in shards.items() if index in owners().values()]


def owners():
    """The shard of each case."""
    _, division = divide(load_config("my.yaml"), 1, SHARDS)
    return {case.name: case.shard for case in division.cases}


def test_each_shard_judges_its_cases_on_its_share_of_alpha(shards):
    own = Counter(owners().values())
    assert len(own) == SHARDS - 1
    for index, (folder, outcome) in shards.items():
        assert outcome.code == (1 if index == owners()[SLOWED] else 0), outcome.err
        assert f"This is shard {index}/4 of a gate of 4 cases" in " ".join(outcome.out.split())
        if index not in own:
            assert [path.name for path in folder.iterdir()] == ["shards.jsonl"]
            assert "has no case, so nothing is measured" in outcome.err
            continue
        recording = read_recording(folder / "recording.json")
        assert recording.judging.share == own[index] / 4
        verdicts = json.loads((folder / "verdicts.json").read_text())
        tests = {j["evidence"]["tests"] for j in verdicts["judgements"] if j["evidence"]}
        assert tests == {4}


def test_merging_collects_verdicts_and_judges_nothing_again(shards, tmp_path):
    out = tmp_path / "merged"
    outcome = run("merge", *folders(shards)[::-1], "--out", out, "--format", "github")
    assert outcome.code == 1
    assert f"stage/{SLOWED}" in outcome.out
    merged = json.loads((out / "verdicts.json").read_text())
    assert "4 cases in 3 shards" in merged["subject"]
    own = [
        judgement
        for folder in measured(shards)
        for judgement in json.loads((folder / "verdicts.json").read_text())["judgements"]
    ]
    assert sorted(merged["judgements"], key=str) == sorted(own, key=str)
    # In the config's order; what the head's config lost is told once, by the first shard.
    cases = [*dict.fromkeys(each["case"] for each in merged["judgements"])]
    assert cases == [*CASES, GONE]
    again = judge_recording(read_recording(out / "recording.json"))
    told = [(j.case, j.verdict) for j in again.judgements]
    assert told == [
        (j["case"], j["verdict"]) for j in merged["judgements"] if j["evidence"] is not None
    ]
    facts = " ".join(merged["facts"])
    for name, index in owners().items():
        (fact,) = [each for each in merged["facts"] if each.startswith(f"Shard {index}/4 judged")]
        assert name in fact
    assert "of all shards, are one family" in facts
    page = (out / "report.html").read_text()
    assert all(f"rounds/stage/{name}/one/stage_us" in page for name in CASES)
    assert run("report", out, "--out", tmp_path / "again.html").code == 0
    assert "is merged of 3 shards" in refused("selfcheck", "--recording", out / "recording.json")
    assert "is merged already" in refused("merge", out, "--out", tmp_path / "twice")


def test_a_missing_or_a_killed_shard_keeps_a_gate_from_passing(shards, tmp_path):
    index = owners()[SLOWED]
    lacking, killed = "and merge again, or pass --allow-partial", tmp_path / "killed"
    shutil.copytree(shards[index][0], killed)
    (killed / "verdicts.json").unlink()
    others = [folder for k, (folder, _) in shards.items() if k != index]
    for given, told in (
        (others, f"shard {index}/4 is missing: "),
        ([*others, killed], f"shard {index}/4 in {killed} has not ended: "),
    ):
        out = tmp_path / "partial"
        message = refused("merge", *given, "--out", out, code=4)
        assert told in message
        assert lacking in message
        assert not out.exists()
        outcome = run("merge", *given, "--out", out, "--allow-partial")
        assert outcome.code == 4
        said = " ".join(outcome.out.split())
        assert f"PARTIAL: {told}" in said
        assert SLOWED in said[said.index("PARTIAL") : said.index("Nothing is known of these")]
        assert run("report", out).code == 0
        assert f"PARTIAL: {told}" in (out / "report.html").read_text()
        shutil.rmtree(out)


def test_a_shard_that_is_there_twice_is_refused(shards, tmp_path):
    first, *_ = measured(shards)
    copy = shutil.copytree(first, tmp_path / "copy")
    message = refused("merge", *folders(shards), copy, "--out", tmp_path / "merged")
    assert "are both shard 1/4 and are copies of one run" in message


def changed(folder, to, change):
    """A copy of a gate's folder whose recording is changed."""
    shutil.copytree(folder, to)
    file = to / "recording.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    return to


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("arms", "base", "commit"), "f" * 40),
        (("arms", "head", "changes"), "0" * 16),
        (("arms", "base", "places"), ["yours"]),
        (("judging", "alpha"), 0.05),
        (("judging", "looks"), [3]),
        (("asked", "fail_on"), ["missing"]),
        (("asked", "metrics"), ["host_us"]),
        (("asked", "config", "variants"), ["two"]),
        (("environment", "torch"), "1.0"),
        (("environment", "triton"), "1.0"),
        (("tool", "version"), "0.0"),
    ],
)
def test_shards_of_other_gates_are_refused(shards, tmp_path, keys, value):
    first, second, _ = measured(shards)

    def change(document):
        *path, name = keys
        for key in path:
            document = document[key]
        assert document[name] != value
        document[name] = value

    other = changed(second, tmp_path / "other", change)
    message = refused("merge", first, other, "--out", tmp_path / "merged", code=4)
    assert "these are not shards of one gate:" in message
    assert f"{'.'.join(keys)}: " in message
    assert f" in {other / 'recording.json'}" in message


def test_shards_of_other_folders_of_variants_are_refused(shards, tmp_path):
    """The same commits, names and config, but not the same code."""
    (first, second), indices = measured(shards)[:2], sorted(set(owners().values()))
    assert gate(indices[1], "--out", tmp_path / "other", kernels="other").code in (0, 1)
    message = refused("merge", first, tmp_path / "other", "--out", tmp_path / "merged", code=4)
    for arm in ("base", "head"):
        assert f"arms.{arm}.places: ['mine'] in " in message
    given = (first, second, "--out", tmp_path / "merged")
    assert "arms" not in refused("merge", *given, code=4)  # the third one is missing


def test_shards_after_one_without_a_case_are_compared_with_each_other(shards, tmp_path):
    """Folders are in the order of the shards, and the first one may have nothing to compare."""
    (empty,) = set(shards) - set(owners().values())
    first, second = (f for k, (f, _) in shards.items() if k > empty)

    def change(document):
        document["arms"]["head"]["changes"] = "0" * 16

    other = changed(second, tmp_path / "other", change)
    given = (shards[empty][0], first, other)
    message = refused("merge", *given, "--out", tmp_path / "merged", "--allow-partial", code=4)
    assert "arms.head.changes: " in message


def test_gpus_and_hosts_may_differ(shards, tmp_path):
    def change(document):
        document["environment"]["cpu"] = "another one"

    first, *others = measured(shards)
    other = changed(first, tmp_path / "other", change)
    out = tmp_path / "merged"
    assert run("merge", other, *others, "--out", out).code == 1
    facts = json.loads((out / "verdicts.json").read_text())["facts"]
    (fact,) = [each for each in facts if each.startswith("Shard 1/4 judged")]
    assert "another one" in fact


def test_damaged_and_mixed_folders_are_refused(shards, tmp_path):
    folder, second, _ = measured(shards)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    verdicts = json.loads((copy / "verdicts.json").read_text())
    verdicts["judgements"][0]["case"] = next(n for n, k in owners().items() if k != 1)
    (copy / "verdicts.json").write_text(json.dumps(verdicts))
    out = tmp_path / "merged"
    assert "which is not of shard 1/4" in refused("merge", copy, "--out", out)
    (copy / "verdicts.json").write_text('{"kind": "judged", "schema_version": 3}')
    assert "is damaged: it does not have the verdicts" in refused("merge", copy, "--out", out)
    shutil.copy(second / "shards.jsonl", copy)
    assert "is not of the shard that shards.jsonl" in refused("merge", copy, "--out", out)
    assert "is no gate's folder, but another one is" in refused(
        "merge", folder, tmp_path, "--out", out
    )
    assert "--format is for the verdicts of gates" in refused(
        "merge", tmp_path, "--out", out, "--format", "md"
    )


def test_an_empty_shard_alone_is_nothing_to_merge(shards, tmp_path):
    (empty,) = set(shards) - set(owners().values())
    message = refused("merge", shards[empty][0], "--out", tmp_path / "merged")
    assert "has no verdicts; expected the gate of at least one shard" in message


def test_shards_of_equal_trees_time_nothing_and_pass(shards, tmp_path):
    """Folders of other shards beside the kernels, which git does not ignore, are no difference."""
    top = Path.cwd()
    commit(top, "as it is")
    try:
        for index in (1, 2):
            outcome = gate(index, "--out", f"beside/{index}", "--all", count=2)
            assert outcome.code == 0, outcome.err
            assert "the trees are equal" in " ".join(outcome.out.split())
        out = tmp_path / "merged"
        outcome = run("merge", "beside/1", "beside/2", "--out", out)
        assert outcome.code == 0, outcome.err
        assert "Verdicts: 8 SAME." in outcome.out
        assert outcome.err == f"bt-bench: verdicts of 2 shards are in {out}/\n"
        assert "has no rounds: nothing was timed" in refused("report", out)
    finally:
        shutil.rmtree("beside")


def test_options_that_make_no_sense(shards, monkeypatch):
    monkeypatch.setattr("bt_bench.runs.gate.sides.Supervisor", None)
    assert "a static gate is exact" in refused(
        *("gate", "--config", "my.yaml", "--base", "HEAD", "--static", "--shard", "1/2")
    )
    assert "--shard has no effect on a gate with --against" in refused(
        *("gate", "--config", "my.yaml", "--against", "x.json", "--shard", "1/2")
    )
    outcome = gate(owners()[SLOWED], "--dry-run")
    assert outcome.code == 0
    assert f"shard {owners()[SLOWED]}/4: " in outcome.out
    line = next(line for line in outcome.out.splitlines() if line.startswith("  cases: "))
    assert SLOWED in line
