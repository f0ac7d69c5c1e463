"""Differences between two results that make their figures not comparable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bt_bench.base import format_bytes
from bt_bench.base.errors import NotComparableError, counted
from bt_bench.results import (
    Crash,
    Environment,
    VariantResult,
    condition_texts,
    fallback_texts,
    helper_differences,
    suite_name,
)


@dataclass(frozen=True)
class Labelled:
    """A result with its label in reports."""

    label: str
    result: VariantResult


def device_name(environment: Environment) -> str | None:
    """Return the name of the device that ran the kernels: the first GPU, or the CPU without one."""
    if environment.device == "cuda":
        return environment.gpus[0].name if environment.gpus else None
    return environment.cpu


def machine_text(environment: Environment) -> str:
    """Return the device, and the host's CPU, which host times depend on.

    Examples are `on NVIDIA H200, AMD EPYC 9654` and `without a GPU, AMD EPYC 9654`.
    """
    device = device_name(environment) or "an unknown device"
    where = f"on {device}" if environment.device == "cuda" else "without a GPU"
    return ", ".join(filter(None, [where, environment.cpu]))


def cores_text(environment: Environment) -> str:
    """Return the number of CPUs, and how many of them the affinity and a quota leave.

    Examples are `16 CPUs` and `8 of 192 CPUs, with a quota of 4`.
    """
    count, affinity = environment.cpu_count, environment.cpu_affinity
    cpus = f"{'?' if count is None else count} CPU{'' if count == 1 else 's'}"
    if None not in (count, affinity) and affinity != count:
        cpus = f"{affinity} of {cpus}"
    if environment.cpu_quota is not None:
        cpus += f", with a quota of {environment.cpu_quota:g}"
    return cpus


def limit_facts(environment: Environment) -> Iterator[str]:
    """Yield a sentence on the limits of the control groups that a process measured in, if any."""
    limits = []
    if environment.cpu_quota is not None:
        plural = "" if environment.cpu_quota == 1 else "s"
        host = f" (the host has {environment.cpu_count})" if environment.cpu_count else ""
        limits.append(f"to {environment.cpu_quota:g} CPU{plural}{host}")
    if environment.memory_limit_bytes is not None:
        limits.append(f"to {format_bytes(environment.memory_limit_bytes)} of memory")
    if limits:
        yield f"Control groups limit the process {' and '.join(limits)}."


_UNKNOWN_HELPERS = (
    "it is not known which helpers were in use, such as staging in C and direct launches, since an "
    "earlier version did not record it"
)
_WITHOUT_C = (
    "the variant itself does without the helpers in C (its class has native = False), so it stages "
    "in Python and launches through Triton"
)


def refuse_differences(
    base: Labelled, other: Labelled, *, ignore_device: bool, ignore_helpers: bool, ignore_plan: bool
) -> list[str]:
    """Raise for differences that are not ignored; return the ignored ones as warnings."""
    suite, device, plan = map(_differences, _facts(base.result), _facts(other.result))
    environments = base.result.environment, other.result.environment
    helpers = list(helper_differences(*(each.helpers for each in environments)))
    ignorable = (
        ("--ignore-device", device, ignore_device),
        ("--ignore-helpers", helpers, ignore_helpers),
        ("--ignore-plan", plan, ignore_plan),
    )
    refused = [*suite, *(each for _, found, ignored in ignorable if not ignored for each in found)]
    sides = f"{base.label} and {other.label}"
    if refused:
        options = [option for option, found, ignored in ignorable if found and not ignored]
        advice = ""  # results of two suites cannot be compared at all
        if not suite:
            advice = f". `bt-bench compare {' '.join(options)}` compares them all the same"
        raise NotComparableError(f"{sides} are not comparable: {'; '.join(refused)}{advice}")
    allowed = [
        f"{sides} differ, as allowed: {difference}" for difference in (*device, *helpers, *plan)
    ]
    limits = _limit_warnings(base, other)
    return [*allowed, *limits, *_source_warnings(base, other)]


def crash_text(crash: Crash) -> str:
    """Return a clause on a crash that did not happen again."""
    message = crash.reason.message.removeprefix(f"{crash.during}, ")
    whose = "" if crash.known else ", and it is not known in which variant"
    what = message if message.startswith(crash.during) else f"{crash.during}: {message}"
    return f"{what}{whose}; it did not happen again when that was repeated"


def crash_warnings(side: Labelled) -> Iterator[str]:
    """Yield a warning with the first crash, if something crashed while a result was measured."""
    crashes = side.result.crashes
    if crashes:
        more = f" (and {len(crashes) - 1} more such crashes)" if len(crashes) > 1 else ""
        yield f"{side.label}: {crash_text(crashes[0])}{more}"


def helper_warnings(results: Mapping[str, VariantResult]) -> Iterator[str]:
    """Yield warnings on helpers that were not in use, or are unknown, and on conditions.

    Args:
        results: by label.
    """
    sides: dict[str, list[str]] = {}
    for label, result in results.items():
        texts = (text for each in result.environments for text in _environment_texts(each))
        for text in dict.fromkeys(texts):
            sides.setdefault(text, []).append(label)
        if result.variant.native is False:
            sides.setdefault(_WITHOUT_C, []).append(label)
    # The same processes took all rounds of a run, so its sides had the same helpers.
    if len({result.run_id for result in results.values()}) == 1:
        sides.pop(_UNKNOWN_HELPERS, None)
    for text, labels in sides.items():
        yield text if len(labels) == len(results) else f"{', '.join(labels)}: {text}"


def _environment_texts(environment: Environment) -> Iterator[str]:
    """Yield the helpers that were not in use, and the conditions."""
    helpers = environment.helpers
    yield from [_UNKNOWN_HELPERS] if helpers is None else fallback_texts(helpers)
    yield from condition_texts(environment.conditions)


def _limit_warnings(base: Labelled, other: Labelled) -> Iterator[str]:
    """Yield a warning if a CPU quota bounded only one side, or each by another number."""
    sides = base.result.environment, other.result.environment
    if sides[0].cpu_quota != sides[1].cpu_quota:
        before, after = map(cores_text, sides)
        yield (
            f"{base.label} had {before}, and {other.label} {after}: times on the host may differ "
            "for that alone"
        )
    threads = [side.torch_threads for side in sides]
    if None not in threads and threads[0] != threads[1]:
        yield (
            f"torch had {counted(threads[0] or 0, 'thread')} in {base.label}, and {threads[1]} in "
            f"{other.label}: calls that compute on the CPU, and checks, may take another time"
        )


def _source_warnings(base: Labelled, other: Labelled) -> Iterator[str]:
    """Yield a warning if the suite itself has changed, since it defines measurements and checks."""
    before, after = base.result.suite, other.result.suite
    if before is None or after is None:
        return  # an earlier version did not record it
    if before.source_sha256 != after.source_sha256:
        yield (
            f"{base.label} and {other.label} were measured by different sources of suite "
            f"{before.name}: workloads, checks or calls may differ"
        )


def facts_text(result: VariantResult) -> str:
    """Return all facts about a place of measurement that `refuse_differences` looks at."""
    environment = result.environment
    return repr(
        [*_facts(result), environment.helpers, environment.cpu_quota, cores_text(environment)]
    )


def _facts(result: VariantResult) -> Iterator[dict[str, object]]:
    """Yield the facts by name that must be equal: the suite, the device, and the plan."""
    yield {"suite": suite_name(result.suite)}
    environment = result.environment
    yield {
        "device": environment.device,
        "device name": device_name(environment),
        "torch": environment.torch,
        "CUDA": environment.cuda,
        "Triton": environment.triton,
        "interpreted": environment.interpreted,
    }
    yield {f"plan.{name}": value for name, value in result.plan}


def _differences(base: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    return [
        f"{name} {_shown(fact)} against {_shown(other[name])}"
        for name, fact in base.items()
        if fact != other[name]
    ]


def _shown(fact: object) -> str:
    if isinstance(fact, list):
        return f"[{', '.join(map(str, fact))}]"
    return "unknown" if fact is None else str(fact)
