"""Stand-ins for Nsight Compute: its program, its Python module, and counters that it could take."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bt_bench.results import Cache, Counter, Counters, KernelCounters, Stall, VariantCounters
from bt_bench.suites.block_tables import operations as ops
from support.factories import make_environment

VERSION_TEXT = """NVIDIA (R) Nsight Compute Command Line Profiler
Copyright (c) 2018-2025 NVIDIA Corporation
Version {version} (build 36398880) (public-release)"""

STALLED = "smsp__pcsamp_warps_issue_stalled_"


def fake_ncu(path: Path, version: str = "2025.3.1.0", body: str = "exit 0") -> Path:
    """A program that says its version, and otherwise runs some lines of bash.

    These find the folder of the request in `$folder`, and in `$report` the file to write.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = VERSION_TEXT.format(version=version)
    path.write_text(
        f"""#!/bin/bash
if [ "$1" = --version ]; then echo '{text}'; exit 0; fi
folder="${{@: -1}}"
while [ "$1" != --export ]; do shift; done
report="$2.ncu-rep"
shift 2
{body}
""",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


class FakeMetric:
    """A metric of a report, with a value and perhaps instances by address."""

    def __init__(self, value: Any, instances: dict[int, int] | None = None) -> None:
        self._value = value
        self._instances = instances

    def value(self) -> Any:
        return self._value

    def has_correlation_ids(self) -> bool:
        return self._instances is not None

    def num_instances(self) -> int:
        return len(self._instances or {})

    def correlation_ids(self) -> FakeMetric:
        return FakeMetric(None, instances=dict(enumerate(self._instances or {})))

    def as_uint64(self, index: int) -> int:
        return list((self._instances or {}).values())[index]


class FakeAction:
    """A kernel of a report.

    Args:
        name: the kernel's.
        range_: the NVTX range that it lies in; `None`: it has no NVTX state.
        metrics: by name, values or metrics.
        lines: file and line by address.
    """

    def __init__(
        self,
        name: str,
        range_: str | None,
        metrics: dict[str, Any] | None = None,
        lines: dict[int, tuple[str, int]] | None = None,
    ) -> None:
        self._name, self._range, self._lines = name, range_, lines or {}
        self.views: list[Any] = []
        self._metrics = {
            key: value if isinstance(value, FakeMetric) else FakeMetric(value)
            for key, value in (metrics or {}).items()
        }

    def _is_alive(self) -> None:
        assert all(view() is not None for view in self.views), "a segmentation fault"

    def name(self) -> str:
        self._is_alive()
        return self._name

    def metric_names(self) -> tuple[str, ...]:
        self._is_alive()
        return tuple(self._metrics)

    def metric_by_name(self, name: str) -> FakeMetric | None:
        self._is_alive()
        return self._metrics.get(name)

    def source_info(self, address: int) -> Any:
        if address not in self._lines:
            return None
        file, line = self._lines[address]
        return SimpleNamespace(file_name=lambda: file, line=lambda: line)

    def nvtx_state(self) -> Any:
        if self._range is None:
            return None
        domains = {
            3: SimpleNamespace(name=lambda: "other", push_pop_ranges=lambda: ("x",)),
            7: SimpleNamespace(name=lambda: "bt_bench", push_pop_ranges=lambda: (self._range,)),
        }
        return SimpleNamespace(domains=lambda: tuple(domains), domain_by_id=domains.__getitem__)


class _FakeRange:
    def __init__(self, actions: tuple[FakeAction, ...]) -> None:
        self.num_actions = lambda: len(actions)
        self.action_by_idx = actions.__getitem__


class _FakeReport:
    def __init__(self, actions: tuple[FakeAction, ...]) -> None:
        self.num_ranges = lambda: 1
        self._actions = actions

    def range_by_idx(self, index: int) -> _FakeRange:
        of_range = _FakeRange(self._actions)
        for action in self._actions:
            action.views = [weakref.ref(self), weakref.ref(of_range)]
        return of_range


def fake_module(*actions: FakeAction) -> Any:
    """The module `ncu_report`, whose every report has these kernels.

    As with the real one, a kernel dangles once its report, or its range, is gone.
    """
    return SimpleNamespace(load_report=lambda path: _FakeReport(actions))


def kernel_counters(
    name: str = "gather_slots_kernel",
    us: tuple[float, ...] = (4.1, 4.0, 4.2),
    *,
    l2: float = 40_960.0,
    dram: float = 1_024.0,
    stalls: tuple[tuple[str, str | None, int], ...] = (("long_scoreboard", "parts.py:85", 41),),
    **more: float,
) -> KernelCounters:
    """Counters of a kernel; `more` are further ones by name, the same in all calls."""
    same = {
        "dram_read_bytes": dram,
        "dram_written_bytes": 0.0,
        "l2_bytes": l2,
        "l2_percent": 2.5,
        "dram_percent": 0.25,
        "warps_percent": 12.5,
        "registers": 32.0,
        "programs": 8.0,
        "waves": 0.1,
        **more,
    }
    values = {Counter(key): [value] * len(us) for key, value in same.items()}
    values[Counter.DURATION_NS] = [each * 1e3 for each in us]
    return KernelCounters(
        name=name,
        values=values,
        samples=100,
        stalls=[Stall(reason=r, place=p, samples=n) for r, p, n in stalls],
    )


def counters(*variants: VariantCounters, **changes: Any) -> Counters:
    """A file of counters; `changes` replace fields."""
    fields: dict[str, Any] = {
        "config": "quick",
        "case": "one",
        "operation": ops.STEP,
        "step": 1,
        "num_steps": 2,
        "digest": "a" * 64,
        "read_bytes": 8_192,
        "written_bytes": 2_048,
        "environment": make_environment(),
        "tool": "2025.3.1.0",
        "l2": Cache.HOT,
        "calls": 3,
        "report": "kernels.ncu-rep",
        "variants": list(variants),
    }
    return Counters(**(fields | changes))
