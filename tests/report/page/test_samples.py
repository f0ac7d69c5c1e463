"""Samples are packed small, and come out as they went in."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from support.factories import make_case, make_result

from bt_bench.report.page.samples import count_samples, packed_samples
from bt_bench.report.run.arranged import arrange
from bt_bench.results.run.nouns import Quantity
from bt_bench.suites.block_tables import operations as ops


def unpacked(samples: list[list[float]], stride: int = 1) -> dict[str, Any]:
    """Return the data for the page's script, for two variants with these samples."""
    case = make_case("a", ops.STEP, {Quantity.HOST_US: samples, Quantity.GPU_US: samples})
    arms = arrange([make_result(name, [case]) for name in ("baseline", "fused")])
    packed = packed_samples(arms, arms.case_ids[0], stride)
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return found


@pytest.mark.parametrize("scale", [0.012345, 1.2345, 123.45, 123450.0])
def test_times_keep_four_digits(scale):
    samples = [[scale * (1 + index / 7)] for index in range(12)]
    (arm, _) = unpacked(samples)["times"][0]
    times = [whole / arm["factor"] for whole in arm["us"]]
    assert all(isinstance(whole, int) for whole in arm["us"])
    assert times == pytest.approx([each for (each,) in samples], rel=5e-4)


def test_rounds_are_stored_once_and_thinned_alike():
    data = unpacked([[1.0 + index] for index in range(10)], stride=3)
    assert data["rounds"] == [[0, 3, 6, 9]]
    assert [arm["rounds"] for times in data["times"] for arm in times] == [0] * 4
    assert [arm["us"] for arm in data["times"][0]] == [[1000, 4000, 7000, 10000]] * 2


def test_the_time_of_a_window_is_the_mean_of_its_steps():
    (arm, _) = unpacked([[1.0, 3.0], [2.0, 2.0], [0.0, 0.0]])["times"][0]
    assert [whole / arm["factor"] for whole in arm["us"]] == [2.0, 2.0, 0.0]


def test_a_case_without_samples_has_none():
    arms = arrange([make_result("baseline", [make_case("a", ops.STEP)])])
    assert (packed_samples(arms, arms.case_ids[0]), count_samples(arms)) == ("", 0)
