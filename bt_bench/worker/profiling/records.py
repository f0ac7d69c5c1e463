"""A profiler's records of a step: calls of the CUDA API and device operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class ApiRecord(NamedTuple):
    """A call of the CUDA API; times are in ns, by the host's real-time clock."""

    api: Literal["driver", "runtime"]
    name: str
    correlation: int
    start_ns: int
    end_ns: int


class DeviceRecord(NamedTuple):
    """A device operation; times are as in `ApiRecord`."""

    kind: Literal["kernel", "copy", "memset"]
    name: str
    correlation: int
    start_ns: int
    end_ns: int
    queued_ns: int | None = None
    submitted_ns: int | None = None
    moved_bytes: int | None = None


@dataclass
class PassRecords:
    """The records of all passes, in any order.

    `dropped` is the number of lost records. `unreadable` is the reason why the last unreadable
    buffer could not be read.
    """

    calls: list[ApiRecord] = field(default_factory=list)
    operations: list[DeviceRecord] = field(default_factory=list)
    dropped: int = 0
    unreadable: str | None = None
