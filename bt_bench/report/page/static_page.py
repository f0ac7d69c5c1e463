"""The page of a static gate: its verdicts, and each figure of a binary that differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bt_bench.analysis import Judged
from bt_bench.analysis.code import KernelChange, kernel_changes
from bt_bench.report.formats.arrange import worst_first
from bt_bench.report.page.compared_page import judged_page
from bt_bench.report.page.parts import Page, PageSection
from bt_bench.report.profile import changes_document
from bt_bench.results import StaticCensus

_MOST_TOLD = 3


def static_page(judged: Judged, base: StaticCensus, head: StaticCensus) -> Page:
    """Build the page of a static gate.

    Args:
        judged: its verdicts.
        base: the census that the head is compared with.
        head: the census of the head.

    Raises:
        NotComparableError: when toolchains or workloads differ, or no variant is in both.
    """
    changes = kernel_changes(base, head, (judged.base, judged.others[0]))
    differing = PageSection(
        "Binaries and launches that differ", changes_document(changes, judged.base).lead
    )
    page = judged_page(worst_first(judged), first=differing)  # no time was compared
    return replace(page, answer=(*_answer(changes), *page.answer))


def _answer(changes: Sequence[KernelChange]) -> Iterator[str]:
    if not changes:
        yield "No launch and no figure of any kernel has changed."
    for change in changes[:_MOST_TOLD]:
        of = f"{', '.join(change.variants)}; {', '.join(change.targets)}"
        yield f"{change.where}: {change.what} {change.before} → {change.after} ({of})."
    if (more := len(changes) - _MOST_TOLD) > 0:
        yield f"{more} more {'figure differs' if more == 1 else 'figures differ'}."
