"""Reading of Nsight Compute's reports, by the Python module that its makers provide."""

from __future__ import annotations

import importlib
import sys
from collections import Counter as Counts
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bt_bench.base.errors import UsageError
from bt_bench.results import Counter, KernelCounters, Reason, ReasonCode, Stall, VariantCounters
from bt_bench.runs.profile.ncu_tool import Ncu
from bt_bench.worker.measuring.nvtx_ranges import DOMAIN

MODULE = "ncu_report"
MOST_STALLS = 20  # per kernel, which bounds the file

_STALLED = "smsp__pcsamp_warps_issue_stalled_"
_NOT_ISSUED = "_not_issued"  # the same samples again, of cycles in which no warp issued
_NO_STALL = "selected"


def load_module(ncu: Ncu) -> Any:
    """Import the module `ncu_report`: an installed one, or Nsight Compute's own.

    Args:
        ncu: the program.

    Raises:
        UsageError: if there is none.
    """
    try:
        return importlib.import_module(MODULE)
    except Exception as error:  # a broken one may raise anything
        problems = [f"it cannot be imported ({type(error).__name__}: {error})"]
    for folder in filter(Path.is_dir, ncu.modules):
        sys.path.append(str(folder))
        try:
            return importlib.import_module(MODULE)
        except Exception as error:
            problems.append(
                f"the one in {folder} does not import ({type(error).__name__}: {error})"
            )
        finally:
            sys.path.remove(str(folder))
    raise UsageError(
        f"there is no Python module {MODULE}, which reads reports of Nsight Compute: "
        f"{'; '.join(problems)}; pip install ncu-report"
    )


def read_variants(
    module: Any, path: Path, ranges: Mapping[str, str], calls: int, most: int
) -> list[VariantCounters]:
    """Return the kernels of each variant.

    Args:
        module: `ncu_report`.
        path: path of the report.
        ranges: by variant, the name of the NVTX range that its calls lie in.
        calls: number of calls in each range.
        most: the most kernels that were profiled, in all calls of all variants.

    Raises:
        UsageError: if the report cannot be read.
    """
    try:
        return _read(module, path, ranges, calls, most)
    except UsageError:
        raise
    except Exception as error:  # the module has no class of its own for it
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error


def _read(
    module: Any, path: Path, ranges: Mapping[str, str], calls: int, most: int
) -> list[VariantCounters]:
    # All of its objects are views into the report, and dangle once it is closed.
    report = module.load_report(str(path))
    held = [report.range_by_idx(index) for index in range(report.num_ranges())]
    actions = [of.action_by_idx(place) for of in held for place in range(of.num_actions())]
    if not actions:
        # Nsight Compute writes none without a kernel, but the module reads a damaged one as empty.
        raise _unreadable(path, "no kernel was found in it")
    of_range: dict[str, list[Any]] = {name: [] for name in ranges.values()}
    for action in actions:
        for name in _open_ranges(action):
            if name in of_range:
                of_range[name].append(action)
    is_cut = len(actions) >= most
    variants = [_variant(name, of_range[range_], calls, is_cut) for name, range_ in ranges.items()]
    del actions, of_range, held, report
    return variants


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{MODULE} cannot read {path}: {why}; pip install -U ncu-report, which reads reports of "
        "older versions of Nsight Compute"
    )


def _open_ranges(action: Any) -> Iterator[str]:
    """Yield the names of our ranges that were open when a kernel was launched."""
    state = action.nvtx_state()
    if state is None:
        return
    for number in state.domains():
        domain = state.domain_by_id(number)
        if domain.name() == DOMAIN:
            yield from domain.push_pop_ranges()


def _variant(name: str, actions: Sequence[Any], calls: int, is_cut: bool) -> VariantCounters:
    """Return the kernels of a variant, in the order of a call's launches."""
    count, rest = divmod(len(actions), calls)
    of_calls = [actions[call * count : (call + 1) * count] for call in range(calls)]
    launched = [[action.name() for action in of_call] for of_call in of_calls]
    if rest or any(names != launched[0] for names in launched) or (is_cut and not count):
        seen = f"Nsight Compute saw {len(actions)} launches{_most(actions)}"
        message = (
            f"there were more kernels than are profiled: {seen}; leave out variants"
            if is_cut
            else f"its {calls} calls did not launch the same kernels: {seen}"
        )
        reason = Reason(code=ReasonCode.PROFILER_INCOMPLETE, message=message)
        return VariantCounters(name=name, reason=reason)
    kernels = [_kernel([of_call[place] for of_call in of_calls]) for place in range(count)]
    return VariantCounters(name=name, kernels=kernels)


def _most(actions: Sequence[Any]) -> str:
    counts = Counts(action.name() for action in actions)
    return "".join(f", {count} of {name}" for name, count in counts.most_common(3))


def _kernel(actions: Sequence[Any]) -> KernelCounters:
    """Return the counters of one launch of a step, from all of its calls."""
    values = {}
    for counter in Counter:
        of_calls = [_value(action, counter) for action in actions]
        known = [value for value in of_calls if value is not None]
        if len(known) == len(of_calls):
            values[counter] = known
    sampled: Counts[tuple[str, str | None]] = Counts()
    for action in actions:
        sampled.update(_samples(action))
    stalls = [
        Stall(reason=reason, place=place, samples=count)
        for (reason, place), count in sampled.most_common()
        if reason != _NO_STALL
    ]
    return KernelCounters(
        name=actions[0].name(),
        values=values,
        samples=sampled.total(),
        stalls=stalls[:MOST_STALLS],
    )


def _value(action: Any, counter: Counter) -> float | None:
    """Return the value of a counter, in its unit; `None` if the report has none.

    Reports have base units, such as ns and bytes. The unit itself is not queried: the module that
    comes with Nsight Compute 2025.3 crashes then.
    """
    for name, scale in counter.traits.sources:
        metric = action.metric_by_name(name)
        value = None if metric is None else metric.value()
        if isinstance(value, int | float):
            return float(value) * scale
    return None


def _samples(action: Any) -> Counts[tuple[str, str | None]]:
    """Count samples of stalled warps by stall reason and by line."""
    counts: Counts[tuple[str, str | None]] = Counts()
    for name in action.metric_names():
        if not name.startswith(_STALLED) or name.endswith(_NOT_ISSUED):
            continue
        metric, reason = action.metric_by_name(name), name.removeprefix(_STALLED)
        if not metric.has_correlation_ids():
            counts[reason, None] += int(metric.value() or 0)
            continue
        addresses = metric.correlation_ids()
        for index in range(metric.num_instances()):
            place = _place(action.source_info(addresses.as_uint64(index)))
            counts[reason, place] += int(metric.as_uint64(index))
    return +counts


def _place(source: Any) -> str | None:
    """Return file and line of an instruction, as other profiles name them."""
    if source is None or not source.file_name():
        return None
    return f"{Path(source.file_name()).name}:{source.line()}"
