"""Quick reading: the same results, and the same refusals, as reading in full."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.damages import with_a_log
from support.factories import make_case, make_crash, make_measurement, make_result, make_rounds
from support.scenarios import three_cases

from bt_bench.base.errors import UsageError
from bt_bench.results.files.compact import (
    CompactCase,
    CompactResult,
    compacted,
    read_compact,
    read_compact_run,
)
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.invalid import repeated_key
from bt_bench.results.files.reading import read_result
from bt_bench.results.files.writing import ResultWriter, write_result
from bt_bench.results.run.case import CompiledKernel, ControlSpread, DiscardCode
from bt_bench.results.run.metrics import metric_named
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.result import VariantResult
from bt_bench.results.run.series import series_of


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create_exact(tmp_path / "run")


def _plain(result: CompactResult) -> tuple[VariantResult, list[CompactCase]]:
    """The header and the cases with lists in place of arrays, which can be compared."""
    return result.header, [
        replace(
            case,
            taken={
                name: replace(taken, samples=taken.samples.tolist())
                for name, taken in case.taken.items()
            },
        )
        for case in result.cases
    ]


def _full() -> VariantResult:
    series = series_of(Quantity.HOST_US)
    case = make_case(
        "full",
        samples={Quantity.HOST_US: [[1.0, 2.0], [3.0, 4.5]], Quantity.GPU_US: [[5.0, 6.0]]},
        num_steps=2,
        compiled=[
            CompiledKernel(name="k", hashes=["a", "b"], registers=[22, 30], spills=[None, 0])
        ],
        control_spreads=[ControlSpread(series=series, arm="baseline", difference_us=-0.25)],
    )
    result = with_a_log(three_cases())
    return result.model_copy(update={"cases": [*result.cases, case]})


def test_what_is_kept(folder: RunFolder) -> None:
    case = read_compact(write_result(folder, _full())).cases[-1]
    assert case.key == "gather_slots/full"
    assert case.taken["host_us"].samples.tolist() == [[1.0, 2.0], [3.0, 4.5]]
    assert case.taken["gpu_us"].rounds == (0,)
    assert case.taken["gpu_us"].metric.tick > 0
    assert case.spreads == {"host_us": 0.25 / np.median([2.0, 3.25])}
    kernel = case.compiled["k"]
    assert (kernel.count, kernel.registers, kernel.spills) == (2, 30, 0)


def _taken(**rounds: dict[int, list[float]]) -> CompactCase:
    """A case with samples per round of `host`, `stage` and `step`."""
    measurements = [
        make_measurement(Quantity(f"{name}_us"), list(of.values()), list(of))
        for name, of in rounds.items()
    ]
    case = make_case().model_copy(
        update={"measurements": measurements, "rounds": make_rounds(4), "control_spreads": []}
    )
    return compacted(make_result(cases=[case])).cases[0]


HOST_AND_STAGE = metric_named("host_us+stage_us")


def test_a_sum_is_of_the_rounds_that_all_terms_have() -> None:
    case = _taken(host={0: [1.0], 2: [3.0], 3: [4.0]}, stage={0: [10.0], 1: [20.0], 3: [40.0]})
    taken = case.measured(HOST_AND_STAGE)
    assert (taken.rounds, taken.samples.tolist()) == ((0, 3), [[11.0], [44.0]])
    assert case.measured(metric_named("host_us")) is case.taken["host_us"]


def test_no_sum_without_a_term_or_a_round_in_common() -> None:
    assert _taken(host={0: [1.0]}).measured(HOST_AND_STAGE) is None
    assert _taken(host={0: [1.0]}, stage={1: [1.0]}).measured(HOST_AND_STAGE) is None
    steps = _taken(host={0: [1.0, 2.0]}, stage={0: [1.0]})
    assert steps.measured(HOST_AND_STAGE) is None


def test_the_share_of_a_file_is_kept_and_that_of_an_earlier_version_is_of_the_own_time() -> None:
    series = [series_of(each) for each in (Quantity.HOST_US, Quantity.GAP_US, Quantity.STEP_US)]
    spreads = [
        ControlSpread(series=series[0], arm="baseline", difference_us=4.0, share=-0.04),
        ControlSpread(series=series[1], arm="baseline", difference_us=0.5),
        ControlSpread(series=series[2], arm="baseline", difference_us=0.5),  # not measured here
    ]
    samples = {series[0]: [[10.0]], series[1]: [[0.3]]}
    case = make_case(samples=samples, control_spreads=spreads)
    (kept,) = compacted(make_result(cases=[case])).cases
    assert kept.spreads == pytest.approx({"host_us": 0.04, "gap_us": 0.5 / 0.5})


def test_a_sum_moves_by_no_larger_share_than_its_terms() -> None:
    case = _taken(host={0: [1.0]}, stage={0: [1.0]})
    assert case.spread(HOST_AND_STAGE) is None
    known = replace(case, spreads={"host_us": 0.5, "stage_us": 0.25})
    assert known.spread(HOST_AND_STAGE) == 0.5
    assert replace(case, spreads={"host_us": 0.5}).spread(HOST_AND_STAGE) is None


def test_crashes_are_read_as_in_full(folder: RunFolder) -> None:
    result = _full().model_copy(update={"crashes": [make_crash(), make_crash(known=False)]})
    path = write_result(folder, result)
    assert read_compact(path).header.crashes == read_result(path).crashes == result.crashes


def test_as_in_full(folder: RunFolder) -> None:
    path = write_result(folder, _full())
    assert _plain(read_compact(path)) == _plain(compacted(read_result(path)))
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert _plain(read_compact(path)) == _plain(compacted(read_result(path)))


@pytest.mark.parametrize("value", ["1e999", "NaN", "-Infinity", "-1e-9", "true", '"1"', "null"])
def test_no_sample_is_let_through(folder: RunFolder, value: str) -> None:
    case = make_case(samples={Quantity.HOST_US: [[1.25]]})
    path = write_result(folder, make_result(cases=[case]))
    path.write_text(path.read_text().replace("[[1.25]]", f"[[{value}]]"))
    with pytest.raises(UsageError, match=r"is not a valid result: \$\.cases\[0\]|is not JSON"):
        read_compact(path)


def test_discarded_rounds_are_no_damage(folder: RunFolder) -> None:
    rounds = make_rounds(3, discarded=[None, DiscardCode.CLOCK, None])
    measurement = make_measurement(Quantity.HOST_US, [[1.0], [2.0]], [0, 2])
    case = make_case(rounds=rounds).model_copy(update={"measurements": [measurement]})
    (read,) = read_compact(write_result(folder, make_result(cases=[case]))).cases
    assert read.taken["host_us"].rounds == (0, 2)


def test_a_run_under_way(folder: RunFolder) -> None:
    writer = ResultWriter(folder, make_result(complete=False))
    writer.add(make_case("first", samples={Quantity.HOST_US: [[1.0]]}))
    (read,) = read_compact_run(folder.path)
    assert [case.case for case in read.cases] == ["first"]
    assert not read.header.complete


def test_equal_rounds_are_kept_once(folder: RunFolder) -> None:
    cases = [make_case(name, samples={Quantity.HOST_US: [[1.0], [2.0]]}) for name in ("a", "b")]
    first, second = read_compact(write_result(folder, make_result(cases=cases))).cases
    assert first.taken["host_us"].rounds is second.taken["host_us"].rounds


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('"samples":[[1.25]]', '"samples":[[9.0]],"samples":[[1.25]]', "samples"),
        ('"samples":[[1.25]]', '"samples" : [[9.0]], "samples" : [[1.25]]', "samples"),
        ('"status":"ok"', '"status":"failed","status":"ok"', "status"),
        ('"complete": true', '"complete": false, "complete": true', "complete"),
        ('"requests":32', '"requests":99,"requests":32', "requests"),
        ('"status":"ok"', '"\\u0073tatus":"failed","status":"ok"', "status"),
        ('"complete": true', '"complete" : false, "complete": true', "complete"),
        ('"notes":[', '"notes":["b"],"notes":[', "notes"),
    ],
)
def test_a_key_twice_is_refused(folder: RunFolder, old: str, new: str, key: str) -> None:
    notes = ['a "note": with "samples":', 'a":']
    case = make_case(samples={Quantity.HOST_US: [[1.25]]}, notes=notes)
    path = write_result(folder, make_result(cases=[case]))
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))
    for read in (read_compact, read_result):
        with pytest.raises(UsageError, match=f'is damaged: it has key "{key}" more than once'):
            read(path)


def test_keys_with_lists_in_them_are_told_apart() -> None:
    assert repeated_key('{"a[1]": [1], "a[2]": [2]}') is None
    assert repeated_key('{"a[1]": [1], "a[1]": [2]}') == (
        'has key "a[1]" more than once in one object; expected it once'
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [[1], {"b": 1, "b": 2}]}',
        '{"a": [[1, null], [2]], "b": [[]], "b": [[{}]]}',
        '{"a[": 1, "b": 1, "]": 2, "b": [[1], "c"]}',
    ],
)
def test_a_key_twice_is_found_among_lists(text: str) -> None:
    assert repeated_key(text) == 'has key "b" more than once in one object; expected it once'


def test_of_several_problems_the_same_is_told_as_when_writing(folder: RunFolder) -> None:
    """Though cases are checked before the header when reading."""
    case = make_case(samples={Quantity.HOST_US: [[1.0]]})
    path = write_result(folder, make_result(cases=[case]))
    data = json.loads(path.read_text())
    data["cases"][0]["measurements"][0]["samples"] = [[1e13]]
    data["cases"].append(data["cases"][0])
    path.write_text(json.dumps(data))
    with pytest.raises(
        UsageError, match=r"damaged: \$\.cases has key 'gather_slots/small' 2 times"
    ):
        read_compact(path)


def test_texts_that_look_like_keys_are_no_damage(folder: RunFolder) -> None:
    case = make_case(samples={Quantity.HOST_US: [[1.25]]}, notes=['a "note": with "samples":'])
    assert read_compact(write_result(folder, make_result(cases=[case]))).cases[0].key == case.key


def test_what_was_left_out_is_no_damage(folder: RunFolder) -> None:
    case = make_case(samples={Quantity.HOST_US: [[1.25]]})
    path = write_result(folder, make_result(cases=[case]))
    path.write_text(path.read_text().replace(',"control_spreads":[]', ""))
    assert _plain(read_compact(path)) == _plain(compacted(read_result(path)))
