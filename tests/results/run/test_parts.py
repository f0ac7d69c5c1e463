"""The parts of a merged result: which cases may name which."""

from __future__ import annotations

import pytest
from support.factories import make_calibration, make_case, make_result

from bt_bench.base.errors import UsageError
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.reading import parse_result, read_result
from bt_bench.results.files.writing import write_result
from bt_bench.results.run.result import Part, Shard
from bt_bench.results.run.soundness import problems


def merged(*numbers):
    result = make_result(cases=[make_case(f"c{i}", part=part) for i, part in enumerate(numbers)])
    part = Part(
        run_id="one",
        created=result.created,
        tool=result.tool,
        environment=result.environment,
        calibration=make_calibration({"empty_call": [0.05]}),
        shard=Shard(index=1, count=2, cases=3, division="d"),
    )
    return result.model_copy(update={"parts": [part, part]})


def test_a_merged_result_is_read_as_it_was_written(tmp_path):
    result = merged(0, 1, 0)
    assert read_result(write_result(RunFolder(tmp_path), result)) == result


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (merged(0, 2), "$.cases[1].part is 2; expected one of 2 parts, as $.parts has"),
        (merged(None), "$.cases[0].part is None; expected one of 2 parts, as $.parts has"),
        (
            make_result(cases=[make_case(part=0)]),
            "$.cases[0].part is 0; expected no part, as $.parts has",
        ),
    ],
)
def test_a_part_that_is_not_there_is_refused(result, problem):
    assert list(problems(result)) == [problem]
    with pytest.raises(UsageError, match=r"is damaged: \$\.cases\[\d\]\.part is "):
        parse_result(result.model_dump_json(), "x.json")


def test_the_calibration_of_each_part_is_checked():
    result = merged(0)
    wrong = result.parts[1].model_copy(
        update={"calibration": make_calibration({"empty_call": [1e30]})}
    )
    result = result.model_copy(update={"parts": [result.parts[0], wrong]})
    (problem,) = problems(result)
    assert problem.startswith("$.parts[1].calibration.figures[0].samples[0] is 1e+30")
