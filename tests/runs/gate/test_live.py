"""A gate on two revisions: what is timed, what is not, and what is said of either."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from support import fake_rounds
from support.factories import make_environment
from support.fake_gpus import environment_of
from support.repositories import commit, repository, write
from support.tiny_gates import Impatient, Quiet, spec_of

from bt_bench.analysis.deciding import exit_code
from bt_bench.analysis.verdicts import Cause, Verdict
from bt_bench.base.errors import ExitCode, NotComparableError, UsageError
from bt_bench.report.formats.github_format import render_github
from bt_bench.report.formats.json_format import render_json
from bt_bench.report.formats.md_format import render_md
from bt_bench.report.formats.table_format import render_table
from bt_bench.results.gate.recording import read_recording, write_recording
from bt_bench.results.run.conditions import Condition, Harm
from bt_bench.runs.gate.live import GateRequest, prepare, run_live_gate
from bt_bench.runs.gate.lost import Lost
from bt_bench.runs.gate.recorded import judge_recording
from bt_bench.runs.gate.trees import Location, Tree
from bt_bench.suites.block_tables import operations as ops
from bt_bench.worker import WorkerError, leased
from bt_bench.worker.tasks.tasks import MeasureRound


@pytest.fixture(autouse=True)
def own_claims(tmp_path, monkeypatch):
    """Other tests on this host have GPUs of the same names."""
    tmp_path.chmod(0o777)
    monkeypatch.setattr("bt_bench.base.claims.FOLDERS", (tmp_path,))


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    """Workers in this process: that they are processes of their own is tested elsewhere."""
    monkeypatch.setattr("bt_bench.runs.gate.sides.Supervisor", fake_rounds.InProcess)


FILE = '"""A variant that nobody imports."""\n'


def tree(folder, label, script):
    """A revision whose variants follow a script; the files are there, and never imported."""
    files = {f"mine/{name}.py": FILE for name in script} | {"mine/script.json": json.dumps(script)}
    write(folder, files)
    return Tree(label, "0" * 40, False, folder, Location(folder, None, (Path("mine"),)))


def request_of(tmp_path, base, head, **changes):
    old, new = tree(tmp_path / "a", "old", base), tree(tmp_path / "b", "new", head)
    request = GateRequest(
        spec=spec_of(sorted(base | head)),
        base=old,
        head=new,
        device="cpu",
        serve=fake_rounds.serve,
        recording=tmp_path / "recording.json",
        patterns=("stage_us",),  # what is counted has tests of its own
        looks=(4,),
        workers=6,
        time_equal=True,
    )
    return replace(request, **changes)


def with_spec(request, **changes):
    return replace(request, spec=request.spec.model_copy(update=changes))


def verdicts(judged):
    return {j.other.partition("@")[0]: (j.verdict, j.cause) for j in judged.judgements}


def test_a_slower_variant_is_found_and_an_equal_one_is_not(tmp_path):
    base = {"one": {"us": 100.0}, "two": {"us": 100.0}}
    head = {"one": {"us": 100.0}, "two": {"us": 110.0}}
    progress = Quiet()
    request = request_of(tmp_path, base, head, looks=(6,))
    judged = run_live_gate(request, progress)
    assert verdicts(judged) == {
        "one": (Verdict.SAME, Cause.WITHIN_MARGIN),
        "two": (Verdict.SLOWER, Cause.BEYOND_MARGIN),
    }
    assert judged.title == "Gate tiny: new against old"
    host = make_environment("cpu").cpu
    assert judged.subject == f"1 case without a GPU, {host}"
    assert judged.others == ("one@new", "two@new")
    assert "nothing but staging" not in " ".join(judged.facts)
    recording = read_recording(request.recording)
    assert len(recording.rounds) == 6
    expected, *said = progress.said
    assert re.fullmatch(
        r"this gate takes about \d+( \w+)? to \d+ \w+ for 6 to 12 rounds, an estimate", expected
    )
    assert said == ["after 6 rounds: 1 SLOWER, 1 SAME"]
    assert (progress.totals, progress.done) == (["6 processes"], 6)


@pytest.fixture
def in_a_container(monkeypatch):
    """Workers find these limits, or what else is given, in their environment."""

    def found(**changes):
        monkeypatch.setattr(
            fake_rounds,
            "make_environment",
            lambda device, **fields: make_environment(device, **(fields | changes)),
        )

    return found


def test_a_gate_in_a_container_says_its_limits_and_records_them(tmp_path, in_a_container):
    in_a_container(cpu_count=192, cpu_quota=2.0, memory_limit_bytes=8 * 2**30)
    script = {"one": {"us": 100.0, "stops": 2}}
    request = request_of(tmp_path, script, script)
    judged = run_live_gate(request, Quiet())
    assert judged.facts[0] == (
        "Control groups limit the process to 2 CPUs (the host has 192) and to 8.000 GiB of memory."
    )
    assert any("CPU quota stopped 4 of 4 processes" in text for text in judged.warnings)
    environment = read_recording(request.recording).environment
    assert (environment.cpu_quota, environment.memory_limit_bytes) == (2.0, 8 * 2**30)


def test_where_something_makes_times_false_a_gate_times_nothing(tmp_path, in_a_container):
    condition = Condition(
        name="CUDA_LAUNCH_BLOCKING=1", effect="launches wait", remedy="unset it", harm=Harm.FALSE
    )
    in_a_container(conditions=[condition])
    script = {"one": {"us": 100.0}}
    request = request_of(tmp_path, script, script)
    with pytest.raises(UsageError, match="CUDA_LAUNCH_BLOCKING=1: launches wait; unset it"):
        run_live_gate(request, Quiet())
    assert not request.recording.exists()


def test_a_case_has_its_own_margin(tmp_path):
    base, head = {"one": {"us": 100.0}}, {"one": {"us": 110.0}}
    request = request_of(tmp_path, base, head)
    case = request.spec.cases[0].model_copy(update={"margin_percent": 20.0})
    judged = run_live_gate(with_spec(request, cases=[case]), Quiet())
    assert verdicts(judged) == {"one": (Verdict.SAME, Cause.WITHIN_MARGIN)}
    assert judged.judgements[0].evidence.margin.configured == 0.2


def test_a_variant_on_one_side_only_is_missing(tmp_path):
    script = {"us": 100.0}
    request = request_of(tmp_path, {"one": script, "gone": script}, {"one": script, "new": script})
    judged = run_live_gate(request, Quiet())
    found = {j.other.partition("@")[0]: (j.verdict, j.detail) for j in judged.judgements}
    assert found["gone"] == (Verdict.MISSING, "new has no variant gone")
    assert found["new"] == (Verdict.MISSING, "old has no variant new")
    assert found["one"][0] is Verdict.SAME


def test_nothing_in_common_is_not_comparable(tmp_path):
    request = request_of(tmp_path, {"one": {"us": 1.0}}, {"two": {"us": 1.0}})
    with pytest.raises(NotComparableError, match="old and new have no variant in common of one, "):
        prepare(request)


def test_a_variant_that_neither_has(tmp_path):
    request = request_of(tmp_path, {"one": {"us": 1.0}}, {"one": {"us": 1.0}})
    with pytest.raises(UsageError, match="unknown variant 'noe'; did you mean 'one'"):
        prepare(with_spec(request, variants=["one", "noe"]))


@pytest.mark.parametrize("where", ["check", "prepare", "measure"])
def test_a_crash_that_does_not_come_back_is_a_warning(tmp_path, where):
    base = {"one": {"us": 100.0}}
    head = {"one": {"us": 100.0, "fault": f"crashes_once {where}"}}
    judged = run_live_gate(request_of(tmp_path, base, head), Quiet())
    assert verdicts(judged) == {"one": (Verdict.SAME, Cause.WITHIN_MARGIN)}
    (warning,) = judged.warnings
    assert warning.startswith("new: one, ")
    assert warning.endswith("it died; it did not happen again when that was repeated")


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("check one", "new: slot 3 is 17"),
        ("check conformance:corners", "new: conformance:corners: slot 3 is 17"),
        ("raises measure", "new: while measured: no luck"),
    ],
)
def test_a_variant_that_is_wrong_or_fails_gets_no_verdict(tmp_path, fault, why):
    base = {"bad": {"us": 100.0}, "good": {"us": 100.0}}
    head = base | {"bad": {"us": 50.0, "fault": fault}}
    judged = run_live_gate(request_of(tmp_path, base, head), Quiet())
    bad, good = judged.judgements
    assert (bad.verdict, bad.cause, bad.detail) == (Verdict.INVALID, Cause.FAILED, why)
    assert good.verdict is Verdict.SAME


@pytest.mark.parametrize(
    ("old", "new", "metrics", "code"),
    [
        (["jit"], ["jit", "direct"], ["host_us"], ExitCode.OK),
        (["jit"], ["jit"], ["host_us"], ExitCode.OK),
        (["jit", "direct"], ["jit"], ["host_us", "host_us/direct"], ExitCode.NOT_COMPARABLE),
    ],
    ids=["came", "never_there", "went"],
)
def test_a_launch_path_may_come_and_must_not_go(tmp_path, old, new, metrics, code):
    base, head = ({"one": {"us": 100.0, "paths": paths}} for paths in (old, new))
    wanted = ("host_us", "host_us/direct")
    request = request_of(tmp_path, base, head, device="cuda", patterns=wanted)
    judged = run_live_gate(with_spec(request, operations=[ops.STEP]), Quiet())
    assert [judgement.metric for judgement in judged.judgements] == metrics
    assert exit_code(judged) is code
    said = "one@old does not have launch path direct: host_us/direct of 1 case cannot be compared."
    assert (said in judged.facts) == ("direct" not in old)


@pytest.mark.parametrize("without", ["old", "new"])
def test_a_case_that_one_side_does_not_support_is_missing(tmp_path, without):
    able = {"mine": {"us": 100.0}, "good": {"us": 100.0}}
    unable = able | {"mine": {"us": 100.0, "fault": "lacks one"}}
    sides = (unable, able) if without == "old" else (able, unable)
    judged = run_live_gate(request_of(tmp_path, *sides), Quiet())
    good, mine = judged.judgements
    assert (mine.verdict, mine.cause, mine.detail) == (
        Verdict.MISSING,
        Cause.NO_CASE,
        f"{without} lacks windows",
    )
    assert good.verdict is Verdict.SAME


def test_a_case_that_neither_side_supports_is_told_and_not_judged(tmp_path):
    both = {"mine": {"us": 100.0, "fault": "lacks one"}, "good": {"us": 100.0}}
    judged = run_live_gate(request_of(tmp_path, both, both), Quiet())
    assert verdicts(judged) == {"good": (Verdict.SAME, Cause.WITHIN_MARGIN)}
    assert "mine is not run on one: it lacks windows, in both revisions." in judged.facts


def test_a_feature_that_no_case_needs_is_not_missed(tmp_path):
    both = {"mine": {"us": 100.0, "fault": "lacks conformance:corners"}}
    judged = run_live_gate(request_of(tmp_path, both, both), Quiet())
    assert verdicts(judged) == {"mine": (Verdict.SAME, Cause.WITHIN_MARGIN)}


def test_where_all_variants_are_wrong_nothing_is_timed(tmp_path):
    base, head = {"bad": {"us": 1.0}}, {"bad": {"us": 1.0, "fault": "check one"}}
    request = request_of(tmp_path, base, head)
    judged = run_live_gate(request, Quiet())
    assert verdicts(judged) == {"bad": (Verdict.INVALID, Cause.FAILED)}
    assert not request.recording.exists()


def test_equal_trees_are_not_timed(tmp_path, monkeypatch):
    """One process imports the variants, of whichever tree."""
    both = {"one": {"us": 100.0}, "two": {"us": 100.0}}
    request = request_of(tmp_path, both, both, time_equal=False)
    started = []
    real = fake_rounds.InProcess.start
    monkeypatch.setattr(
        fake_rounds.InProcess, "start", lambda worker: (started.append(worker), real(worker))
    )
    judged = run_live_gate(request, Quiet())
    assert len(started) == 1
    assert verdicts(judged) == dict.fromkeys(both, (Verdict.SAME, Cause.EQUAL_CODE))
    assert not request.recording.exists()
    assert any(fact.startswith("Nothing is measured, since the trees are") for fact in judged.facts)


@pytest.mark.parametrize("name", ["mine/_helper.py", "mine/tuning.json", "lib.so", "unrelated"])
def test_trees_that_differ_are_timed(tmp_path, name):
    """Whatever it is that differs: what a variant uses cannot be listed."""
    both = {"one": {"us": 100.0}}
    request = request_of(tmp_path, both, both, time_equal=False)
    write(tmp_path / "a", {name: "1"})
    write(tmp_path / "b", {name: "2"})
    judged = run_live_gate(request, Quiet())
    assert verdicts(judged) == {"one": (Verdict.SAME, Cause.WITHIN_MARGIN)}
    assert f"Everything is measured, since the trees differ: {name}." in judged.facts


def test_what_was_built_is_timed(tmp_path):
    both = {"one": {"us": 100.0}}
    request = request_of(tmp_path, both, both, time_equal=False, built=True)
    judged = run_live_gate(request, Quiet())
    assert verdicts(judged) == {"one": (Verdict.SAME, Cause.WITHIN_MARGIN)}


def test_each_side_has_its_own_tree(tmp_path):
    both = {"one": {"us": 100.0}}
    sides = prepare(request_of(tmp_path, both, both)).rounds.sides
    found = {arm.value: side.isolation for arm, side in sides.items()}
    caches = {isolation.caches for isolation in found.values()}
    assert len(caches) == 3  # what is built is no two arms'
    assert replace(found["control"], caches=found["base"].caches) == found["base"]
    for name, tree, other in (("base", "a", "b"), ("head", "b", "a")):
        assert found[name].own == tmp_path / tree
        assert found[name].others[0][1] == tmp_path / other
        assert found[name].repository == tmp_path / "b"


def counted(tmp_path, base, head, **changes):
    """A gate without a GPU on two operations that launch, which takes all metrics."""
    request = request_of(tmp_path, base, head, **{"patterns": (), **changes})
    return with_spec(request, operations=[ops.STEP, ops.GATHER])


def figures(judged):
    return {(str(j.operation), j.metric): (j.verdict, j.cause) for j in judged.judgements}


def test_without_a_gpu_staging_is_timed_launches_are_counted_and_what_is_unseen_is_said_first(
    tmp_path,
):
    both = {"one": {"us": 100.0, "launches": 3}}
    progress = Quiet()
    judged = run_live_gate(counted(tmp_path, both, both), progress)
    same = Verdict.SAME, Cause.EXACT
    assert figures(judged) == {
        ("stage", "stage_us"): (Verdict.SAME, Cause.WITHIN_MARGIN),
        ("stage", "launches"): same,
        ("step", "launches"): same,
        ("gather", "launches"): same,
    }
    assert judged.unseen == (
        "No GPU: kernels are interpreted, launches are counted, and only staging on the host is "
        "timed. How long kernels and their launches take goes unseen."
    )
    assert progress.said[0] == judged.unseen
    assert render_table(judged).splitlines()[1].startswith("No GPU: ")
    assert render_github(judged).startswith("::warning title=bt-bench::No GPU: ")


@pytest.mark.parametrize(
    ("before", "after", "verdict", "code"),
    [
        (3, 5, Verdict.SLOWER, ExitCode.REGRESSION),
        (5, 3, Verdict.FASTER, ExitCode.OK),
        (0, 1, Verdict.SLOWER, ExitCode.REGRESSION),
        (0, 0, Verdict.SAME, ExitCode.OK),
    ],
)
def test_without_a_gpu_a_launch_more_is_a_regression(tmp_path, before, after, verdict, code):
    """However noisy staging is: a count needs no statistics."""
    base, head = ({"one": {"us": 100.0, "launches": count}} for count in (before, after))
    judged = run_live_gate(counted(tmp_path, base, head), Quiet())
    (step,) = [j for j in judged.judgements if (j.operation, j.metric) == (ops.STEP, "launches")]
    assert (step.verdict, step.cause) == (verdict, Cause.EXACT)
    assert (step.base_value, step.other_value) == (before, after)
    assert exit_code(judged) is code
    if before and after != before:
        assert step.detail == f"{2 * before} → {2 * after} kernel copy, in all 2 steps together"


def test_a_head_that_launches_nothing_any_more_is_not_faster(tmp_path):
    """As in a static gate: only a GPU shows whether it still does its work there."""
    base, head = ({"one": {"us": 100.0, "launches": count}} for count in (3, 0))
    judged = run_live_gate(counted(tmp_path, base, head), Quiet())
    assert figures(judged)["step", "launches"] == (Verdict.INVALID, Cause.FAILED)
    assert exit_code(judged) is ExitCode.CHECK_FAILED


def test_metrics_choose_what_is_counted_too(tmp_path):
    base, head = ({"one": {"us": us, "launches": 3}} for us in (100.0, 300.0))
    judged = run_live_gate(counted(tmp_path, base, head, patterns=("launches",)), Quiet())
    assert set(figures(judged)) == {(op, "launches") for op in ("stage", "step", "gather")}
    judged = run_live_gate(counted(tmp_path, base, head, patterns=("stage_us",)), Quiet())
    assert set(figures(judged)) == {("stage", "stage_us")}
    assert "launches are counted" not in judged.unseen


def test_without_a_gpu_what_fails_while_it_is_counted_is_invalid(tmp_path):
    base = {"one": {"us": 100.0}, "two": {"us": 100.0}}
    head = base | {"one": {"us": 100.0, "fault": "raises count"}}
    judged = run_live_gate(counted(tmp_path, base, head), Quiet())
    of_one = [j for j in judged.judgements if j.other == "one@new"]
    assert {(j.verdict, j.detail) for j in of_one} == {
        (Verdict.INVALID, "new: while countd: no luck")
    }
    of_two = [j for j in judged.judgements if j.other == "two@new"]
    assert {j.verdict for j in of_two} == {Verdict.SAME}


def test_without_a_gpu_what_the_config_has_lost_is_missing_in_each_metric(tmp_path):
    both = {"one": {"us": 100.0}}
    places = ((ops.APPLY, "one", "one"), (ops.STAGE, "one", "one"), (ops.STEP, "gone", "one"))
    judged = run_live_gate(counted(tmp_path, both, both, lost=Lost(places)), Quiet())
    missing = {
        (str(j.operation), j.case, j.metric)
        for j in judged.judgements
        if j.verdict is Verdict.MISSING
    }
    # Staging of the case that is left is measured all the same.
    assert missing == {
        ("apply", "one", "launches"),
        ("step", "gone", "launches"),
        ("stage", "gone", "launches"),
        ("stage", "gone", "stage_us"),
    }


def test_a_lost_operation_without_a_metric_that_is_asked_for_is_no_error(tmp_path):
    both = {"one": {"us": 100.0}}
    lost = Lost(((ops.STAGE, "one", "one"),))
    request = request_of(tmp_path, both, both, device="cuda", patterns=("host_us",), lost=lost)
    judged = run_live_gate(with_spec(request, operations=[ops.STEP]), Quiet())
    assert [j.metric for j in judged.judgements] == ["host_us"]


def test_a_variant_that_is_one_file_for_both_revisions_can_never_fail(tmp_path):
    """As an installed one is, or a link to a file of neither tree."""
    both = {"one": {"us": 100.0}, "two": {"us": 100.0}}
    write(tmp_path / "else", {"one.py": FILE})
    request = request_of(tmp_path, both, both)
    for side in "ab":
        (tmp_path / side / "mine/one.py").unlink()
        (tmp_path / side / "mine/one.py").symlink_to(tmp_path / "else/one.py")
    said = f"Both revisions run the file of one in {tmp_path}/else, so verdicts on them cannot"
    assert prepare(request).facts[-1].startswith(said)
    with pytest.raises(NotComparableError, match=r"old and new both run the file of one in .*else"):
        prepare(with_spec(request, variants=["one"]))
    with pytest.raises(NotComparableError, match=r"the files of fused, .*: it has one, two$"):
        prepare(with_spec(request, variants=["fused", "baseline"]))


def test_an_interrupted_gate_keeps_the_rounds_that_it_has(tmp_path):
    both = {"one": {"us": 100.0}}
    request = replace(request_of(tmp_path, both, both), workers=2)
    with pytest.raises(KeyboardInterrupt):
        run_live_gate(request, Impatient(3))
    assert len(read_recording(request.recording).rounds) == 3


def on_gpus(tmp_path, *gpus):
    base = {"one": {"us": 100.0}, "two": {"us": 100.0}}
    head = {"one": {"us": 100.0}, "two": {"us": 110.0}}
    options = {"device": gpus[0], "others": gpus[1:], "patterns": ("host_us",), "looks": (6,)}
    request = request_of(tmp_path, base, head, **options)
    return with_spec(request, operations=[ops.STEP])


def test_several_gpus_come_to_the_verdicts_of_one(tmp_path):
    both, one = (
        on_gpus(tmp_path / str(len(gpus)), *gpus) for gpus in (("GPU-a", "GPU-b"), ("GPU-a",))
    )
    judged, serial = run_live_gate(both, Quiet()), run_live_gate(one, Quiet())
    assert judged.judgements == serial.judgements
    fact = (
        "The rounds were divided among GPU-a and GPU-b: each was measured on one of them, base, "
        "head and control in turns."
    )
    assert [each for each in judged.facts if each not in serial.facts] == [fact]
    recording = read_recording(both.recording)
    assert [taken.device for taken in recording.rounds] == [0, 1] * 3
    assert [each.gpu_label for each in recording.others] == ["GPU-b"]
    again = judge_recording(recording)
    assert verdicts(again) == verdicts(serial)
    assert fact in again.facts
    of_b = [each.model_copy(update={"device": 1}) for each in recording.rounds]
    lost_a = judge_recording(recording.model_copy(update={"rounds": of_b}))
    assert lost_a.facts[again.facts.index(fact)].startswith("All rounds were measured on GPU-b: no")
    changed = recording.model_copy(update={"others": []})
    with pytest.raises(ValueError, match=r"rounds\[1\].device is 1; expected one of 1, counted"):
        write_recording(tmp_path / "changed.json", changed)


def test_the_estimate_counts_the_gpus(tmp_path):
    def expected(*gpus, metric):
        request = on_gpus(tmp_path / f"{metric}{len(gpus)}", *gpus)
        request = replace(request, patterns=(metric,), looks=(1000,), limit=1000, workers=24)
        words = prepare(request).expected.split()
        return float(words[1]) * {"hours": 60, "minutes": 1}[words[2]]

    eight = [f"GPU-{number}" for number in range(8)]
    assert expected(*eight, metric="gpu_us") < 0.7 * expected("GPU-0", metric="gpu_us")
    assert expected(*eight, metric="host_us") > 0.7 * expected("GPU-0", metric="host_us")


def test_a_gpu_that_was_lost_is_in_the_report_with_the_rounds_that_were_measured_anew(
    tmp_path, monkeypatch
):
    run = fake_rounds.InProcess.run

    def falls_off(worker, task, arms, watcher=None):
        if isinstance(task, MeasureRound) and worker._setup.device == "GPU-b":
            raise WorkerError("no GPU\nto run on")
        return run(worker, task, arms, watcher)

    monkeypatch.setattr(fake_rounds.InProcess, "run", falls_off)
    judged = run_live_gate(on_gpus(tmp_path, "GPU-a", "GPU-b"), Quiet())
    lost = (
        "GPU-b was given up, with 3 rounds of it measured anew on another device: no GPU to run on"
    )
    assert judged.warnings == (lost,)
    assert lost in render_json(judged)
    assert lost in " ".join(render_md(judged).split())


def test_gpus_of_two_models_are_refused(tmp_path, monkeypatch):
    def other(uuid):
        return environment_of(uuid, "NVIDIA H100" if uuid == "b" else "NVIDIA H200")

    monkeypatch.setattr("support.fake_rounds.environment_of", other)
    with pytest.raises(NotComparableError, match="--gpus names NVIDIA H200 and NVIDIA H100: the"):
        run_live_gate(on_gpus(tmp_path, "GPU-a", "GPU-b"), Quiet())


def test_a_gate_has_its_gpus_to_itself_from_its_checks_to_its_last_round(tmp_path):
    class Second(Quiet):
        """A second gate begins whenever the first one enters a phase."""

        def phase(self, what, of=""):
            super().phase(what)
            if len(self.phases) > 2:
                with (
                    pytest.raises(UsageError, match="GPU-b is in use by process"),
                    leased([environment_of("b")], print, shared=True),
                ):
                    pass

    progress = Second()
    run_live_gate(on_gpus(tmp_path, "GPU-a", "GPU-b"), progress)
    assert len(progress.phases) > 4
    with leased([environment_of("a"), environment_of("b")], print):
        with pytest.raises(UsageError, match="GPU-a is in use by process"):
            run_live_gate(on_gpus(tmp_path / "2", "GPU-a"), Quiet())
        with pytest.raises(UsageError, match="--gpus names GPU-c twice"):
            run_live_gate(on_gpus(tmp_path / "3", "GPU-c", "GPU-c"), Quiet())


def test_revisions_are_told_apart_in_a_real_repository(tmp_path):
    """From the worktree of the base come the base's files, from the checkout the head's."""
    from bt_bench.runs.gate.checkouts import base_tree, copied
    from bt_bench.runs.gate.trees import locate, working_tree

    top = repository(
        tmp_path / "repo",
        {"mine/one.py": FILE, "mine/script.json": json.dumps({"one": {"us": 100.0}})},
    )
    commit(top, "base")
    write(top, {"mine/script.json": json.dumps({"one": {"us": 150.0}})})
    location = locate(top, [top / "mine"])
    with base_tree(location, "HEAD") as old:
        template = request_of(tmp_path / "other", {"one": {"us": 1.0}}, {"one": {"us": 1.0}})
        head = copied(working_tree(location), old)
        request = replace(template, base=old, head=head)
        judged = run_live_gate(request, Quiet())
    assert Counter(j.verdict for j in judged.judgements) == {Verdict.SLOWER: 1}
    assert judged.judgements[0].ratio == pytest.approx(1.5, rel=0.01)
    assert judged.judgements[0].other == "one@working tree"
    assert "with changes" in judged.facts[1] + judged.facts[2]
