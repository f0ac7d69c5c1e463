"""Merging of the runs of shards: all cases once, in order, from one sweep, or a refusal."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.factories import make_crash, make_environment, make_failed_case, make_gpu
from support.shards import (
    OPERATIONS,
    VARIANTS,
    results_of,
    seconds_of,
    spec_of,
    write_shard,
    write_shards,
)

from bt_bench.base.errors import NotComparableError, UsageError
from bt_bench.config import load_config, planned_cases
from bt_bench.results import Part, Status, Timing, read_division, read_run
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.writing import ResultWriter
from bt_bench.runs.merge.merging import MergeRequest, merge

# The first shard of two has alpha and delta, the second one the others.
SECONDS = {"alpha": 5.0, "beta": 4.0, "gamma": 3.0, "delta": 2.5, "epsilon": 1.0}
NAMES = [*SECONDS]
BALANCE = Timing("earlier", SECONDS)


def merged(folders, out, **options):
    return merge(MergeRequest(folders, out, **options))


@pytest.fixture
def shards(tmp_path):
    """The runs of two shards."""
    return write_shards(tmp_path, spec_of(NAMES), 2, BALANCE)


def refusal(folders, out, kind=NotComparableError, **options):
    """The message of a merge that must not happen, and that must leave nothing behind."""
    before = sorted(out.parent.iterdir())
    with pytest.raises(kind) as caught:
        merged(folders, out, **options)
    assert sorted(out.parent.iterdir()) == before
    return str(caught.value)


def without_part(result):
    return [case.model_copy(update={"part": None}) for case in result.cases]


names = st.lists(st.text("abc", min_size=1, max_size=4), unique=True, min_size=1, max_size=5)


@settings(max_examples=8)
@given(names=names, count=st.integers(1, 3), balanced=st.booleans(), data=st.data())
def test_any_division_merges_in_any_order_to_the_result_of_a_serial_run(
    names, count, balanced, data
):
    spec = spec_of(names)
    timing = Timing("earlier", seconds_of(names)) if balanced else None
    with TemporaryDirectory() as folder:
        place = Path(folder)
        runs = write_shards(place, spec, count, timing)
        shard_of = {case.name: case.shard for case in read_division(runs[0]).cases}
        outs = []
        for number in range(2):
            out = place / "merged"
            merged(data.draw(st.permutations(runs)), out)
            outs.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
            results = read_run(out)
            planned = planned_cases(out)
            out.rename(place / f"kept-{number}")
    assert outs[0] == outs[1]
    assert [result.variant.name for result in results] == [*VARIANTS]
    for result, serial in zip(results, results_of(names), strict=True):
        assert result.complete
        assert without_part(result) == serial.cases
        shards = [result.parts[case.part].shard.index for case in result.cases]
        assert shards == [shard_of[case.case] for case in result.cases]
    assert planned == len(names) * len(OPERATIONS)


def test_the_merged_config_is_that_of_the_whole_sweep(shards, tmp_path):
    merged(shards, tmp_path / "merged")
    assert load_config(tmp_path / "merged" / "config.yaml") == spec_of(NAMES)


def test_each_case_keeps_its_device_calibration_and_run(tmp_path):
    gpus = ["NVIDIA H100", "NVIDIA H200"]
    spec = spec_of(NAMES)
    runs = [
        write_shard(tmp_path / gpu[-4:], spec, index, 2, BALANCE, gpu=gpu)
        for index, gpu in enumerate(gpus, start=1)
    ]
    outcome = merged(runs, tmp_path / "merged")
    assert [each.gpus[0].name for each in outcome.environments] == gpus
    baseline, fused = read_run(tmp_path / "merged")
    assert baseline.run_id == fused.run_id  # measured side by side
    assert baseline.shard is baseline.calibration is None
    for case, other in zip(baseline.cases, fused.cases, strict=True):
        assert case.part == other.part
        shard = 1 if case.case in ("alpha", "delta") else 2
        assert baseline.parts[case.part].run_id == f"made-{shard}"
        assert baseline.environment_of(case.part).gpus[0].name == gpus[shard - 1]
        calibration = baseline.calibration_of(case.part)
        assert calibration.samples("empty_call") == [0.05 + shard / 1000]


def test_a_shard_that_several_devices_measured_keeps_each(tmp_path):
    def of_two(result):
        parts = [
            Part(
                run_id=result.run_id,
                created=result.created,
                tool=result.tool,
                environment=make_environment(gpus=[make_gpu(name)]),
                calibration=None,
            )
            for name in ("NVIDIA H100", "NVIDIA H200")
        ]
        cases = [
            case.model_copy(update={"part": int(case.case == "delta")}) for case in result.cases
        ]
        return result.model_copy(update={"parts": parts, "cases": cases, "calibration": None})

    spec = spec_of(NAMES)
    runs = [
        write_shard(tmp_path / "1", spec, 1, 2, BALANCE, changed=of_two),
        write_shard(tmp_path / "2", spec, 2, 2, BALANCE, gpu="NVIDIA L40S"),
    ]
    outcome = merged(runs, tmp_path / "merged")
    assert [shard.text for shard in outcome.header.shards] == ["1/2", "2/2"]
    (baseline, _) = read_run(tmp_path / "merged")
    assert [baseline.part_name(part) for part in baseline.part_numbers] == [
        "shard 1/2 on device 1",
        "shard 1/2 on device 2",
        "shard 2/2",
    ]
    found = {case.case: baseline.environment_of(case.part).gpus[0].name for case in baseline.cases}
    rest = dict.fromkeys(["beta", "gamma", "epsilon"], "NVIDIA L40S")
    assert found == {"alpha": "NVIDIA H100", "delta": "NVIDIA H200"} | rest


def test_crashes_and_statuses_are_kept(shards, tmp_path):
    for number, folder in enumerate(shards):
        result, *_ = read_run(folder)
        crashed = result.model_copy(update={"crashes": [make_crash(f"step/{number}")]})
        failed = make_failed_case(result.cases[0].case, OPERATIONS[0])
        cases = [failed, *crashed.cases[1:]]
        rewrite(folder, crashed.model_copy(update={"cases": cases}))
    outcome = merged(shards, tmp_path / "merged")
    assert outcome.statuses == {Status.OK: 18, Status.FAILED: 2}
    baseline, _ = read_run(tmp_path / "merged")
    assert [crash.during for crash in baseline.crashes] == ["step/0", "step/1"]


def rewrite(folder, result):
    """Replace a result file, as a run would write it."""
    writer = ResultWriter(RunFolder(folder), result)
    writer.close(result.complete)


def test_a_missing_shard_is_named_with_its_cases(shards, tmp_path):
    message = refusal(shards[:1], tmp_path / "merged")
    assert "shard 2/2 is missing: 3 cases: " in message
    assert "--allow-partial" in message


def test_a_dropped_case_is_named(shards, tmp_path):
    result, _ = read_run(shards[0])
    dropped = result.cases[1]
    cases = [case for case in result.cases if case != dropped]
    rewrite(shards[0], result.model_copy(update={"cases": cases}))
    message = refusal(shards, tmp_path / "merged")
    assert message.startswith(
        f"shard 1/2 in {shards[0]} lacks of variant baseline: 1 case: {dropped.key}\n"
    )


def test_a_missing_variant_is_named(shards, tmp_path):
    (shards[1] / "fused.json").unlink()
    assert "lacks of variant fused: 6 cases: " in refusal(shards, tmp_path / "merged")


def test_a_partial_result_is_marked(shards, tmp_path):
    outcome = merged(shards[1:], tmp_path / "merged", allow_partial=True)
    assert [line.split(":")[0] for line in outcome.missing] == ["shard 1/2 is missing"]
    results = read_run(tmp_path / "merged")
    assert not any(result.complete for result in results)
    assert {len(result.cases) for result in results} == {6}


def test_a_shard_that_was_killed_is_merged_from_its_journal(shards, tmp_path):
    result, fused = read_run(shards[0])
    for each in (result, fused):
        writer = ResultWriter(RunFolder(shards[0]), each.model_copy(update={"complete": False}))
        del writer  # as if the process was killed: never closed
    merged(shards, tmp_path / "merged")
    baseline, _ = read_run(tmp_path / "merged")
    assert baseline.complete
    assert without_part(baseline) == results_of(NAMES)[0].cases


def test_packed_results_and_other_layouts_are_merged_likewise(shards, tmp_path):
    merged(shards, tmp_path / "as_written")
    path = shards[0] / "baseline.json"
    (shards[0] / "baseline.json.xz").write_bytes(lzma.compress(path.read_bytes()))
    path.unlink()
    fused = shards[1] / "fused.json"
    fused.write_text(json.dumps(json.loads(fused.read_text()), indent=1))
    merged(shards, tmp_path / "merged")
    one, other = (read_run(tmp_path / place) for place in ("as_written", "merged"))
    assert [result.cases for result in one] == [result.cases for result in other]


def test_a_shard_without_a_case_may_be_given_or_left_out(tmp_path):
    spec = spec_of(["alone"])
    runs = write_shards(tmp_path, spec, 3)
    merged(runs, tmp_path / "all")
    merged([run for run in runs if RunFolder(run).result_paths()], tmp_path / "some")
    assert [len(result.cases) for result in read_run(tmp_path / "all")] == [2, 2]
    assert read_run(tmp_path / "all")[0].cases == read_run(tmp_path / "some")[0].cases


def test_a_shard_twice_is_refused(shards, tmp_path):
    copy = shutil.copytree(shards[0], tmp_path / "copy")
    message = refusal([*shards, copy], tmp_path / "merged", UsageError)
    assert f"{copy} and {shards[0]} are both shard 1/2 and are copies of one run: case " in message


def test_a_case_twice_in_one_file_is_refused(shards, tmp_path):
    path = shards[0] / "fused.json"
    lines = path.read_text().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if line.startswith('    {"key"'))
    path.write_text("".join([*lines[:number], lines[number], *lines[number:]]))
    message = refusal(shards, tmp_path / "merged", UsageError)
    assert f"{path} is damaged: it has the case 'gather_slots/" in message
    assert message.endswith("twice")


def test_a_case_of_another_shard_is_refused(shards, tmp_path):
    result, _ = read_run(shards[0])
    stranger = read_run(shards[1])[0].cases[0]
    rewrite(shards[0], result.model_copy(update={"cases": [*result.cases, stranger]}))
    message = refusal(shards, tmp_path / "merged", UsageError)
    assert f"has a case {stranger.key!r}, which is not of its shard" in message


def changed_environment(*device, **changes):
    return lambda result: result.model_copy(
        update={"environment": make_environment(*device, **changes)}
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            lambda result: result.model_copy(update={"plan": result.plan.model_copy(
                update={"rounds": 4})}),
            "plan.rounds: 3 in {0}/baseline.json, 4 in {1}/baseline.json",
        ),
        (
            lambda result: result.model_copy(update={"variant": result.variant.model_copy(
                update={"source_sha256": "cd" * 32})}),
            "variant.source_sha256: ",
        ),
        (
            lambda result: result.model_copy(update={"schema_version": 2}),
            "schema_version: 3 in {0}/baseline.json, 2 in {1}/baseline.json",
        ),
        (
            lambda result: result.model_copy(update={"tool": result.tool.model_copy(
                update={"version": "9.9"})}),
            "tool.version: '0.1.0' in {0}/baseline.json, '9.9' in {1}/baseline.json",
        ),
        (
            changed_environment(torch="2.99"),
            "environment.torch: '2.11.0' in {0}/baseline.json, '2.99' in {1}/baseline.json",
        ),
        (changed_environment(commit="fedcba"), "environment.commit: "),
        (changed_environment("cpu"), "environment.device: 'cuda' in {0}/baseline.json, 'cpu' in"),
    ],
)  # fmt: skip
def test_another_plan_source_schema_or_version_is_refused(tmp_path, changed, message):
    spec = spec_of(NAMES)
    runs = [
        write_shard(tmp_path / "1", spec, 1, 2, BALANCE),
        write_shard(tmp_path / "2", spec, 2, 2, BALANCE, changed=changed),
    ]
    assert message.format(*runs) in refusal(runs, tmp_path / "merged")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            spec_of(NAMES, operations=OPERATIONS[:1]),
            "operations: ['gather_slots', 'step'] in {0}/config.yaml, ['gather_slots'] in {1}",
        ),
        (spec_of(NAMES, description="another"), "description: '' in {0}/config.yaml, 'another'"),
        (spec_of(NAMES[:-1]), "case 'epsilon': 'there' in {0}/shards.jsonl, 'not there' in {1}"),
        (spec_of(NAMES[::-1]), "digest of the parameters of case 'alpha': "),
        (
            spec_of(NAMES, cases=spec_of(NAMES).cases[::-1]),
            "case number 1: 'alpha' in {0}/shards.jsonl, 'epsilon' in {1}/shards.jsonl",
        ),
    ],
)
def test_another_config_is_refused(tmp_path, other, message):
    runs = [
        write_shard(tmp_path / "1", spec_of(NAMES), 1, 2, BALANCE),
        write_shard(tmp_path / "2", other, 2, 2, BALANCE),
    ]
    assert message.format(*runs) in refusal(runs, tmp_path / "merged")


def test_another_division_is_refused(tmp_path):
    spec = spec_of(NAMES)
    runs = [
        write_shard(tmp_path / "1", spec, 1, 2),
        write_shard(tmp_path / "2", spec, 2, 2, BALANCE),
    ]
    message = refusal(runs, tmp_path / "merged")
    assert f"division: 'by hash' in {runs[0]}/shards.jsonl, 'earlier' in {runs[1]}" in message
    runs[1] = write_shard(tmp_path / "3", spec, 2, 3)
    message = refusal(runs, tmp_path / "merged")
    assert f"number of shards: 2 in {runs[0]}/shards.jsonl, 3 in {runs[1]}" in message


def test_a_run_that_is_no_shard_or_is_merged_is_refused(shards, tmp_path):
    merged(shards, tmp_path / "merged")
    message = refusal([tmp_path / "merged"], tmp_path / "again", UsageError)
    assert "merged is merged already" in message
    (shards[0] / "shards.jsonl").unlink()
    message = refusal(shards, tmp_path / "again", UsageError)
    assert "shard-1 has no shards.jsonl: it is no shard; expected the folder of a run of" in message


def test_a_damaged_division_is_refused(shards, tmp_path):
    path = shards[0] / "shards.jsonl"
    path.write_text(path.read_text().replace('"alpha"', '"omega"'))
    message = refusal(shards, tmp_path / "merged", UsageError)
    assert f"{path} is damaged: its cases do not have the digest in its first line" in message


def test_a_damaged_case_is_refused(shards, tmp_path):
    path = shards[1] / "baseline.json"
    path.write_text(path.read_text().replace('"unit":"us"', '"unit":"ms"', 1))
    assert str(path) in refusal(shards, tmp_path / "merged", UsageError)


def test_an_existing_folder_is_never_overwritten(shards, tmp_path):
    (tmp_path / "merged").mkdir()
    message = refusal(shards, tmp_path / "merged", UsageError)
    assert "exists, and a run is never overwritten" in message
