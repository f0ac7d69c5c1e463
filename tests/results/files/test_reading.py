"""Run folders, and result files as they are written and read."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import lzma
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support import scenarios
from support.factories import make_calibration, make_case, make_failed_case, make_result

import bt_bench.base.atomic
import bt_bench.results.files.reading
from bt_bench.base.errors import UsageError
from bt_bench.base.files import write_text
from bt_bench.results.files.compact import read_compact, read_compact_run
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.reading import read_result, read_run, read_written, result_schema
from bt_bench.results.files.writing import ResultWriter, write_result
from bt_bench.results.run.case import CaseResult
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.soundness import LEAST_TIME_US, MOST_TIME_US

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create_exact(tmp_path / "run")


# Run folders


def test_create_names_the_folder_after_config_and_utc_time(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "new" / "reports", "quick", NOW)
    assert folder.path == tmp_path / "new" / "reports" / "quick-20260102T030405Z"
    assert folder.path.is_dir()
    assert folder.comparison_path == folder.path / "comparison.md"


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path) -> None:
    names = [RunFolder.create(tmp_path, "quick", NOW).path.name for _ in range(3)]
    assert names == [f"quick-20260102T030405Z{suffix}" for suffix in ("", "-2", "-3")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("../../etc", "etc"), ("a b/c", "a-b-c"), ("", "run"), ("...", "run"), ("x" * 500, "x" * 100)],
)
def test_config_names_become_folder_names(tmp_path: Path, name: str, expected: str) -> None:
    folder = RunFolder.create(tmp_path, name, NOW)
    assert folder.path == tmp_path / f"{expected}-20260102T030405Z"


def test_create_in_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("")
    with pytest.raises(UsageError, match=r"cannot make .*reports"):
        RunFolder.create(tmp_path / "reports", "quick")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_create_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="Permission denied"):
        RunFolder.create(tmp_path, "quick")


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_an_existing_folder_is_never_overwritten(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "run")
    with pytest.raises(UsageError, match=r"run exists, .* pass --resume .*or choose another"):
        RunFolder.create_exact(tmp_path / "run")


def test_open_refuses_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gone does not exist; expected the folder of a run"):
        RunFolder.open(tmp_path / "gone")
    for target in ("nowhere", "link"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(target)
        with pytest.raises(
            UsageError, match=r"link does not exist; .*; it is a link that leads no"
        ):
            RunFolder.open(tmp_path / "link")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file is not a folder"):
        RunFolder.open(tmp_path / "file")
    with pytest.raises(UsageError, match="is not a run folder: it holds no result file"):
        RunFolder.open(tmp_path)


def test_open_takes_a_run_that_was_killed_before_its_first_result(folder: RunFolder) -> None:
    assert RunFolder.open(folder.path) == folder
    (folder.path / ".baseline.json.1.abcd.tmp").write_text('{"schema_ver')
    assert RunFolder.open(folder.path) == folder
    assert read_run(folder) == []


@pytest.mark.parametrize("variant", ["../evil", "a/b", "", ".hidden", "x" * 101, "a\nb"])
def test_a_variant_that_cannot_be_a_file_name_is_refused(folder: RunFolder, variant: str) -> None:
    with pytest.raises(UsageError, match="cannot be a file name"):
        write_result(folder, make_result(variant))
    assert list(folder.path.iterdir()) == []


def test_a_lock_that_its_owner_took_away_meanwhile_is_taken_anew(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, path, calls = fcntl.flock, folder.path / ".lock", []

    def late(file: object, operation: int) -> None:
        if not calls:
            path.unlink()  # by the one before, between the opening here and the lock
        calls.append(operation)
        flock(file, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", late)
    with folder.locked():
        assert path.exists()
        with pytest.raises(UsageError, match="by another bt-bench process"), folder.locked():
            pass
        assert path.exists()
    assert not path.exists()


def make_link(path: Path) -> None:
    path.symlink_to("../theirs")


def make_dangling(path: Path) -> None:
    path.symlink_to("../nowhere")


PLANTED = [(make_link, "a symbolic link"), (make_dangling, "a symbolic link")]
PLANTED += [(os.mkfifo, "a FIFO"), (Path.mkdir, "a folder")]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("plant", "what"), PLANTED)
@pytest.mark.parametrize("name", [".lock", "comparison.md", "config.yaml", "fused.cases.jsonl"])
def test_nothing_is_written_to_what_is_in_the_place_of_a_file(
    folder: RunFolder, name: str, plant: Callable[[Path], None], what: str
) -> None:
    """A link would have its target cut off, and a FIFO would be waited for."""
    theirs, path = folder.path / "../theirs", folder.path / name
    theirs.write_text("theirs")
    plant(path)
    with (
        pytest.raises(UsageError, match=f"cannot write {path}: it is {what}; .* remove it"),
        folder.locked(),
    ):
        pass
    assert theirs.read_text() == "theirs"
    assert not (folder.path / "../nowhere").exists()
    if what == "a folder":
        path.rmdir()
    else:
        path.unlink()
    with folder.locked():
        assert [file.name for file in folder.path.iterdir()] == [".lock"]


def test_a_lock_that_a_killed_run_left_is_taken_with_what_is_in_it(folder: RunFolder) -> None:
    path = folder.path / ".lock"
    path.write_text("note")
    with folder.locked():
        assert path.read_text() == "note"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("plant", [make_link, os.mkfifo])
def test_a_journal_is_a_regular_file(folder: RunFolder, plant: Callable[[Path], None]) -> None:
    path = write_result(folder, make_result())
    (folder.path / "../theirs").write_text("theirs")
    plant(folder.journal_path("baseline"))
    with pytest.raises(UsageError, match=r"cannot read .*baseline\.cases\.jsonl: it is a "):
        read_result(path)
    with pytest.raises(UsageError, match=r"cannot write .*baseline\.cases\.jsonl: it is a "):
        ResultWriter(folder, make_result(complete=False))
    assert (folder.path / "../theirs").read_text() == "theirs"


@pytest.mark.timeout(60)
def test_a_result_of_a_run_is_no_fifo(folder: RunFolder) -> None:
    os.mkfifo(folder.result_path("baseline"))
    with pytest.raises(UsageError, match=r"baseline\.json is not a regular file"):
        read_run(folder)


# Writing


def test_a_full_disk_is_said_with_the_file(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = ResultWriter(folder, make_result(complete=False))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(bt_bench.base.atomic.os, "fsync", full)
    for write, name in (
        (lambda: write_text(folder.comparison_path, ""), "comparison.md"),
        (lambda: writer.add(make_case()), "baseline.cases.jsonl"),
        (lambda: writer.close(True), "baseline.json"),
    ):
        with pytest.raises(UsageError, match=rf"cannot write .*/{name}: No space left on device"):
            write()


def test_cases_that_something_has_changed_on_disk_are_refused(folder: RunFolder) -> None:
    """Code that is measured can write there as well."""
    writer = ResultWriter(folder, make_result(complete=False))
    writer.add(make_failed_case("a"))
    writer.add(make_case("b"))
    journal = folder.journal_path("baseline")
    text = journal.read_text()
    assert text.count('"failed"') == 1
    with journal.open("r+") as file:
        file.write(text.replace('"failed"', '"ok"    '))
    with pytest.raises(UsageError, match=r"baseline\.cases\.jsonl is not as this run has wri"):
        writer.close(True)
    assert not read_result(folder.result_path("baseline")).complete


@pytest.mark.parametrize("removed", [True, False])
def test_a_folder_that_is_removed_or_moved_ends_the_run_at_the_next_case(
    folder: RunFolder, tmp_path: Path, removed: bool
) -> None:
    writer = ResultWriter(folder, make_result(complete=False))
    writer.add(make_failed_case("a"))
    if removed:
        shutil.rmtree(folder.path)
    else:
        folder.path.rename(tmp_path / "elsewhere")
    for write in (lambda: writer.add(make_case("b")), lambda: writer.close(True)):
        with pytest.raises(UsageError, match=r"cases\.jsonl was removed or moved during the run"):
            write()


def test_a_file_of_a_result_is_what_was_written(folder: RunFolder) -> None:
    writer = ResultWriter(folder, make_result(complete=False))
    writer.add(make_failed_case("a"))
    digest = writer.close(True)
    path = folder.result_path("baseline")
    assert read_written(path, digest) == read_result(path)
    path.write_text(path.read_text().replace('"failed"', '"ok"'))
    with pytest.raises(UsageError, match=r"baseline\.json is not as this run has written"):
        read_written(path, digest)


def test_written_and_read_again(folder: RunFolder) -> None:
    path = write_result(folder, scenarios.three_cases())
    assert path == folder.path / "baseline.json"
    assert read_result(path) == scenarios.three_cases()
    assert read_result(str(path)) == scenarios.three_cases()


def test_a_file_has_a_line_per_case_and_ends_with_a_newline(folder: RunFolder) -> None:
    text = write_result(folder, scenarios.three_cases()).read_text()
    lines = text.splitlines()
    assert text.endswith("}\n")
    assert lines[0] == "{"
    assert lines[1] == '  "schema_version": 3,'
    cases = lines[lines.index('  "cases": [') + 1 : -2]
    assert [json.loads(line.rstrip(","))["case"] for line in cases] == ["one", "two", "three"]
    assert '"samples":[[1.5],[2.25],[1e-07]]' in cases[0]
    assert write_result(folder, make_result()).read_text().endswith('  "cases": []\n}\n')


def test_the_scenarios_of_all_reports_can_be_stored(folder: RunFolder) -> None:
    for run in (scenarios.gpu_run, scenarios.cpu_run, scenarios.partial_run, scenarios.trace_run):
        for result in run():
            assert read_result(write_result(folder, result)) == result


TIMES = st.one_of(st.just(0.0), st.floats(LEAST_TIME_US, MOST_TIME_US))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(TIMES, min_size=2, max_size=2), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e300, 1e300), st.none()),
)
def test_any_result_survives_writing(
    tmp_path_factory: pytest.TempPathFactory, samples: list[list[float]], text: str, value: object
) -> None:
    case = make_case(text, samples={Quantity.HOST_US: samples}, num_steps=2)
    workload = case.workload.model_copy(update={"parameters": {text: value}})
    result = make_result(cases=[case.model_copy(update={"workload": workload})], config=text)
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    again = read_result(write_result(folder, result))
    assert again == result
    assert again.cases[0].measurements[0].samples == samples
    assert type(again.cases[0].workload.parameters[text]) is type(value)


def test_every_written_file_validates(folder: RunFolder) -> None:
    schema = result_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == "urn:bt-bench:result:3"
    for result in (
        scenarios.three_cases(),
        make_result(),
        *scenarios.cpu_run(),
        *scenarios.hostile_run()[:1],
    ):
        validator.validate(json.loads(write_result(folder, result).read_text()))


def test_a_result_that_could_not_be_read_again_is_not_written(folder: RunFolder) -> None:
    path = write_result(folder, scenarios.three_cases())
    twice = make_result(cases=[make_case(), make_case()])
    with pytest.raises(ValueError, match="'gather_slots/small' 2 times"):
        write_result(folder, twice)
    assert read_result(path) == scenarios.three_cases()


def test_a_failed_write_leaves_the_old_file_and_no_other(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_result(folder, scenarios.three_cases())

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bt_bench.base.atomic.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_result(folder, make_result())
    assert list(folder.path.iterdir()) == [path]
    assert read_result(path) == scenarios.three_cases()


def test_a_written_file_has_the_permissions_of_any_file(tmp_path: Path) -> None:
    write_text(tmp_path / "ours", "text\n")
    (tmp_path / "plain").write_text("text\n")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "plain")]
    assert modes[0] == modes[1]


# A run under way


def test_cases_are_there_as_soon_as_they_are_added(folder: RunFolder) -> None:
    writer = ResultWriter(folder, make_result(complete=False))
    path = folder.result_path("baseline")
    assert read_result(path).cases == []
    added = scenarios.three_cases().cases
    for count, case in enumerate(added, start=1):
        writer.add(case)
        result = read_result(path)
        assert result.cases == added[:count]
        assert not result.complete
    assert writer.keys == {case.key for case in added}
    assert path.read_text().endswith('  "cases": []\n}\n')


def test_calibration_is_stored_beside_the_cases(folder: RunFolder) -> None:
    writer = ResultWriter(folder, make_result(complete=False))
    writer.add(make_case())
    calibration = make_calibration({"empty_call": [0.05]})
    writer.calibrate(calibration)
    result = read_result(folder.result_path("baseline"))
    assert (result.calibration, result.cases) == (calibration, [make_case()])


def test_closing_makes_the_file_that_is_written_at_once(folder: RunFolder) -> None:
    whole = scenarios.three_cases()
    writer = ResultWriter(folder, make_result(complete=False))
    for case in reversed(whole.cases):
        writer.add(case)
    writer.close(True, [case.key for case in whole.cases])
    text = folder.result_path("baseline").read_text()
    assert [path.name for path in folder.path.iterdir()] == ["baseline.json"]
    assert text == write_result(folder, whole).read_text()


def test_a_case_of_a_run_before_is_replaced(folder: RunFolder) -> None:
    old, other, new = make_case("a"), make_case("b"), make_case("a", launches=None, num_steps=1)
    new = new.model_copy(update={"check": None})
    for close in (False, True):
        writer = ResultWriter(folder, make_result(cases=[old, other]))
        writer.add(new)
        if close:
            writer.close(False)
        result = read_result(folder.result_path("baseline"))
        assert {case.key: case for case in result.cases} == {new.key: new, other.key: other}
        assert not result.complete


def test_a_line_that_a_killed_process_left_is_ignored_and_taken_out(folder: RunFolder) -> None:
    writer = ResultWriter(folder, make_result(complete=False))
    for name in ("one", "two"):
        writer.add(make_case(name))
    journal = folder.journal_path("baseline")
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3  # whose it is, and two cases
    for length in (1, len(lines[2]) // 2, len(lines[2]) - 1):
        journal.write_bytes(lines[0] + lines[1] + lines[2][:length])
        result = read_result(folder.result_path("baseline"))
        assert [case.case for case in result.cases] == ["one"]
        again = ResultWriter(folder, result)
        again.add(make_case("two"))
        assert journal.read_bytes() == b"".join(lines)


def test_killed_between_the_file_and_the_end_of_its_journal(folder: RunFolder) -> None:
    writer = ResultWriter(folder, make_result(complete=False))
    writer.add(make_case())
    journal = folder.journal_path("baseline").read_bytes()
    writer.close(True)
    folder.journal_path("baseline").write_bytes(journal)
    result = read_result(folder.result_path("baseline"))
    assert (result.complete, result.cases) == (True, [make_case()])


def _journal_of(folder: RunFolder, *cases: CaseResult, **fields: Any) -> bytes:
    """The journal that a run under way has after these cases; the folder is left as it was."""
    other = RunFolder.create_exact(folder.path.parent / secrets.token_hex(4))
    writer = ResultWriter(other, make_result(complete=False, **fields))
    for case in cases:
        writer.add(case)
    return other.journal_path(writer.header.variant.name).read_bytes()


@pytest.mark.parametrize("stale", ["another case", "more cases", "damaged", "of another run"])
def test_a_complete_result_is_all_in_its_file(folder: RunFolder, stale: str) -> None:
    slow, quick = (make_case(samples={Quantity.HOST_US: [[value]] * 3}) for value in (9.0, 5.0))
    path = write_result(folder, make_result(cases=[slow]))
    folder.journal_path("baseline").write_bytes(
        {
            "another case": _journal_of(folder, quick),
            "more cases": _journal_of(folder, slow, make_case("more")),
            "damaged": b"{}\n",
            "of another run": _journal_of(folder, quick, run_id="other"),
        }[stale]
    )
    assert read_result(path) == make_result(cases=[slow])
    (read,) = read_compact_run(folder.path)
    assert [case.taken["host_us"].samples[0, 0] for case in read.cases] == [9.0]
    (warning,) = read.warnings
    assert warning.startswith(f"{folder.journal_path('baseline')} was ignored, since {path} is ")
    # And a resumed run goes on from the file.
    writer = ResultWriter(folder, read_result(path))
    assert read_result(path).cases == [slow]
    writer.close(True)
    assert not folder.journal_path("baseline").exists()


def test_a_case_that_file_and_journal_tell_differently_is_refused(folder: RunFolder) -> None:
    slow, quick = (make_case(samples={Quantity.HOST_US: [[value]] * 3}) for value in (9.0, 5.0))
    path = write_result(folder, make_result(cases=[slow], complete=False))
    journal = folder.journal_path("baseline")
    journal.write_bytes(_journal_of(folder, quick))
    message = (
        r"baseline\.json is damaged: baseline\.cases\.jsonl beside it has a different case 'gather"
    )
    for read in (read_result, read_compact):
        with pytest.raises(UsageError, match=message):
            read(path)
    # Between the two writes that begin or end a run, both have the same.
    journal.write_bytes(_journal_of(folder, slow, make_case("more")))
    assert read_result(path).cases == [slow, make_case("more")]
    journal.write_bytes(_journal_of(folder, quick, slow))  # a case measured again counts last
    assert read_result(path).cases == [slow]


@pytest.mark.parametrize("fields", [{"run_id": "other"}, {"variant": "fused"}])
def test_a_journal_of_another_run_or_variant_is_refused(
    folder: RunFolder, fields: dict[str, str]
) -> None:
    path = write_result(folder, make_result(complete=False))
    folder.journal_path("baseline").write_bytes(_journal_of(folder, make_case(), **fields))
    whose = ("baseline", "quick-20260102T030405Z")
    variant, run_id = fields.get("variant", whose[0]), fields.get("run_id", whose[1])
    message = (
        rf"baseline\.cases\.jsonl is of variant '{variant}' of run '{run_id}', but .*/baseline"
        rf"\.json of variant '{whose[0]}' of run '{whose[1]}'; delete the journal"
    )
    for read in (read_result, read_compact):
        with pytest.raises(UsageError, match=message):
            read(path)


def test_a_journal_of_an_earlier_version_goes_on(folder: RunFolder) -> None:
    path = write_result(folder, make_result(complete=False))
    journal = folder.journal_path("baseline")
    _, *cases = _journal_of(folder, make_case("one"), make_case("two")).splitlines(keepends=True)
    for lines in (cases, cases[:1], []):
        journal.write_bytes(b"".join(lines))
        result = read_result(path)
        assert [case.case for case in result.cases] == ["one", "two"][: len(lines)]
    journal.write_bytes(b"".join(cases))
    writer = ResultWriter(folder, read_result(path))
    writer.add(make_case("three"))
    writer.close(True)
    assert [case.case for case in read_result(path).cases] == ["one", "two", "three"]


def test_a_case_that_could_not_be_read_again_is_not_added(folder: RunFolder) -> None:
    writer = ResultWriter(folder, make_result(complete=False))
    uneven = make_case(samples={Quantity.STEP_US: [[1.0]]}, num_steps=2)
    with pytest.raises(ValueError, match=r"'gather_slots/small' of 'baseline': .* has 1 sampl"):
        writer.add(uneven)
    assert read_result(folder.result_path("baseline")).cases == []


def test_writing_a_whole_result_ends_its_journal(folder: RunFolder) -> None:
    ResultWriter(folder, make_result(complete=False)).add(make_case("old"))
    write_result(folder, make_result(cases=[make_case("new")]))
    assert [c.case for c in read_result(folder.result_path("baseline")).cases] == ["new"]


# Reading a run


def test_a_run_has_the_baseline_first(folder: RunFolder) -> None:
    for name in ("zeta", "fused", "baseline", "alpha"):
        write_result(folder, make_result(name))
    folder.comparison_path.write_text("# Comparison\n")
    (folder.path / "config.yaml").write_text("name: quick\n")
    (folder.path / ".fused.json.77.abcd.tmp").write_text("{")
    names = [result.variant.name for result in read_run(folder.path)]
    assert names == ["baseline", "alpha", "fused", "zeta"]
    ordered = read_run(folder, order=["zeta", "unknown", "fused"])
    assert [result.variant.name for result in ordered] == ["baseline", "zeta", "fused", "alpha"]


def test_a_run_with_a_damaged_file_names_it(folder: RunFolder) -> None:
    write_result(folder, make_result())
    (folder.path / "fused.json").write_text('{"schema_version": 1,')
    with pytest.raises(UsageError, match=r"fused\.json is not JSON: it seems truncated"):
        read_run(folder)


def test_a_run_with_a_renamed_file_is_refused(folder: RunFolder) -> None:
    write_result(folder, make_result()).rename(folder.path / "copy.json")
    with pytest.raises(
        UsageError, match=r"copy\.json holds .* 'baseline'; expected them in baseline\.json"
    ):
        read_run(folder)


@pytest.mark.parametrize("suffix", ["xz", "gz"])
def test_a_packed_run_is_read_as_it_was(folder: RunFolder, suffix: str) -> None:
    results = [make_result("baseline"), make_result("fused")]
    for result in results:
        write_result(folder, result)
    unpacked = read_run(folder), read_compact_run(folder.path)
    for path in folder.result_paths():
        pack(path, suffix)
    assert {path.suffix for path in folder.result_paths()} == {f".{suffix}"}
    assert (read_run(folder), read_compact_run(folder.path)) == unpacked
    assert RunFolder.open(folder.path) == folder
    (folder.path / "notes.txt.gz").write_text("of the user's")
    (folder.path / ".fused.json.xz").write_text("of a killed process")
    assert len(folder.result_paths()) == 2
    with pytest.raises(UsageError, match=f"cannot continue .*json.{suffix}, which is packed; unp"):
        folder.refuse_packed()
    for path in folder.result_paths():
        path.unlink()
    folder.refuse_packed()


def test_a_variant_has_one_file_packed_or_not(folder: RunFolder) -> None:
    path = folder.result_path("fused")
    write_result(folder, make_result("fused"))
    text = path.read_bytes()
    pack(path, "xz")
    path.write_bytes(text)
    with pytest.raises(UsageError, match=r"fused\.json and .*fused\.json\.xz both hold the res"):
        read_run(folder)


def test_a_damaged_packed_file_is_named(folder: RunFolder) -> None:
    path = folder.result_path("fused")
    write_result(folder, make_result("fused"))
    for suffix in ("xz", "gz"):
        packed = pack(path, suffix, keep=True)
        whole = packed.read_bytes()
        for data in (
            whole[:-9],
            whole[:40] + b"\0\0\0\0" + whole[44:],
            whole + b"more than xz has",
        ):
            packed.write_bytes(data)
            with pytest.raises(UsageError, match=f"cannot unpack .*fused.json.{suffix}, which beg"):
                read_result(packed)


def test_xz_may_be_padded_and_of_several_streams(folder: RunFolder) -> None:
    path = folder.result_path("fused")
    write_result(folder, make_result("fused"))
    text = path.read_bytes()
    packed = path.with_name("fused.json.xz")
    packed.write_bytes(lzma.compress(text[:100]) + lzma.compress(text[100:]) + bytes(8))
    assert read_result(packed) == read_result(path)


def test_a_packed_file_of_another_variant_is_refused(folder: RunFolder) -> None:
    write_result(folder, make_result("fused"))
    pack(folder.result_path("fused"), "xz").rename(folder.path / "other.json.xz")
    with pytest.raises(UsageError, match="holds the results of variant 'fused'; expected them in"):
        read_run(folder)


def test_a_journal_counts_beside_a_packed_result(folder: RunFolder) -> None:
    writer = ResultWriter(folder, make_result(complete=False))
    for case in scenarios.three_cases().cases:
        writer.add(case)
    path = folder.result_path("baseline")
    read = read_result(path)
    assert len(read.cases) == 3
    packed = pack(path, "xz")
    assert read_result(packed) == read
    assert len(read_compact(packed).cases) == 3


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("bt_bench.base.files.MOST_BYTES", 1 << 20)
    path = tmp_path / "zeros.json"
    path.write_bytes(bytes((1 << 20) + 1))
    for suffix in ("xz", "gz"):
        packed = pack(path, suffix, keep=True)
        assert packed.stat().st_size < 10_000
        with pytest.raises(UsageError, match=r"zeros\.json\.\w\w, unpacked, is larger"):
            read_result(packed)


def pack(path: Path, suffix: str, *, keep: bool = False) -> Path:
    packed = path.with_name(f"{path.name}.{suffix}")
    compress = {"xz": lzma.compress, "gz": gzip.compress}[suffix]
    packed.write_bytes(compress(path.read_bytes()))
    if not keep:
        path.unlink()
    return packed
