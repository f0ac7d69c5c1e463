"""The cores and the memory that this process may use, and how often its CPU quota stopped it.

A container sees all cores and all memory of its host. Control groups limit its use: version 2,
version 1, or both beside each other. Groups are nested, and the limits of every level hold.
Nothing is changed here, and a file that cannot be read sets no limit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

_NO_QUOTA = "max"
_NO_LIMIT_V1 = 2**62
"""Version 1 writes "no limit" as the largest number of whole pages below 2**63."""


@dataclass(frozen=True)
class Throttling:
    """Counts how often and how long a CPU quota stopped the processes of a control group.

    Args:
        periods: number of the quota's periods in which it did.
        us: time for which it did, in µs; cores that stood still at the same time each count.
    """

    periods: int = 0
    us: float = 0.0

    def since(self, before: Throttling) -> Throttling:
        """Return the throttling after an earlier reading."""
        return Throttling(self.periods - before.periods, self.us - before.us)

    def __bool__(self) -> bool:
        """Return whether there was any."""
        return self.periods > 0 or self.us > 0


class ControlGroups:
    """The control groups of this process, from its own one up to the outermost that it sees.

    Args:
        root: the folder below which `proc` and the mounted groups lie; tests have one of their own.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._v2, self._cpu, self._memory = _folders(root)
        with_quota = (folder for folder in self._v2 if _quota_v2(folder) is not None)
        self._throttled_v2 = [folder / "cpu.stat" for folder in with_quota]
        with_quota = (folder for folder in self._cpu if _quota_v1(folder) is not None)
        self._throttled_v1 = [folder / "cpu.stat" for folder in with_quota]

    def cpu_quota(self) -> float | None:
        """Return the smallest CPU quota, in cores; `None` without one."""
        quotas = [*map(_quota_v2, self._v2), *map(_quota_v1, self._cpu)]
        return min((quota for quota in quotas if quota is not None), default=None)

    def memory_limit(self) -> int | None:
        """Return the smallest limit of memory, in bytes; `None` without one.

        `memory.high` counts as well: beyond it, allocations are slowed down and memory is taken
        away. Swap does not add to it, since figures of a process that swaps are of its disk.
        """
        limits = [*map(_memory_v2, self._v2), *map(_memory_v1, self._memory)]
        return min((limit for limit in limits if limit is not None), default=None)

    def available_memory(self) -> int | None:
        """Return the memory that is left below all limits, in bytes; `None` without a limit.

        Files that are cached and were not used lately count as left, since they give way.
        """
        lefts = [
            max(0, limit - used)
            for folders, limit_of, used_of in (
                (self._v2, _memory_v2, _used_v2),
                (self._memory, _memory_v1, _used_v1),
            )
            for folder in folders
            if (limit := limit_of(folder)) is not None and (used := used_of(folder)) is not None
        ]
        limit = self.memory_limit()
        return min(lefts, default=limit)

    def throttling(self) -> Throttling:
        """Return the throttling so far, over all levels that have a quota.

        Without a quota nothing is read, which takes no time.
        """
        periods, us = 0, 0.0
        for path in self._throttled_v2:
            values = _values(path)
            periods += values.get("nr_throttled", 0)
            us += values.get("throttled_usec", 0)
        for path in self._throttled_v1:
            values = _values(path)
            periods += values.get("nr_throttled", 0)
            us += values.get("throttled_time", 0) / 1e3
        return Throttling(periods, us)


@cache
def control_groups() -> ControlGroups:
    """Return the control groups of this process, as found when first asked for."""
    return ControlGroups()


def affine_cores() -> int:
    """Return the number of cores that this process may be scheduled on, whatever its quota."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cores(affinity: int | None = None, quota: float | None = None) -> int:
    """Return the number of cores that may be busy at once without being throttled, at least 1.

    Args:
        affinity: cores to be scheduled on; `None`: as many as this process has.
        quota: in cores; `None`: without one. A part of a core is none.
    """
    cores = affine_cores() if affinity is None else affinity
    return max(1, cores if quota is None else min(cores, int(quota)))


def cores_here() -> int:
    """Return the number of cores that this process may keep busy."""
    return usable_cores(quota=control_groups().cpu_quota())


def memory_here(root: Path = Path("/")) -> int | None:
    """Return the memory that this process may still take, in bytes; `None` if it is unknown.

    The machine's free memory bounds it, and so do the limits of control groups.

    Args:
        root: as for `ControlGroups`.
    """
    groups = control_groups() if root == Path("/") else ControlGroups(root)
    free = _values(root / "proc/meminfo", ":").get("MemAvailable")
    bounds = (None if free is None else free * 1024, groups.available_memory())
    return min((bound for bound in bounds if bound is not None), default=None)


# Where the groups are


def _folders(root: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Return the folders of version 2, then of version 1 for the CPU, then for memory."""
    paths = _paths(root)
    v2: list[Path] = []
    v1: dict[str, list[Path]] = {"cpu": [], "memory": []}
    for mount in _mounts(root):
        if mount.controllers is None:
            v2 += _levels(root, mount, paths.get("", "/"))
        for name in v1.keys() & (mount.controllers or ()):
            v1[name] += _levels(root, mount, paths.get(name, "/"))
    unique = [list(dict.fromkeys(each)) for each in (v2, v1["cpu"], v1["memory"])]
    return unique[0], unique[1], unique[2]


@dataclass(frozen=True)
class _Mount:
    """A mounted hierarchy: which part of it, and where; `controllers` is `None` in version 2."""

    part: str
    at: str
    controllers: frozenset[str] | None


# Where they are by convention, for a process without /proc.
_USUAL = (
    _Mount("/", "/sys/fs/cgroup", None),
    _Mount("/", "/sys/fs/cgroup/cpu", frozenset({"cpu"})),
    _Mount("/", "/sys/fs/cgroup/memory", frozenset({"memory"})),
)


def _mounts(root: Path) -> Iterator[_Mount]:
    text = _read(root / "proc/self/mountinfo")
    if text is None:
        yield from _USUAL
        return
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        controllers = frozenset(kind[2].split(",")) if kind[0] == "cgroup" else None
        if kind[0] in ("cgroup", "cgroup2"):
            yield _Mount(_unescaped(fields[3]), _unescaped(fields[4]), controllers)


def _unescaped(path: str) -> str:
    """Return a path of `mountinfo`, where blanks and backslashes are octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _paths(root: Path) -> dict[str, str]:
    """Return the path of this process's group by controller; under "" it is of version 2."""
    paths = {}
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _levels(root: Path, mount: _Mount, path: str) -> list[Path]:
    """Return the folders of a group and of those around it, as far as they are mounted.

    A container may have mounted its own group alone, with the path that it has on the host. Or its
    group may lie outside the mounted part, which then has the limits.
    """
    inner = PurePosixPath(path)
    if inner.is_relative_to(mount.part):
        inner = inner.relative_to(mount.part)
    elif ".." in inner.parts or mount.part != "/":
        inner = PurePosixPath()
    at = root / mount.at.lstrip("/")
    levels = [at / str(inner).lstrip("/"), *(at / str(up).lstrip("/") for up in inner.parents), at]
    return [level for level in dict.fromkeys(levels) if level.is_dir()]


# What they say


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = (_read(folder / "cpu.max") or "").partition(" ")
    return None if quota == _NO_QUOTA else _ratio(quota, period or "100000")


def _quota_v1(folder: Path) -> float | None:
    quota, period = (_read(folder / f"cpu.cfs_{each}_us") or "" for each in ("quota", "period"))
    return None if quota.startswith("-") else _ratio(quota, period)


def _ratio(quota: str, period: str) -> float | None:
    if quota.isdecimal() and period.isdecimal() and int(period):
        return int(quota) / int(period)
    return None


def _memory_v2(folder: Path) -> int | None:
    limits = [_number(folder / name) for name in ("memory.max", "memory.high")]
    return min((limit for limit in limits if limit is not None), default=None)


def _memory_v1(folder: Path) -> int | None:
    # The second one counts the groups around a container, too, which it cannot see.
    around = _values(folder / "memory.stat").get("hierarchical_memory_limit")
    limits = (_number(folder / "memory.limit_in_bytes"), around)
    return min(
        (limit for limit in limits if limit is not None and limit < _NO_LIMIT_V1), default=None
    )


def _used_v2(folder: Path) -> int | None:
    used = _number(folder / "memory.current")
    return None if used is None else used - _values(folder / "memory.stat").get("inactive_file", 0)


def _used_v1(folder: Path) -> int | None:
    used = _number(folder / "memory.usage_in_bytes")
    stat = _values(folder / "memory.stat")
    return None if used is None else used - stat.get("total_inactive_file", 0)


def _number(path: Path) -> int | None:
    text = _read(path) or ""
    return int(text) if text.isdecimal() else None


def _values(path: Path, after_name: str = "") -> dict[str, int]:
    """Return the numbers of a file with a name and a number on each line."""
    rows = (line.split() for line in (_read(path) or "").splitlines())
    return {
        row[0].removesuffix(after_name): int(row[1])
        for row in rows
        if len(row) > 1 and row[1].isdecimal()
    }


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return None
