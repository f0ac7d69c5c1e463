"""Whatever the numbers of one case are, a regression in another is found or the file is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.commands import run
from support.factories import make_calibration, make_case, make_launches, make_result

from bt_bench.report.formats import FORMATS
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.writing import write_result
from bt_bench.results.run.case import CaseResult, CompiledKernel, ControlSpread
from bt_bench.results.run.nouns import Method, Quantity
from bt_bench.results.run.series import series_of

ROUNDS = 24
SERIES = [series_of(quantity) for quantity in (Quantity.HOST_US, Quantity.GPU_US, Quantity.GAP_US)]

FLOATS = (0.0, 5e-324, -5e-324, 1e-300, 9e-10, 1e-9, 1e-3, 1.0, 1e6, 1e12, 1.1e12, 1e300, 1e308)
WHOLES = (0, 1, -1, 2**53, 2**53 + 1, 2**63, 2**70, 10**400)
Where = tuple[str | int, ...]


def noisy(value: float, seed: int) -> list[list[float]]:
    noise = np.exp(0.002 * np.random.default_rng(seed).standard_normal(ROUNDS))
    return [[float(sample)] for sample in value * noise]


def case(name: str, factor: float, seed: int) -> CaseResult:
    return make_case(
        name,
        samples={s: noisy(50.0 * factor, seed + n) for n, s in enumerate(SERIES)},
        launches=make_launches(["apply", "gather"]),
        compiled=[CompiledKernel(name="k", hashes=["a"], registers=[30], spills=[0])],
        control_spreads=[ControlSpread(series=SERIES[0], arm="baseline", difference_us=-0.1)],
    )


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two variants of a run, one of which is slower by half in the last of three cases.

    What is changed is between the others: a NaN there once kept what comes after it from being
    sorted before what comes first.
    """
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    calibration = make_calibration({"empty_call": [0.05]}, {Method.EVENTS: 1.0})
    base, other = (
        write_result(
            folder,
            make_result(
                variant,
                [case("same", 1.0, seed), case("any", 1.0, seed + 3), case("slow", by, seed + 9)],
                calibration=calibration,
            ),
        )
        for variant, by, seed in (("baseline", 1.0, 1), ("fused", 1.5, 30))
    )
    return base, other


def numbers(value: Any, where: Where = ()) -> Iterator[Where]:
    """Where the numbers of a JSON value are; of samples only the first ones."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from numbers(member, (*where, key))
    elif isinstance(value, list):
        for index, member in enumerate(value[:2]):
            yield from numbers(member, (*where, index))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield where


def put(data: Any, where: Where, value: Any, everywhere: bool) -> None:
    """Puts a number in its place, or in that of all samples of its measurement."""
    *parents, last = where
    for key in parents:
        if everywhere and key == "samples":
            data[key] = [[value * (1 + i / 1e4)] for i in range(len(data[key]))]
            return
        data = data[key]
    data[last] = value


@settings(
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_no_number_of_a_case_hides_a_regression_in_another(
    sides: tuple[Path, Path], data: st.DataObject
) -> None:
    texts = [path.read_text() for path in sides]
    side = data.draw(st.integers(0, 1))
    whole = json.loads(texts[side])
    changed = copy.deepcopy(whole)
    one_case = data.draw(st.booleans())
    part = changed["cases"][1] if one_case else changed["calibration"]
    places = list(numbers(part))
    samples = [where for where in places if "samples" in where]
    where = data.draw(st.one_of(st.sampled_from(samples), st.sampled_from(places)))
    value = data.draw(st.sampled_from([*FLOATS, *WHOLES]))
    put(part, where, value, data.draw(st.booleans()) and one_case and isinstance(value, float))
    name = data.draw(st.sampled_from(sorted(FORMATS)))
    report = sides[0].parent / f"report.{name}"
    try:
        sides[side].write_text(json.dumps(changed))
        outcome = run("compare", *sides, "--json", "--format", f"{name}={report}")
    finally:
        for path, text in zip(sides, texts, strict=True):
            path.write_text(text)
    assert outcome.code in (1, 2, 4, 5), (where, value)
    assert "Traceback" not in outcome.err
    if outcome.code == 1:  # it was read, and compared
        judgements = outcome.json()["judgements"]
        slower = {
            j["metric"] for j in judgements if j["case"] == "slow" if j["verdict"] == "SLOWER"
        }
        assert slower == {"host_us", "gpu_us"}, (where, value)
        assert report.read_text()
    else:  # refused as damaged, and said where; else something else would have hidden it
        assert outcome.out == "", (where, value)
        assert "error" in outcome.err
