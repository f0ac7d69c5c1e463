"""The texts and the JSON of `bt-bench check`: checks of workloads, and explored variants."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bt_bench.runs import Explored, Found, Outcome
    from bt_bench.worker import Unreached

MOST_PLACES = 5  # unreached places listed in the terminal


def status(outcome: Outcome) -> str:
    """Return `ok`, `skipped` or `failed`."""
    if outcome.failure is not None:
        return "failed"
    return "ok" if outcome.reason is None else "skipped"


def line_of(outcome: Outcome) -> str:
    """Return the lines on one check."""
    what = f"{outcome.variant} · {outcome.workload} · {outcome.operation}"
    if outcome.reason is None:
        return f"ok      {what}"
    if outcome.failure is None:
        return f"skipped {what} · {outcome.reason.message}"
    return f"FAILED  {what}\n        {outcome.reason.code}: {outcome.reason.message}"


def summed_up(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield per variant a line for the checks that passed, and a line per reason for skipping."""
    for variant in dict.fromkeys(outcome.variant for outcome in outcomes):
        its = [each for each in outcomes if each.variant == variant]
        passed = [each for each in its if each.reason is None]
        if passed:
            yield f"ok      {variant} · {_number_of(passed)}"
        skipped: dict[str, list[Outcome]] = {}
        for each in its:
            if each.reason is not None and each.failure is None:
                skipped.setdefault(each.reason.message, []).append(each)
        for reason, of_reason in skipped.items():
            yield f"skipped {variant} · {_number_of(of_reason)} · {reason}"


def _number_of(outcomes: Sequence[Outcome]) -> str:
    """Return a count such as `24 checks of 12 workloads`."""
    workloads = {outcome.workload for outcome in outcomes}
    return f"{_counted(len(outcomes), 'check')} of {_counted(len(workloads), 'workload')}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def explored_status(one: Explored) -> str:
    """Return `ok`, `skipped` or `failed`."""
    if one.skipped:
        return "skipped"
    return "ok" if one.found is None and not one.stopped else "failed"


def numbers_of(found: Found) -> str:
    """Return the numbers of the scenarios that reproduce a fault, such as `17` or `0-17`."""
    numbers = [recipe.source.number for recipe in found.needs] or [found.number]
    return f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def explored_text(one: Explored, of: str, again: str, *, paths: bool) -> str:
    """Return one variant's lines.

    Args:
        one: the variant's result.
        of: the source of its scenarios.
        again: the command that reproduces its fault; empty without one.
        paths: whether to list code that no scenario reached.
    """
    if one.skipped:
        return f"skipped {one.variant} · explored · {one.skipped}"
    took = f"{_counted(one.scenarios, 'scenario')} of {of} in {one.seconds:.0f} s"
    found = one.found
    if one.stopped:
        return (
            f"FAILED  {one.variant} · explored · {took}\n"
            f"        given up: {one.wanted - one.scenarios} of {one.wanted} scenarios were not "
            "played in many times the time that they should take; nothing is known of them"
        )
    if found is None:
        return "\n".join(
            [
                f"ok      {one.variant} · explored · {took}",
                *(f"        not tried: {text}" for text in one.not_tried),
                *(_coverage_lines(one) if paths else ()),
            ]
        )
    lines = [
        f"FAILED  {one.variant} · scenario {found.number}, {found.title} · {took}",
        f"        {found.reason.code}: {found.reason.message}",
        *(f"          {line}" for line in found.lines),
    ]
    if again:
        lines.append(f"        again: {again}")
    return "\n".join(lines)


def _coverage_lines(one: Explored) -> list[str]:
    """Return lines about the coverage of a variant's own code, if it is known."""
    if one.coverage is None or not one.coverage.total:
        return []
    lines = [
        f"        {one.coverage.reached} of {one.coverage.total} lines of its own code were reached"
    ]
    missing = [
        f"not reached: {each.file}:{each.first}"
        f"{f'-{each.last}' if each.last > each.first else ''}, {each.function}"
        for each in _unexcused(one)
    ]
    missing += [
        f"one way only: {each.file}:{each.line}, {each.function}: never {each.missing}"
        for each in one.coverage.one_sided
    ]
    lines += [f"          {each}" for each in missing[:MOST_PLACES]]
    if len(missing) > MOST_PLACES:
        lines.append(f"          and {len(missing) - MOST_PLACES} more places (--json has all)")
    return lines


def unreached_text(one: Explored) -> str:
    """Describe the code that makes `--require-paths` fail for a variant; empty if none does."""
    if one.skipped or one.found is not None:
        return ""
    if one.coverage is None:
        return f"{one.variant}: the lines that ran in one of its processes are unknown"
    lines = sum(each.last - each.first + 1 for each in _unexcused(one))
    ways = sum(not each.excuse for each in one.coverage.one_sided)
    if not lines and not ways:
        return ""
    return (
        f"{one.variant}: {lines} lines of its own code were not reached, and {ways} branches went "
        "one way only; --paths lists them, and a comment '# unreached: REASON' excuses one"
    )


def _unexcused(one: Explored) -> list[Unreached]:
    """Return the unreached lines of a variant's own code that no comment excuses."""
    unreached = one.coverage.unreached if one.coverage is not None else ()
    return [each for each in unreached if not each.excuse]


def branches_text(explored: Sequence[Explored]) -> str:
    """Count the branches of the variants' own code, and the ones that went both ways."""
    known = [one.coverage for one in explored if one.coverage is not None]
    branches, both = sum(of.branches for of in known), sum(of.both for of in known)
    return f"; {both} of {branches} branches of their own code went both ways" if branches else ""


def check_json(
    device: str,
    seed: int,
    outcomes: Sequence[Outcome],
    explored: Sequence[Explored],
    again: Mapping[str, str],
    warnings: Sequence[str],
) -> dict[str, object]:
    """Return the document of `--json`.

    Args:
        device: `cpu` or `cuda`.
        seed: seed of the scenarios and workloads.
        outcomes: the checks.
        explored: the variants' results.
        again: by variant, the words after `--scenario` that reproduce its fault.
        warnings: messages about crashes.
    """
    return {
        "schema_version": 1,
        "device": device,
        "seed": seed,
        "warnings": warnings,
        "checks": [
            {
                "variant": outcome.variant,
                "workload": outcome.workload,
                "operation": outcome.operation,
                "status": status(outcome),
                "reason": outcome.reason.model_dump() if outcome.reason else None,
                "steps": outcome.steps,
            }
            for outcome in outcomes
        ],
        "explored": [_explored_json(one, again.get(one.variant)) for one in explored],
    }


def _explored_json(one: Explored, again: str | None) -> dict[str, object]:
    coverage, found = one.coverage, one.found
    return {
        "variant": one.variant,
        "status": explored_status(one),
        "scenarios": one.scenarios,
        "wanted": one.wanted,
        "seconds": round(one.seconds, 3),
        "skipped": one.skipped or None,
        "not_tried": one.not_tried,
        "lines": coverage
        and {
            "reached": coverage.reached,
            "total": coverage.total,
            "unreached": [asdict(each) for each in coverage.unreached],
        },
        "branches": coverage
        and {
            "both": coverage.both,
            "total": coverage.branches,
            "one_sided": [asdict(each) for each in coverage.one_sided],
        },
        "found": found
        and {
            "scenario": found.number,
            "title": found.title,
            "reason": found.reason.model_dump(),
            "lines": found.lines,
            "numbers": numbers_of(found),
            "again": again,
        },
    }
