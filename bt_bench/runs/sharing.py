"""Devices of this host share the work of a run: each takes the next unit when it has done one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from threading import Condition
from typing import Generic, Protocol, TypeVar

from bt_bench.base import one_line
from bt_bench.results import Environment
from bt_bench.worker import Runner, WorkerError

UnitT = TypeVar("UnitT")
KeyT = TypeVar("KeyT")
UnitT_contra = TypeVar("UnitT_contra", contravariant=True)


@dataclass(frozen=True)
class Place:
    """A device that takes part in a run.

    Args:
        runner: has the variants and the device.
        environment: as the runner's process found it.
    """

    runner: Runner
    environment: Environment

    @property
    def name(self) -> str:
        """Return the name of the device in messages."""
        return self.environment.gpu_label or self.environment.device


class Device(Protocol[UnitT_contra]):
    """A device that does units of work."""

    @property
    def name(self) -> str:
        """Return its name in messages."""
        ...

    def begin(self) -> None:
        """Do everything that comes before its first unit.

        Raises:
            WorkerError: if the device is gone.
        """
        ...

    def do(self, unit: UnitT_contra) -> None:
        """Do a unit, from its beginning.

        Raises:
            WorkerError: if the device is gone.
        """
        ...

    def abandon(self) -> None:
        """End its process, so that a unit in another thread ends at once."""
        ...


def share(
    devices: Sequence[Device[UnitT]],
    stages: Sequence[Sequence[UnitT]],
    name_of: Callable[[UnitT], str],
    warn: Callable[[str], None],
) -> list[Device[UnitT]]:
    """Have devices do units at once, each of which takes the next unit when it has done one.

    A stage begins when all units of the one before are done. A device that is lost gives its unit
    back, for another one to do from its beginning. If anything else ends one device, all others are
    abandoned.

    Args:
        devices: all of them; a single one works in this thread.
        stages: the units of each, in the order of taking.
        name_of: returns the name of a unit in messages.
        warn: receives a message for each device that is given up.

    Returns:
        The devices that are left.

    Raises:
        WorkerError: if no device is left, or if a unit has ended two.
    """
    queues = _Queues(stages)
    left = [_Lane(device, queues) for device in devices]
    if len(left) == 1:
        left[0].work()
        return [*devices]
    given_back: list[UnitT] = []

    def is_lost(lane: _Lane[UnitT], error: WorkerError) -> None:
        left.remove(lane)
        unit, what = lane.taken, ""
        if not left or (unit is not None and unit in given_back):
            raise error
        if unit is not None:
            given_back.append(unit)
            what = f"; another device takes {name_of(unit)}"
        warn(f"{lane.device.name} is given up: {one_line(str(error))}{what}")
        if unit is not None:
            queues.give_back(unit)

    with ThreadPoolExecutor(len(left)) as pool:  # a worker ends with the thread that started it
        at_once(pool, {lane: lane.work for lane in left}, is_lost, [queues, *devices])
    return [lane.device for lane in left]


class _Queues(Generic[UnitT]):
    """The units of several stages, which devices take.

    Args:
        stages: the units of each, in the order of taking.
    """

    def __init__(self, stages: Sequence[Sequence[UnitT]]) -> None:
        self._later = deque(stages)
        self._now: deque[UnitT] = deque()
        self._under_way = 0
        self._is_open = True
        self._changed = Condition()

    def take(self) -> UnitT | None:
        """Return the next unit, `None` when all are done or abandoned.

        It waits while others do the last units of a stage: one of these may be given back.
        """
        with self._changed:
            while self._is_open and not self._now:
                if self._under_way:
                    self._changed.wait()
                elif self._later:
                    self._now.extend(self._later.popleft())
                else:
                    return None
            if not self._is_open:
                return None
            self._under_way += 1
            return self._now.popleft()

    def is_done(self) -> None:
        """Count a unit as done."""
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def give_back(self, unit: UnitT) -> None:
        """Let another device take a unit."""
        with self._changed:
            self._now.append(unit)
            self._under_way -= 1
            self._changed.notify_all()

    def abandon(self) -> None:
        """Let no device take or wait for a unit."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()


class _Lane(Generic[UnitT]):
    """A device with the queues that it takes units from.

    Attributes:
        taken: the unit that it has not finished, if any.
    """

    def __init__(self, device: Device[UnitT], queues: _Queues[UnitT]) -> None:
        self.device = device
        self.taken: UnitT | None = None
        self._queues = queues

    def work(self) -> None:
        """Take units until none is left."""
        self.device.begin()
        while (unit := self._queues.take()) is not None:
            self.taken = unit
            self.device.do(unit)
            self.taken = None
            self._queues.is_done()


class CanBeAbandoned(Protocol):
    """A user of a worker process."""

    def abandon(self) -> None:
        """End the process, so that a task in another thread ends at once."""
        ...


def at_once(
    pool: ThreadPoolExecutor,
    works: Mapping[KeyT, Callable[[], None]],
    is_lost: Callable[[KeyT, WorkerError], None],
    others: Sequence[CanBeAbandoned],
) -> None:
    """Do works at once, and wait for all of them.

    Args:
        pool: has a thread for each.
        works: by device.
        is_lost: called in this thread with a device that is gone, as soon as its work has ended.
        others: abandoned if anything else ends one of the works, or this call.
    """
    running = {pool.submit(work): key for key, work in works.items()}
    try:
        for done in as_completed(running):
            try:
                done.result()
            except WorkerError as error:
                is_lost(running[done], error)
    except BaseException:
        for each in others:
            each.abandon()
        raise
