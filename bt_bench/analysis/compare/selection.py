"""The sides and cases that a report shows and counts, and facts about the others.

The others are judged as well: the selection must not change the families of tests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from bt_bench.analysis.compare.entries import Side
from bt_bench.analysis.verdicts import Judgement, tally
from bt_bench.base import select_names
from bt_bench.base.errors import UsageError, names_hint
from bt_bench.base.names import Operation

if TYPE_CHECKING:
    from bt_bench.analysis.compare.sides import Matched


class OfCase(Protocol):
    """Something about a case of an operation: a judgement, or the case itself."""

    @property
    def operation(self) -> Operation:
        """Return the operation."""

    @property
    def case(self) -> str:
        """Return the name of the case."""


Selected = TypeVar("Selected", bound=OfCase)


@dataclass(frozen=True)
class Selection:
    """The selection by options; `None` where an option was not given.

    Args:
        cases: patterns of `-k`, see `select_names`.
        operations: names of `--operations`.
        variants: names of `--variants`.
    """

    cases: str | None = None
    operations: Sequence[str] | None = None
    variants: Sequence[str] | None = None

    @property
    def options(self) -> str:
        """Return the given options, as on the command line; empty without any."""
        return ", ".join(
            [
                *([] if self.cases is None else [f"-k {self.cases}"]),
                *([] if self.operations is None else [f"--operations {','.join(self.operations)}"]),
                *([] if self.variants is None else [f"--variants {','.join(self.variants)}"]),
            ]
        )

    def of_sides(self, matched: Matched) -> tuple[Matched, list[str]]:
        """Return the sides of the selected variants, and facts about the rest; the base stays.

        Raises:
            UsageError: for a variant that is not compared, and if only the base is left.
        """
        if self.variants is None:
            return matched, []
        names = {each.other.label: _variant(each.other) for each in matched.matchups}
        labels = self.labels(names, {_variant(each.base) for each in matched.matchups})
        kept = tuple(each for each in matched.matchups if each.other.label in labels)
        wholes = {side: whole for side, whole in matched.wholes.items() if side in labels}
        # If run folders are compared, `others` has folders, and no folder is left out here.
        lost = [label for label in names if label not in labels]
        others = tuple(each for each in matched.others if each not in lost)
        facts = [f"Left out by --variants, and not judged: {', '.join(lost)}."] if lost else []
        return replace(matched, others=others, matchups=kept, wholes=wholes), facts

    def labels(self, others: Mapping[str, str], bases: Collection[str]) -> set[str]:
        """Return the labels of the selected variants, without the base.

        Args:
            others: by label, the variant.
            bases: variants that the others are compared with.

        Raises:
            UsageError: for a variant that is not there, and if only the base is left.
        """
        if self.variants is None:
            return set(others)
        _refuse_unknown("--variants", "variant", self.variants, {*others.values(), *bases})
        kept = {label for label, variant in others.items() if variant in self.variants}
        if not kept:
            raise UsageError(
                f"--variants {','.join(self.variants)}: only the base is left; expected one or "
                f"more of {', '.join(dict.fromkeys(others.values()))}"
            )
        return kept

    def left_out(
        self, kept: Sequence[OfCase], rest: Sequence[OfCase], listed: Sequence[Judgement]
    ) -> list[str]:
        """Return facts about everything that is not selected.

        Args:
            kept: everything about the selected cases.
            rest: everything about the other cases.
            listed: the judgements on the others that would be listed if they were selected.
        """
        if not rest:
            return []
        return [
            f"{self.told(kept, [*kept, *rest])} The verdicts on the others count for nothing here, "
            f"nor for the exit code: {tally(listed)}."
        ]

    def of_cases(self, found: Sequence[Selected]) -> tuple[list[Selected], list[Selected]]:
        """Split a sequence into the selected cases and the rest.

        Raises:
            UsageError: for patterns and operations that select nothing.
        """
        if self.cases is None and self.operations is None:
            return list(found), []
        cases = list(dict.fromkeys(each.case for each in found))
        if self.operations is not None:
            operations = dict.fromkeys(str(each.operation) for each in found)
            _refuse_unknown("--operations", "operation", self.operations, operations)
        wanted = set(cases if self.cases is None else select_names(cases, self.cases))
        kept: list[Selected] = []
        rest: list[Selected] = []
        for each in found:
            is_kept = each.case in wanted and (
                self.operations is None or str(each.operation) in self.operations
            )
            (kept if is_kept else rest).append(each)
        if not kept:
            raise UsageError(
                f"{self.options}: no case of these operations has such a name; expected some of "
                f"{', '.join(dict.fromkeys(map(_key, found)))}"
            )
        return kept, rest

    def told(self, kept: Sequence[OfCase], found: Sequence[OfCase]) -> str:
        """Return a sentence with the number of selected cases, and the options used."""
        options = replace(self, variants=None).options
        chosen, all_keys = (len(set(map(_key, group))) for group in (kept, found))
        return f"Selected by {options}: {chosen} of {all_keys} cases."


EVERYTHING = Selection()
"""The selection without options: everything is shown."""


def _key(each: OfCase) -> str:
    return f"{each.operation}/{each.case}"


def _variant(side: Side) -> str:
    return side.result.header.variant.name


def _refuse_unknown(option: str, what: str, names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            hint = names_hint(name, sorted(known))
            raise UsageError(f"{option}: no {what} {name!r} in these results; {hint}")
