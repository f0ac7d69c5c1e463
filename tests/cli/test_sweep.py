"""`bt-bench sweep`, as typed."""

from __future__ import annotations

import json
import lzma
import shutil
import signal
from functools import partial

import jsonschema
import pytest
from support.commands import ONE_CHECK, RAISING_VARIANT, TINY, run, run_apart, start
from support.forked import workers_forked
from support.mutants import write_mutant
from support.refusals import refused

from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.reading import read_run, result_schema

PLAIN_VARIANT = '''\
"""A variant from before there were features."""

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    features = frozenset()

    def prepare_step(self, idx_mapping, query_start_loc, positions, num_reqs, num_tokens):
        return super().prepare_step(idx_mapping, query_start_loc, positions, num_reqs, num_tokens)
'''
FEATURE_CASES = """\
  - {name: outputs, requests: 2, tokens: 4, custom_outputs: true}
  - {name: window, requests: 2, tokens: 4, custom_outputs: true, sliding_window: 8}
"""


@pytest.fixture
def swept(config, tmp_path):
    """The folder of a run that is complete."""
    out = tmp_path / "run"
    run("sweep", config, "-k", "one", "--operations", "apply", "--out", out)
    return out


# The process that sweeps needs neither; its worker does.
NO_TORCH = "import sys\nsys.modules['triton'] = sys.modules['torch'] = None\n"


def test_writes_results_and_prints_tables(config, tmp_path):
    out = tmp_path / "run"
    outcome = run_apart("sweep", config, "--out", out, prologue=NO_TORCH + ONE_CHECK)
    assert outcome.code == 0, outcome.err
    first, *phases = outcome.err.splitlines()[:3]
    *cases, last = outcome.err.splitlines()[3:]
    assert "tiny: 2 cases × 2 operations × 2 variants; loading torch" in first
    assert "calibrating the harness (0 of 4 cases)" in phases[0]
    assert "checking the variants" in phases[1]
    assert [line.split()[0] for line in cases] == [f"[{i}/4]" for i in range(1, 5)]
    assert "writing the tables and the page" in last
    assert "Gather + slots" in outcome.out
    assert f" compare {out}\n" in outcome.out
    assert sorted(path.name for path in out.iterdir()) == [
        "baseline.json",
        "comparison.md",
        "config.yaml",
        "fused.json",
        "report.html",
    ]
    for result in read_run(out):
        assert result.complete
        assert result.calibration is not None
        assert [case.key for case in result.cases] == [
            "gather_slots/one",
            "step/one",
            "gather_slots/two",
            "step/two",
        ]
        document = json.loads((out / f"{result.variant.name}.json").read_text())
        jsonschema.validate(document, result_schema())


def test_without_a_gpu_nothing_stands_for_device_times(config, tmp_path):
    run("sweep", config, "--out", tmp_path / "run")
    baseline, fused = read_run(tmp_path / "run")
    assert baseline.environment.device == "cpu"
    for result in (baseline, fused):
        for case in result.cases:
            assert {m.quantity for m in case.measurements} == {"stage_us"}
    text = (tmp_path / "run" / "comparison.md").read_text()
    assert "no GPU" in text.splitlines()[0]
    launches = {c.key: c.launches.totals() for r in (baseline, fused) for c in r.cases}
    assert launches["step/two"] == [2]
    assert [c.launches.totals() for c in baseline.cases] == [[2], [3], [2], [4]]


def test_json_is_one_document(config, tmp_path):
    outcome = run("sweep", config, "--out", tmp_path / "run", "--json")
    document = outcome.json()
    assert document["complete"] is True
    assert (document["cases"], document["failed"], document["insufficient"]) == (8, 0, 0)
    assert set(document["results"]) == {"baseline", "fused"}


def test_an_existing_folder_is_never_overwritten(config, tmp_path):
    out = tmp_path / "run"
    run("sweep", config, "--out", out)
    before = (out / "baseline.json").read_bytes()
    assert "is never overwritten" in refused("sweep", config, "--out", out)
    assert (out / "baseline.json").read_bytes() == before


def test_default_folders_are_new_each_time(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert run("sweep", config, "-k", "one", "--operations", "apply").code == 0
    assert len(list((tmp_path / "reports").iterdir())) == 2


def test_reports_folder_of_the_project(config, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.bt-bench]\nreports = "results"\n')
    monkeypatch.chdir(tmp_path)
    assert run("sweep", config, "-k", "one", "--operations", "apply").code == 0
    assert len(list((tmp_path / "results").iterdir())) == 1


def test_a_variant_that_raises_fails_its_cases_only(config, tmp_path, kernels):
    (kernels / "raising.py").write_text(RAISING_VARIANT)
    out = tmp_path / "run"
    outcome = run(
        "sweep", config, "--kernels", kernels, "--variants", "baseline,raising", "--out", out
    )
    assert outcome.code == 5
    baseline, raising = read_run(out)
    assert all(case.status == "ok" for case in baseline.cases)
    assert all(case.status == "failed" for case in raising.cases)
    assert raising.cases[0].reason.code == "raised"
    assert (
        "RuntimeError: no gather today (raising.py:8, in gather_and_compute_slot_mappings: "
        '`raise RuntimeError("no gather today")`)'
    ) in raising.cases[0].reason.message
    assert raising.complete
    assert "RuntimeError: no gather today" in " ".join((out / "comparison.md").read_text().split())


def test_a_variant_without_features_is_swept_beside_one_that_has_them(config, tmp_path, kernels):
    """On cases that need a feature it is no arm; nothing is wrong, and it is said everywhere."""
    (kernels / "plain.py").write_text(PLAIN_VARIANT)
    config.write_text(TINY + FEATURE_CASES)
    out = tmp_path / "run"
    outcome = run(
        *("sweep", config, "-k", "one", "-k", "outputs", "-k", "window", "--operations", "step"),
        *("--kernels", kernels, "--variants", "fused,plain", "--out", out),
    )
    assert outcome.code == 0, outcome.err
    fused, plain = read_run(out)
    assert {case.case: case.status for case in fused.cases} == dict.fromkeys(
        ("one", "outputs", "window"), "ok"
    )
    assert all(case.check.buffers[-1] == "custom_outputs" for case in fused.cases[1:])
    found = {case.case: (case.status, case.reason and case.reason.message) for case in plain.cases}
    assert found == {
        "one": ("ok", None),
        "outputs": ("unsupported", "lacks custom_outputs"),
        "window": ("unsupported", "lacks custom_outputs, sliding_window"),
    }
    assert fused.cases[1].rounds.arms == ["fused", "(control)"]
    assert "step/outputs: ok, unsupported: plain" in outcome.err
    text = (out / "comparison.md").read_text()
    assert "## Unsupported cases" in text
    assert "plain, step/outputs: unsupported, lacks custom_outputs" in " ".join(text.split())
    compared = run("compare", out / "fused.json", out / "plain.json", "--json").json()
    missing = {j["case"]: j["detail"] for j in compared["judgements"] if j["verdict"] == "MISSING"}
    assert missing == {
        "outputs": "plain lacks custom_outputs",
        "window": "plain lacks custom_outputs, sliding_window",
    }


def test_a_variant_that_raises_only_when_timed(config, tmp_path, kernels):
    (kernels / "late.py").write_text(
        RAISING_VARIANT.replace(
            'raise RuntimeError("no gather today")',
            "return super().gather_and_compute_slot_mappings(*inputs, **options)\n\n"
            "    def restore(self, state):\n"
            "        self.restored = getattr(self, 'restored', 0) + 1\n"
            "        if self.restored > 1:\n"
            "            raise RuntimeError('only once')\n"
            "        super().restore(state)",
        )
    )
    out = tmp_path / "run"
    outcome = run("sweep", config, "--kernels", kernels, "--variants", "late,fused", "--out", out)
    assert outcome.code == 5
    by_name = {result.variant.name: result for result in read_run(out)}
    assert all("only once" in case.reason.message for case in by_name["late"].cases)
    measured = [m for case in by_name["fused"].cases for m in case.measurements]
    assert all(len(measurement.samples) == 2 for measurement in measured)


def test_a_wrong_variant_is_not_timed(config, tmp_path):
    folder = write_mutant(tmp_path / "kernels", "stale_slots")
    out = tmp_path / "run"
    outcome = run(
        "sweep", config, "--kernels", folder, "--variants", "baseline,stale_slots", "--out", out
    )
    assert outcome.code == 5
    _baseline, wrong = read_run(out)
    assert {case.reason.code for case in wrong.cases} == {"wrong_result"}
    assert all(not case.measurements and case.launches is None for case in wrong.cases)


@pytest.mark.parametrize(
    "stop", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_stopped_runs_are_partial_and_can_be_resumed(stop, config, tmp_path):
    out = tmp_path / "run"
    rounds = "plan.rounds=20"
    prologue = ONE_CHECK + workers_forked()
    words = ("sweep", config, "--out", out, "--set", rounds)
    process = start(*words, prologue=prologue, forked=True)
    for line in process.stderr:
        if line.startswith("[1/4]"):
            process.send_signal(stop)
            break
    _out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert f"sweep --resume {out}" in err
    partial = read_run(out)
    assert not any(result.complete for result in partial)
    assert 1 <= len(partial[0].cases) < 4
    assert "PARTIAL" in (out / "comparison.md").read_text()
    assert not list(out.glob("*.jsonl"))
    before = {case.key: case.measurements for case in partial[0].cases}

    outcome = run("sweep", "--resume", out)
    assert outcome.code == 0, outcome.err
    resumed = read_run(out)
    assert all(result.complete and len(result.cases) == 4 for result in resumed)
    after = {case.key: case.measurements for case in resumed[0].cases}
    assert before.items() <= after.items()
    assert "PARTIAL" not in (out / "comparison.md").read_text()


@pytest.mark.parametrize("removed", [True, False])
def test_a_stopped_run_names_its_folder_if_it_has_results(config, tmp_path, monkeypatch, removed):
    def stopped(request, *_):
        (request.folder.path / "fused.json").touch()
        if removed:
            shutil.rmtree(request.folder.path)
        raise KeyboardInterrupt

    monkeypatch.setattr("bt_bench.runs.run_sweep", stopped)
    out = tmp_path / "run"
    outcome = run("sweep", config, "--out", out)
    assert outcome.code == 130
    assert ("the results so far are in" in outcome.err) is not removed
    assert (f"--resume {out}" in outcome.err) is not removed
    assert (f"stopped; {out} was removed, and what was" in outcome.err) is removed


def test_killed_between_files_of_a_case(config, tmp_path):
    """What SIGKILL can leave: one variant has a case more than the other, and no comparison."""
    out = tmp_path / "run"
    run("sweep", config, "--out", out)
    text = (out / "fused.json").read_text()
    cut = json.loads(text)
    cut["cases"] = cut["cases"][:1]
    cut["complete"] = False
    (out / "fused.json").write_text(json.dumps(cut))
    (out / ".fused.json.tmp123").write_text("half a fi")
    (out / "comparison.md").unlink()
    assert run("sweep", "--resume", out).code == 0
    assert [len(result.cases) for result in read_run(out)] == [4, 4]
    assert (out / "comparison.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--variants", "fused"], "leave --variants out"),
        (["--set", "seed=3"], "leave --set out"),
        (["--out", "elsewhere"], "leave --out out"),
        (["quick"], "quick is not the config that"),
    ],
)
def test_resume_with_something_else(arguments, message, swept):
    assert message in refused("sweep", "--resume", swept, *arguments)


def test_resume_accepts_the_same_config(config, swept):
    assert run("sweep", config, "--resume", swept).code == 0


def test_resume_refuses_packed_results(swept, tmp_path):
    out = tmp_path / "packed"
    shutil.copytree(swept, out)
    file = out / "fused.json"
    file.with_name("fused.json.xz").write_bytes(lzma.compress(file.read_bytes()))
    file.unlink()
    assert "fused.json.xz, which is packed; unpack it" in refused("sweep", "--resume", out)


def test_resume_refuses_other_sources(config, tmp_path, kernels):
    source = 'from bt_kernels.variants.fused import Variant\n"""{}"""\n'
    (kernels / "mine.py").write_text(source.format("one"))
    out = tmp_path / "run"
    run("sweep", config, "--kernels", kernels, "--variants", "mine", "-k", "one", "--out", out)
    (kernels / "mine.py").write_text(source.format("two"))
    assert "the source of variant 'mine'" in refused("sweep", "--resume", out, "--kernels", kernels)


def test_dry_run_runs_nothing(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = run("sweep", config, "--dry-run")
    assert outcome.code == 0
    assert "2 cases × 2 operations × 2 variants" in outcome.out
    assert not (tmp_path / "reports").exists()
    document = run("sweep", config, "--dry-run", "--json").json()
    assert [case["name"] for case in document["cases"]] == ["one", "two"]


def test_dump_config_loads_again(config, tmp_path):
    dumped = run("sweep", config, "--set", "seed=5", "--dump-config").out
    again = tmp_path / "again.yaml"
    again.write_text(dumped)
    assert run("sweep", again, "--dump-config").out == dumped
    assert "seed: 5" in dumped


APART = pytest.param(partial(run_apart, prologue=ONE_CHECK), marks=pytest.mark.slow)


@pytest.mark.parametrize("how", [run, APART], ids=["run", "run_apart"])
def test_a_variant_that_exits_or_prints_does_not_end_or_spoil_the_run(
    how, config, tmp_path, kernels
):
    (kernels / "exits.py").write_text(
        RAISING_VARIANT.replace('raise RuntimeError("no gather today")', "raise SystemExit(0)")
    )
    (kernels / "prints.py").write_text(
        'print("imported")\nfrom bt_kernels.variants.fused import Variant as Fused\n\n\n'
        "class Variant(Fused):\n    def apply_staged_writes(self):\n"
        '        print("applied")\n        super().apply_staged_writes()\n'
    )
    names = "exits,prints"
    out = tmp_path / "run"
    outcome = how(
        "sweep", config, "--kernels", kernels, "--variants", names, "--out", out, "--json"
    )
    assert outcome.code == 5
    assert outcome.json()["failed"] == 4
    by_name = {result.variant.name: result for result in read_run(out)}
    assert "SystemExit" in by_name["exits"].cases[0].reason.message
    assert all(case.status == "ok" for case in by_name["prints"].cases)


def test_a_variant_that_clears_its_ids_is_blamed_and_harms_nobody(config, tmp_path, kernels):
    (kernels / "clears.py").write_text(
        "from bt_kernels.variants.fused import Variant as Fused\n\n\n"
        "class Variant(Fused):\n    def append_block_ids(self, row, ids, overwrite):\n"
        "        super().append_block_ids(row, ids, overwrite)\n"
        "        for group_ids in ids:\n            group_ids.clear()\n"
    )
    out = tmp_path / "run"
    outcome = run(
        "sweep", config, "--kernels", kernels, "--variants", "clears,baseline", "--out", out
    )
    assert outcome.code == 5
    by_name = {result.variant.name: result for result in read_run(out)}
    assert {case.status for case in by_name["clears"].cases} == {"failed"}
    assert "new_block_ids of row" in by_name["clears"].cases[0].reason.message
    assert {case.status for case in by_name["baseline"].cases} == {"ok"}
    assert [case.launches.totals() for case in by_name["baseline"].cases] == [[2], [3], [2], [4]]


def test_a_folder_in_use_is_refused(swept):
    with RunFolder.open(swept).locked():
        outcome = run("sweep", "--resume", swept)
    assert outcome.code == 2
    assert "is being written by another bt-bench process" in outcome.err
    assert run("sweep", "--resume", swept).code == 0
    assert not list(swept.glob(".*"))


def test_resume_refuses_an_edited_config(swept):
    saved = swept / "config.yaml"
    saved.write_text(saved.read_text().replace("tokens: 4", "tokens: 6"))
    assert "case 'one' was measured with other parameters" in refused("sweep", "--resume", swept)


def test_resume_of_a_run_that_was_killed_at_once(config, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.yaml").write_text(run("sweep", config, "--dump-config").out)
    assert run("sweep", "--resume", out).code == 0
    assert all(result.complete for result in read_run(out))
    (tmp_path / "empty").mkdir()
    assert "nothing was measured; start a new run" in refused(
        "sweep", "--resume", tmp_path / "empty"
    )


def test_whatever_stops_a_run_it_is_said_how_to_go_on(config, tmp_path, monkeypatch):
    def fail(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bt_bench.runs.run_sweep", fail)
    assert f"sweep --resume {tmp_path / 'run'}" in refused(
        "sweep", config, "--out", tmp_path / "run"
    )
