"""`bt-bench profile --tool timeline` and `--tool trace`, with a worker that answers as told."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.factories import make_environment, make_gpu, make_workload
from support.fake_gpus import environment_of
from support.timelines import FUSED, Launch, a_timeline, a_variant, host_profile

from bt_bench.base import claims
from bt_bench.base.errors import ExitCode, NotComparableError, UsageError
from bt_bench.cli.profile import timeline
from bt_bench.cli.profile.timeline import timeline_profile
from bt_bench.config.load import load_config
from bt_bench.results import (
    CheckReport,
    HostProfile,
    Reason,
    ReasonCode,
    read_timeline,
)
from bt_bench.variants.catalogue import find_variants
from bt_bench.worker import CheckCase, Hello, TimelineParts, leased
from bt_bench.worker.tasks.runner import Finished
from bt_bench.worker.tasks.tasks import Checked, CheckOutcome

SLOWER = (Launch(operation="fused_kernel", code_us=15.0),)
HOST = host_profile("Variant.step", 9.0)


@dataclass
class FakeWorker:
    """Passes every check but those it is told of, and traces the same script for each variant.

    Args:
        script: calls of a step.
        rejected: by name, why a variant fails its check.
        hello: what the worker says of itself.
        host: the Python and C calls of each step.
        asked: the tasks, in order.
    """

    script: tuple = FUSED
    rejected: dict = field(default_factory=dict)
    hello: Hello = field(default_factory=lambda: Hello("cuda", make_environment(), None))
    host: HostProfile | None = HOST
    asked: list = field(default_factory=list)

    def start(self):
        """There is nothing to start ahead."""

    def close(self):
        """There is nothing to kill."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        """There is nothing to end."""

    def run(self, task, arms, watcher=None):
        self.asked.append(task)
        if isinstance(task, CheckCase):
            outcomes = {
                (arm, operation): CheckOutcome(
                    None if arm in self.rejected else CheckReport(steps=1, buffers=["slots"]),
                    self.rejected.get(arm),
                )
                for arm in arms
                for operation in task.operations
            }
            return Finished(Checked(make_workload(), outcomes), {})
        parts = TimelineParts("cupti-python 13.0.1", [], 4.0, a_timeline().empty)
        parts.ranges = {arm: f"{arm}.step.one" for arm in arms}
        parts.steps = {arm: a_variant(arm, self.script).steps for arm in arms}
        parts.host = {} if self.host is None else dict.fromkeys(arms, self.host)
        return Finished(parts, {})


@pytest.fixture
def worker(monkeypatch):
    """The worker of all profiles, with what `worker_for` was given as its `given`."""
    monkeypatch.setattr("sys.argv", ["bt-bench", "profile", "tiny.yaml", "--out", "profile"])
    made = FakeWorker()

    def worker_for(spec, entries, device, *, traceback):
        made.given = (spec, [entry.name for entry in entries], device, traceback)
        return made

    monkeypatch.setattr(timeline, "worker_for", worker_for)
    return made


def several(request, *names):
    found = find_variants()
    entries = [replace(found["fused"], name=name) for name in names]
    return replace(request, entries=entries)


def failure(message):
    return Reason(code=ReasonCode.WRONG_RESULT, message=message)


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def test_a_gpu_that_another_process_has_is_not_even_checked_on(
    request_, worker, tmp_path, monkeypatch
):
    monkeypatch.setattr(claims, "FOLDERS", (tmp_path,))
    environment = environment_of("aaaa-1")
    worker.hello = Hello("cuda", environment, None)
    with (
        leased([environment], print),
        pytest.raises(UsageError, match="GPU-aaaa-1 is in use by process"),
    ):
        timeline_profile(request_)
    assert worker.asked == []


def test_the_profile_is_printed_and_kept(request_, worker, capsys):
    assert timeline_profile(request_) is ExitCode.OK
    out, err = capsys.readouterr()
    assert out.startswith("Timeline of step/one")
    assert "The host binds: the step takes" in out
    assert "The host's calls" not in out
    files = ["profile.md", "timeline.json", "trace.json", "timeline.svg", "host-fused.svg"]
    files.append("report.html")
    assert f"Profile: {request_.out}/ ({', '.join(files)})" in out
    # Nothing else, such as what an atomic write leaves when it is cut off.
    assert names_in(request_.out) == set(files)
    again = next(line for line in out.splitlines() if line.startswith("Next:"))
    assert again.endswith(f"profile tiny.yaml --against {request_.out}")
    assert "tiny: 1 case × 1 operation × 1 variant; loading torch" in err
    spec, names, device, traceback = worker.given
    assert ([str(operation) for operation in spec.operations], names) == (["step"], ["fused"])
    assert (device, traceback) == (None, False)


def test_what_is_written_is_what_was_traced(request_, worker):
    timeline_profile(request_)
    taken = read_timeline(request_.out)
    assert (taken.config, taken.case, str(taken.operation)) == ("tiny", "one", "step")
    assert taken.variant("fused").host == HOST
    page = (request_.out / "profile.md").read_text(encoding="utf-8")
    assert "# Timeline of step/one" in page
    assert "Variant.step" in page
    assert "submitted" in page
    events = json.loads((request_.out / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert any(event["name"] == "fused_kernel" for event in events)
    for name, text in (("timeline.svg", "fused_kernel"), ("host-fused.svg", "Variant.step")):
        picture = (request_.out / name).read_text(encoding="utf-8")
        assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert text in picture


def test_every_file_is_written_atomically(request_, worker, monkeypatch):
    """A reader never sees half of a file: each gets its name when it is whole."""
    renamed, rename = set(), os.replace

    def renames(source, target, **options):
        renamed.add(Path(target).name)
        rename(source, target, **options)

    monkeypatch.setattr(os, "replace", renames)
    timeline_profile(request_)
    assert renamed == names_in(request_.out)


def test_everything_is_printed_where_it_is_asked_for(request_, worker, capsys):
    timeline_profile(replace(request_, whole=True))
    out = capsys.readouterr().out
    assert "The host's calls in a step of fused" in out
    assert "queued" in out


def test_the_trace_is_shown_the_way_to(request_, worker, capsys):
    assert timeline_profile(replace(request_, tool="trace")) is ExitCode.OK
    out = " ".join(capsys.readouterr().out.split())
    assert f"A trace of a few steps is in {request_.out}/trace.json: open it at" in out
    assert "https://ui.perfetto.dev" in out
    assert "The host binds" not in out
    assert "timeline.json" in out


def test_with_all_the_steps_of_the_trace_come_behind_it(request_, worker, capsys):
    timeline_profile(replace(request_, tool="trace", whole=True))
    out = " ".join(capsys.readouterr().out.split())
    before, _, after = out.partition("A trace of a few steps is in")
    assert "The host's calls in a step of fused" not in before
    assert "The host's calls in a step of fused" in after


def test_json_is_one_document(request_, worker, capsys):
    assert timeline_profile(replace(request_, as_json=True)) is ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    keys = {"schema_version", "folder", "timeline", "changes", "other_speed_us"}
    assert set(document) == keys
    assert (document["schema_version"], document["folder"]) == (1, str(request_.out))
    assert document["timeline"]["variants"]["fused"]["binds"] == "host"
    assert document["changes"] is None
    assert "timeline.json" in names_in(request_.out)


def test_what_has_changed_is_named(request_, worker, tmp_path, capsys):
    timeline_profile(request_)
    capsys.readouterr()
    worker.script = SLOWER
    worker.host = host_profile("sleep", 9.0)
    again = replace(request_, against=request_.out, out=tmp_path / "again")
    assert timeline_profile(again) is ExitCode.OK
    out = capsys.readouterr().out
    assert out.startswith(f"Against {request_.out}: step/one")
    assert "host code before fused_kernel" in out
    assert "sleep" in out
    assert "Next:" not in out
    # A timeline alone will do.
    as_json = replace(
        again, against=request_.out / "timeline.json", out=tmp_path / "once more", as_json=True
    )
    timeline_profile(as_json)
    changes = json.loads(capsys.readouterr().out)["changes"]
    first = changes["fused"]["rows"][0]
    assert (first["kind"], first["next_to"]) == ("longer", "fused_kernel")
    assert first["difference_us"] == pytest.approx(10.0, abs=0.5)
    assert changes["fused"]["host_calls"][0]["name"] in ("sleep", "Variant.step")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"select": "two"}, r"the workload is one \(.*\) in .* and two "),
        ({"operations": ["gather_slots"]}, r"the operation is step in .* and gather_slots in this"),
        ({"gpu": "NVIDIA B200"}, r"the GPU is NVIDIA H200 in .* and NVIDIA B200 in this profile"),
    ],
)
def test_another_step_is_not_compared(changes, expected, request_, worker, tmp_path):
    timeline_profile(request_)
    gpu = changes.pop("gpu", None)
    if gpu is not None:
        worker.hello = Hello("cuda", make_environment(gpus=[make_gpu(gpu)]), None)
    spec = load_config(str(tmp_path / "tiny.yaml"), **({"select": "one"} | changes))
    again = replace(request_, spec=spec, against=request_.out, out=tmp_path / "again")
    with pytest.raises(NotComparableError, match=expected) as refused:
        timeline_profile(again)
    assert refused.value.exit_code == ExitCode.NOT_COMPARABLE == 4
    # What was measured is kept; another step is refused before anything is.
    assert again.out.exists() is (gpu is not None)


def test_another_profile_without_a_variant_in_common(request_, worker, tmp_path):
    timeline_profile(request_)
    again = replace(several(request_, "mine"), against=request_.out, out=tmp_path / "again")
    with pytest.raises(NotComparableError, match="have no variant in common"):
        timeline_profile(again)


def test_a_variant_that_fails(request_, worker, capsys):
    worker.rejected = {"wrong": failure("row 3 differs")}
    request = several(request_, "wrong", "good")
    assert timeline_profile(request) is ExitCode.CHECK_FAILED == 5
    out = capsys.readouterr().out
    assert "FAILED: wrong: row 3 differs" in out
    assert "A step of good" in out
    assert "host-good.svg" in names_in(request.out)
    assert "host-wrong.svg" not in names_in(request.out)


def test_variants_that_all_fail_have_no_pictures(request_, worker, capsys):
    worker.rejected = {"fused": failure("row 3 differs")}
    as_json = replace(request_, as_json=True)
    assert timeline_profile(as_json) is ExitCode.CHECK_FAILED
    document = json.loads(capsys.readouterr().out)
    assert document["timeline"]["variants"] == {"fused": {"reason": "row 3 differs"}}
    assert names_in(request_.out) == {"profile.md", "timeline.json", "trace.json", "report.html"}


def test_a_step_whose_hosts_calls_are_not_known_has_no_picture_of_them(request_, worker):
    worker.host = None
    timeline_profile(request_)
    assert not [name for name in names_in(request_.out) if name.startswith("host-")]


def test_names_that_are_odd(request_, worker, capsys):
    names = ("v1.2+cu-x_y", "x" * 100)
    timeline_profile(several(request_, *names))
    assert {f"host-{name}.svg" for name in names} < names_in(request_.out)
    out = capsys.readouterr().out
    assert all(name in out for name in names)
    assert [variant.name for variant in read_timeline(request_.out).variants] == list(names)


@pytest.mark.parametrize("name", ["my variant", "../x", "x" * 101])
def test_names_that_no_file_can_have_are_refused_before_anything_runs(request_, worker, name):
    request = several(request_, "fused", name)
    with pytest.raises(UsageError, match="cannot be a file name"):
        timeline_profile(request)
    assert worker.asked == []
    assert not request_.out.exists()


def test_refusals_before_anything_runs(request_, worker, tmp_path):
    config = str(tmp_path / "tiny.yaml")
    refused = [
        (
            {
                "spec": load_config(config, select="one", operations=["step", "apply"]),
                "operations_by_name": True,
            },
            r"one operation, and 2 are chosen: step, apply",
        ),
        (
            {"spec": load_config(config, select="one", operations=["stage"])},
            r"operation 'stage' launches nothing",
        ),
        ({"against": tmp_path}, r"has no timeline.json; expected the folder of a profile"),
        ({"step": 99}, r"step 99: the window of case 'one' has no such step"),
    ]
    for changes, expected in refused:
        with pytest.raises(UsageError, match=expected):
            timeline_profile(replace(request_, **changes))
    worker.hello = Hello("cpu", make_environment("cpu"), None)
    with pytest.raises(UsageError, match=r"are of a GPU, and there is none here"):
        timeline_profile(request_)
    assert worker.asked == []
    assert not request_.out.exists()


def test_the_folder_is_made_where_it_is_asked_for(request_, worker, tmp_path, capsys):
    request = replace(request_, out=None, reports=tmp_path / "kept")
    timeline_profile(request)
    (folder,) = (tmp_path / "kept").iterdir()
    assert folder.name.startswith("profile-tiny-")
    assert f"Profile: {folder}/" in capsys.readouterr().out
