"""One clear message for each way in which a result file can be bad."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import jsonschema
import pytest
from jsonschema import Draft202012Validator
from support.damages import DAMAGES, damaged, refusal, with_a_log
from support.factories import make_case, make_result
from support.judgements import rich
from support.scenarios import three_cases

from bt_bench.base import files
from bt_bench.base.errors import ExitCode, OtherSchemaError, UsageError
from bt_bench.report.formats.json_format import render_json
from bt_bench.results.files.compact import read_compact
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.kinds import CENSUS, KINDS, RECORDING, RESULT, kind_of_document
from bt_bench.results.files.reading import read_result, result_schema
from bt_bench.results.files.writing import ResultWriter, write_result
from bt_bench.results.gate.census import StaticCensus
from bt_bench.results.gate.recording import Recording
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.soundness import problems


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create_exact(tmp_path / "run")


def _refused(path: Path) -> UsageError:
    """The error with which both ways of reading refuse a file."""
    with pytest.raises(UsageError) as full:
        read_result(path)
    with pytest.raises(UsageError) as quick:
        read_compact(path)
    assert (str(quick.value), quick.type) == (str(full.value), full.type)
    return full.value


def _reading(path: Path) -> str:
    """The message with which a file is refused, without its name."""
    error = _refused(path)
    message = str(error)
    assert error.exit_code is ExitCode.USAGE
    assert "\n" not in message
    assert message.count(str(path)) >= 1
    return message.replace(f"{path} ", "", 1)


def test_missing(tmp_path: Path) -> None:
    assert _reading(tmp_path / "gone.json") == "does not exist; expected a result file"


def test_folder(tmp_path: Path) -> None:
    message = f"is a folder; expected a result file, such as {tmp_path / 'baseline.json'}"
    assert _reading(tmp_path) == message


def test_a_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot read .*: Not a directory"):
        read_result(tmp_path / "file" / "baseline.json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; expected a result of bt-bench"),
        (b" \n", "is empty; expected a result of bt-bench"),
        (b"# Report\n", "is not JSON: expected value at line 1 column 1"),
        (b'{"a": 1,\n"b" 2}', "is not JSON: expected `:` at line 2 column 5"),
        (b"\xff\xfe{", "is not JSON: byte 0 is not UTF-8"),
        (b"[" * 100_000, "is not JSON: recursion limit exceeded at line 1 column 202"),
        (b"[1, 2]", "is JSON, but not a result of bt-bench: expected an object, got a list"),
        (b"null", "is JSON, but not a result of bt-bench: expected an object, got null"),
        (b'{"a": 1}', "is JSON, but not a result of bt-bench: it has no schema_version"),
        (b'{"cases": 3}', "is JSON, but not a result of bt-bench: it has no schema_version"),
        (b'{"cases": []}', "is JSON, but not a result of bt-bench: it has no schema_version"),
        (
            b'{"schema_version": 3, "run_id": "x"}',
            "is not a complete result of bt-bench: missing created, complete, tool, environment, "
            "config, plan, variant, cases",
        ),
    ],
)
def test_no_result(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "fused.json"
    path.write_bytes(data)
    assert _reading(path) == message


def test_truncated_anywhere(folder: RunFolder) -> None:
    path = write_result(folder, three_cases())
    text = path.read_text().rstrip()
    for length in range(1, len(text), 7):
        path.write_text(text[:length])
        assert _reading(path).startswith("is not JSON: it seems truncated, EOF while parsing")
    lines = text[: len(text) // 2].splitlines()
    path.write_text("\n".join(lines))
    assert _reading(path).endswith(f"at line {len(lines)} column {len(lines[-1])}")


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged(folder: RunFolder, name: str) -> None:
    damage, message = DAMAGES[name]
    path = write_result(folder, with_a_log(three_cases()))
    data = damaged(json.loads(path.read_text()), damage)
    path.write_text(json.dumps(data))
    assert _reading(path) == refusal(data, message)
    assert isinstance(_refused(path), OtherSchemaError) == ("schema version" in name)


def _documents() -> dict[str, dict[str, object]]:
    """One of each kind that is not a result, as far as its outermost object goes."""
    return {
        kind.name: {"schema_version": 1, "kind": "judged"} | dict.fromkeys(kind.marks)
        for kind in KINDS
        if kind is not RESULT
    }


@pytest.mark.parametrize("name", _documents())
def test_another_kind_of_file_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(_documents()[name]))
    kind = next(each for each in KINDS if each.name == name)
    assert _reading(path) == f"is a {name}, not a result; {kind.use}"


def test_kinds_are_told_apart(folder: RunFolder) -> None:
    for kind in KINDS:
        assert [each for each in KINDS if each.marks <= kind.marks] == [kind]
    data = json.loads(write_result(folder, three_cases()).read_text())
    assert kind_of_document(data) is RESULT
    assert kind_of_document(json.loads(render_json(rich()))) is not None
    for kind, model in ((RECORDING, Recording), (CENSUS, StaticCensus)):
        required = {name for name, field in model.model_fields.items() if field.is_required()}
        assert kind.marks <= required
    assert kind_of_document({"schema_version": 3}) is None
    assert kind_of_document([]) is None


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_file_without_an_end(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 3 << 20)
    with pytest.raises(UsageError, match=rf"^{device} is larger than 3\.00 MiB, the most that is"):
        read_result(device)


def test_a_file_as_large_as_can_be_read(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_result(folder, three_cases())
    monkeypatch.setattr(files, "MOST_BYTES", path.stat().st_size)
    assert read_result(path) == three_cases()
    monkeypatch.setattr(files, "MOST_BYTES", path.stat().st_size - 1)
    assert _reading(path).endswith("the most that is read; expected a result file")


def test_an_interrupted_run_holds_whole_cases_too(folder: RunFolder) -> None:
    case = make_case(samples={Quantity.STEP_US: [[1.0, 2.0], [3.0]]}, num_steps=2)
    with pytest.raises(ValueError, match=r"samples\[1\] has 1 samples; expected one for each"):
        write_result(folder, make_result(cases=[case], complete=False))


def test_a_damaged_journal(folder: RunFolder) -> None:
    writer = ResultWriter(folder, make_result(complete=False))
    writer.add(make_case())
    path, journal = folder.result_path("baseline"), folder.journal_path("baseline")
    whole = journal.read_text().split("\n", 1)[1]
    journal.write_text("{}\n" + whole)
    with pytest.raises(UsageError, match=r"cases\.jsonl is damaged: line 1 is not a case: Field"):
        read_result(path)
    journal.write_text(whole + whole.replace('"status":"ok"', '"status":"odd"'))
    with pytest.raises(
        UsageError, match=r"cases\.jsonl is damaged: line 2 .* Delete that line to go on"
    ):
        read_result(path)


def test_a_journal_that_is_nested_too_deeply(folder: RunFolder) -> None:
    ResultWriter(folder, three_cases())
    folder.journal_path("baseline").write_text("[" * 100_000 + "\n")
    with pytest.raises(UsageError, match=r"is damaged: line 1 is not a case: "):
        read_result(folder.result_path("baseline"))


def test_standard_input_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match=r"^standard input is closed; expected a result file"):
        read_result("-")


def test_a_byte_order_mark_is_accepted(folder: RunFolder) -> None:
    path = write_result(folder, three_cases())
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert read_result(path) == three_cases()


def test_standard_input(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_result(folder, three_cases()).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert read_result("-") == three_cases()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{")))
    with pytest.raises(UsageError, match=r"^standard input is not JSON: it seems truncated"):
        read_result("-")


def test_the_schema_refuses_what_reading_refuses(folder: RunFolder) -> None:
    validator = Draft202012Validator(result_schema())
    data = json.loads(write_result(folder, three_cases()).read_text())
    for name in ("negative sample", "another unit", "unknown key", "missing key", "schema version"):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(damaged(data, DAMAGES[name][0]))


def test_all_problems_of_a_result_are_found() -> None:
    samples = {Quantity.HOST_US: [[1.0], [1.0, 2.0], [1.0, 2.0, 3.0], [1.0]]}
    without_log = make_case(samples={Quantity.HOST_US: [[1.0]]}).model_copy(update={"rounds": None})
    result = make_result(cases=[without_log, without_log, make_case("uneven", samples=samples)])
    of_window = "samples; expected one for each of the 1 steps of its window"
    no_log = "rounds is missing; expected the log of the rounds that were measured"
    assert list(problems(result)) == [
        f"$.cases has key '{without_log.key}' 2 times; expected it once",
        f"$.cases[0].{no_log}",
        f"$.cases[1].{no_log}",
        f"$.cases[2].measurements[0].samples[1] has 2 {of_window}",
        f"$.cases[2].measurements[0].samples[2] has 3 {of_window}",
    ]
