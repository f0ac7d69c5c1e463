"""Cases are parsed field by field, and what they have in common once."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from support.factories import make_case, make_result
from support.scenarios import three_cases

from bt_bench.base import compact_json
from bt_bench.results.files import parsing
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.parsing import CaseParser, KnownTexts
from bt_bench.results.files.reading import read_run
from bt_bench.results.files.writing import write_result
from bt_bench.results.run.case import CaseResult
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.suites import context_of

CONTEXT = context_of(None)


def _text(case: CaseResult, **changed: Any) -> bytes:
    return compact_json(case.model_dump(mode="json") | changed).encode()


@contextmanager
def whole_texts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Record the texts of cases that pydantic is given as a whole."""
    given: list[bytes] = []
    validate = CaseResult.model_validate_json

    def recorded(text: bytes, **options: Any) -> CaseResult:
        given.append(text)
        return validate(text, **options)

    with monkeypatch.context() as patch:
        patch.setattr(CaseResult, "model_validate_json", recorded)
        yield given


def test_it_gives_the_same_cases_as_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = CaseParser(CONTEXT)
    with whole_texts(monkeypatch) as given:
        for case in three_cases().cases:
            for text in (_text(case), json.dumps(json.loads(_text(case)), indent=2).encode()):
                found, repeated = parser.parse(text)
                assert (found, repeated) == (case, None)
                assert _text(found) == _text(case)  # with keys in the same order
    assert given == []


def test_samples_that_do_not_come_last_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case(samples={Quantity.HOST_US: [[1.25], [2.0]]})
    text = json.dumps(json.loads(_text(case)), sort_keys=True).replace(
        '"samples": [[1.25], [2.0]], "unit": "us"', '"samples": [[1.25], [2]], "unit": "us"'
    )
    with whole_texts(monkeypatch) as given:
        assert CaseParser(CONTEXT).parse(text.encode()) == (case, None)
    assert given == [text.encode()]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[[1.25]]", "[[-1.25]]"),
        ("[[1.25]]", '[["1.25"]]'),
        ("[[1.25]]", "[[true]]"),
        ("[[1.25]]", "[[1e999]]"),
        ("[[1.25]]", "[[NaN]]"),
        ("[[1.25]]", "[[01]]"),
        ("[[1.25]]", "[[1.25],]"),
        ('"num_steps":1', '"num_steps":1.0'),
        ('"num_steps":1', '"num_steps":"1"'),
        ('"status":"ok"', '"status":"well"'),
        ('"status":"ok",', ""),
        ('"status":"ok"', '"status":"ok","more":1'),
        ('"operation":"gather_slots"', '"operation":"other"'),
    ],
)
def test_it_refuses_what_pydantic_refuses(old: str, new: str) -> None:
    text = _text(make_case(samples={Quantity.HOST_US: [[1.25]]})).decode()
    assert text.count(old) == 1
    damaged = text.replace(old, new).encode()
    with pytest.raises(ValidationError) as as_a_whole:
        CaseResult.model_validate_json(damaged, strict=True, context=CONTEXT)
    with pytest.raises(ValidationError) as by_field:
        CaseParser(CONTEXT).parse(damaged)
    assert str(by_field.value) == str(as_a_whole.value)


def test_variants_of_a_run_share_what_they_have_in_common(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each text of a field is validated once, however many cases and files have it."""
    validated: Counter[tuple[int, bytes]] = Counter()
    validate = TypeAdapter.validate_json

    def counted(adapter: TypeAdapter[Any], text: bytes, **options: Any) -> Any:
        validated[id(adapter), text] += 1
        return validate(adapter, text, **options)

    folder = RunFolder.create_exact(tmp_path / "run")
    samples = {Quantity.HOST_US: [[1.0], [2.0]]}
    for variant in ("baseline", "fused", "one_launch"):
        cases = [make_case(name, samples=samples) for name in ("a", "b", "c")]
        write_result(folder, make_result(variant, cases=cases))
    monkeypatch.setattr(TypeAdapter, "validate_json", counted)
    parsing._case_form.cache_clear()
    first, *others = read_run(folder)
    own = {b'"gather_slots"', b"null"}  # the operation, and no `stopping`
    assert {text for (_, text), count in validated.items() if count > 1} <= own
    for other in others:
        for mine, its in zip(first.cases, other.cases, strict=True):
            assert mine == its
            assert mine.workload is its.workload
            assert mine.measurements[0].rounds is its.measurements[0].rounds


def test_reading_keeps_no_object_for_each_sample() -> None:
    count, parser = 20_000, CaseParser(CONTEXT)

    def text(first: float) -> bytes:
        rows = [[first + each] for each in range(count)]
        return _text(make_case(samples={Quantity.HOST_US: rows}))

    one, other = text(1.5), text(2.5)
    parser.parse(one)  # the log of rounds, which both have
    before = sys.getallocatedblocks()
    found, _ = parser.parse(other)
    assert sys.getallocatedblocks() - before < count // 10
    assert found.measurements[0].samples.flat.tolist() == [2.5 + each for each in range(count)]


def test_texts_are_kept_up_to_a_limit() -> None:
    known = KnownTexts(4)
    calls: list[bytes] = []

    def validate(text: bytes, _context: object) -> bytes:
        calls.append(text)
        return text

    for number in (1, 2, 3, 4, 1, 5, 1):
        assert known.read(validate, b"%d" % number) == (b"%d" % number, 0)
    assert calls == [b"1", b"2", b"3", b"4", b"5", b"1"]
