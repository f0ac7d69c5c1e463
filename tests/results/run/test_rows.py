"""Samples in one array, which read and are stored as a list of lists."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from support.factories import make_measurement

from bt_bench.results.run.case import Measurement
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.rows import SampleRows, medians_over, typical_of

ROWS = [[1.0, 2.5], [3.0, 4.0], [5.0, 0.0]]


@pytest.mark.parametrize("rows", [ROWS, [[1.0], [2.0, 3.0], []], [], [[]], [[], []]])
def test_rows_read_as_lists(rows: list[list[float]]) -> None:
    found = SampleRows.of(rows)
    assert found == rows
    assert [*found] == rows
    assert (len(found), found.lengths) == (len(rows), [*map(len, rows)])
    assert [found[index] for index in range(-len(rows), len(rows))] == rows * 2
    assert found[::2] == rows[::2]
    assert found == SampleRows.of(rows)
    assert found != [*rows, [9.0]]
    assert repr(found) == repr(rows)


def test_rows_are_equal_if_their_lengths_and_samples_are() -> None:
    found = SampleRows.of([[1.0, 2.0], [3.0, 4.0]])
    assert found != SampleRows.of([[1.0, 2.0, 3.0, 4.0]])
    assert found != SampleRows.of([[1.0, 2.0], [3.0, 5.0]])
    with pytest.raises(TypeError, match="unhashable"):
        hash(found)


def test_equal_rows_are_an_array_and_others_are_not() -> None:
    found = SampleRows.of(ROWS)
    assert found.width == 2
    assert np.asarray(found).tolist() == ROWS
    assert np.shares_memory(found.array, found.flat)
    assert np.shares_memory(np.asarray(found), found.flat)
    assert not np.shares_memory(np.array(found), found.flat)
    assert found.__array__(np.float32).dtype == np.float32
    assert found.__array__(np.float32, copy=True).dtype == np.float32
    assert SampleRows.of([[], []]).array.shape == (2, 0)
    for ragged in ([[1.0], [2.0, 3.0]], [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]], []):
        assert SampleRows.of(ragged).width is None
        with pytest.raises(ValueError, match="expected at least one, and equal"):
            _ = SampleRows.of(ragged).array


def test_a_measurement_with_rows_is_stored_as_one_with_lists() -> None:
    measurement = make_measurement(Quantity.HOST_US, ROWS)
    assert isinstance(measurement.samples, SampleRows)
    again = Measurement.model_validate(dict(measurement))
    assert again.samples is measurement.samples  # thousands of rows are not read again
    assert measurement.model_dump(mode="json")["samples"] == ROWS
    schema = Measurement.model_json_schema(mode="serialization")
    assert schema["properties"]["samples"]["items"]["items"]["type"] == "number"
    again = Measurement.model_validate_json(measurement.model_dump_json(), strict=True)
    assert again == measurement == pickle.loads(pickle.dumps(measurement))
    assert measurement.model_copy(update={"samples": SampleRows.of([[1.0]])}) != measurement


@pytest.mark.parametrize(
    "wrong", [[[-1.0]], [[float("nan")]], [[float("inf")]], [["x"]], [1.0], None]
)
def test_a_measurement_refuses_others(wrong: object) -> None:
    with pytest.raises(ValidationError):
        Measurement(quantity="host_us", method="host_clock", rounds=[0], samples=wrong)
    with pytest.raises(ValidationError):
        TypeAdapter(SampleRows).validate_python(wrong)


@pytest.mark.parametrize("rounds", [1, 2, 5, 8])
def test_medians_are_numpys(rounds: int) -> None:
    samples = np.random.default_rng(rounds).random((rounds, 4))
    assert medians_over(samples).tolist() == np.median(samples, axis=0).tolist()
    cube = np.random.default_rng(rounds).random((2, rounds, 3))
    for axis in (0, 1, 2, -1):
        assert medians_over(cube, axis).tolist() == np.median(cube, axis=axis).tolist()
    assert typical_of(samples) == np.median(np.median(samples, axis=0))
    assert str(medians_over(-np.zeros((rounds, 1)))) == "[0.]"
    largest = np.full((rounds, 1), np.finfo(float).max)
    assert typical_of(largest) == largest[0]


def test_there_is_no_median_without_rounds() -> None:
    found = medians_over(np.empty((2, 0, 3)), axis=1)
    assert found.shape == (2, 3)
    assert np.isnan(found).all()
