"""The choice of failed checks that `bt-bench check` prints in full, and counts of the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bt_bench.base.errors import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bt_bench.results import ReasonCode
    from bt_bench.runs import Outcome

    Failure = tuple[ReasonCode, str]  # code, and message without its place

MOST_IN_FULL = 3
"""Distinct failures of a variant that are printed in full: as many as fit on one screen."""

_NAMED = 3


@dataclass
class _OfVariant:
    """The failures of a variant.

    Args:
        places: workload and operation of each check that failed, by failure.
        hidden: numbers of checks that failed and were not printed, by code and operation.
    """

    places: dict[Failure, list[str]] = field(default_factory=dict)
    hidden: dict[ReasonCode, Counter[str]] = field(default_factory=dict)


class Failures:
    """The failed checks of all variants, collected as they come.

    Args:
        show_all: print each of them in full.
    """

    def __init__(self, *, show_all: bool) -> None:
        self._show_all = show_all
        self._variants: dict[str, _OfVariant] = {}

    def is_shown(self, outcome: Outcome) -> bool:
        """Record a failed check, and return whether to print it in full.

        For each variant, the first few failures that differ in more than their place are printed. A
        check without a reason is not recorded, and is printed.
        """
        reason = outcome.reason
        if self._show_all or reason is None:
            return True
        # The message begins with the place: the workload, the round, the step.
        where, _, what = reason.message.removeprefix(outcome.workload).partition(": ")
        failure = (reason.code, what or where)
        of_variant = self._variants.setdefault(outcome.variant, _OfVariant())
        places = of_variant.places.setdefault(failure, [])
        places.append(f"{outcome.workload} · {outcome.operation}")
        if len(places) == 1 and len(of_variant.places) <= MOST_IN_FULL:
            return True
        of_variant.hidden.setdefault(reason.code, Counter())[outcome.operation] += 1
        return False

    def lines(self) -> Iterator[str]:
        """Yield lines that account for the failed checks that were not printed.

        If every distinct failure of a variant was printed, the lines name the other places of each.
        Else they are counts.
        """
        for variant, of_variant in self._variants.items():
            if len(of_variant.places) <= MOST_IN_FULL:
                yield from _repeated(variant, of_variant)
                continue
            for code, operations in of_variant.hidden.items():
                counts = [f"{count} of {name}" for name, count in operations.items()]
                number = operations.total()
                checks = f"{number} more check{'s' * (number != 1)}"
                of = f" of {next(iter(operations))}" if len(counts) == 1 else f", {listed(counts)}"
                yield f"FAILED  {variant} · {checks}{of} · {code} (--all prints each)"


def _repeated(variant: str, of_variant: _OfVariant) -> Iterator[str]:
    for first, *others in of_variant.places.values():
        if others:
            more = f" and {len(others) - _NAMED} more" * (len(others) > _NAMED)
            names = f"{', '.join(others[:_NAMED])}{more}"
            yield f"FAILED  {variant} · {len(others)} more just as {first}: {names}"
