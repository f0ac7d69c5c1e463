"""Devices share units in stages, whichever of them are lost, and whenever."""

from __future__ import annotations

import random
import time
from threading import Lock

import pytest

from bt_bench.runs.sharing import share
from bt_bench.worker import WorkerError


class Fleet:
    """Devices that do units, and are lost at random.

    Args:
        seed: of all that is random.
        losing: most devices that are lost.
    """

    def __init__(self, seed: int, losing: int) -> None:
        self.random = random.Random(seed)
        self.losing = losing
        self.lock = Lock()
        self.done: list[tuple[int, int]] = []
        self.under_way = 0


class Member:
    def __init__(self, name: str, fleet: Fleet) -> None:
        self.name, self._fleet = name, fleet
        self._is_abandoned = False

    def begin(self) -> None:
        self._perhaps_lost()

    def do(self, unit: tuple[int, int]) -> None:
        fleet = self._fleet
        with fleet.lock:
            stages = [stage for stage, _ in fleet.done]
            assert unit not in fleet.done
            assert unit[0] == 0 or stages.count(unit[0] - 1) == COUNT, "the stage before is done"
        time.sleep(fleet.random.uniform(0, 0.002))
        self._perhaps_lost()
        if self._is_abandoned:
            raise WorkerError("abandoned")
        with fleet.lock:
            fleet.done.append(unit)

    def abandon(self) -> None:
        self._is_abandoned = True

    def _perhaps_lost(self) -> None:
        fleet = self._fleet
        with fleet.lock:
            lost = fleet.losing and fleet.random.random() < 0.3
            fleet.losing -= bool(lost)
        if lost:
            raise WorkerError("it fell off")


COUNT = 5  # units of a stage
STAGES = [[(stage, number) for number in range(COUNT)] for stage in range(3)]


@pytest.mark.parametrize("seed", range(40))
def test_each_unit_is_done_once_and_no_stage_begins_before_the_one_before_is_done(seed):
    count = 1 + seed % 5
    fleet = Fleet(seed, losing=seed % 3 if count > seed % 3 else 0)
    devices = [Member(f"GPU-{number}", fleet) for number in range(count)]
    said: list[str] = []
    try:
        left = share(devices, STAGES, str, said.append)
    except WorkerError:
        # A unit that ends two devices ends all, by whatever chance.
        assert len(said) == 1
        assert "another device takes" in said[0]
        return
    assert sorted(fleet.done) == [unit for stage in STAGES for unit in stage]
    assert len(said) == len(devices) - len(left)


def test_an_error_wakes_the_devices_that_wait_for_the_last_units_of_a_stage():
    class Raising(Member):
        def do(self, unit):
            if unit == (0, 0):
                time.sleep(0.05)  # the others have done the rest, and wait
                raise OSError("no space left")
            super().do(unit)

    fleet = Fleet(0, losing=0)
    devices = [Raising(f"GPU-{number}", fleet) for number in range(3)]
    with pytest.raises(OSError, match="no space left"):
        share(devices, STAGES, str, lambda _: None)
    assert {stage for stage, _ in fleet.done} == {0}
