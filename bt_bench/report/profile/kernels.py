"""The report on kernels as compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bt_bench.analysis.code import (
    KernelChange,
    KernelRow,
    accesses_as_text,
    chain_as_text,
    kernel_rows,
    of_space,
    waits_as_text,
)
from bt_bench.base import ABSENT, Bullets, Cell, Document, Section, Table, Tone
from bt_bench.results import Kernel, KernelCode, StaticCensus

_EXPLAINED = (
    "chain: the longest chain of loads from global memory, each needing a value of the one before. "
    "waits: how often a warp waits for such loads, on the way with the most waits; those "
    "made before one wait take their time together. Each loop counts once."
)

_FIGURES: tuple[tuple[str, Callable[[Kernel], int]], ...] = (
    ("regs", lambda kernel: kernel.registers),
    ("spills", lambda kernel: kernel.spill_bytes),
    ("shared", lambda kernel: kernel.shared_bytes),
)
_OF_CODE: tuple[tuple[str, Callable[[KernelCode], str]], ...] = (
    ("instr", lambda code: str(code.instructions)),
    ("loads", lambda code: accesses_as_text(code.loads)),
    ("stores", lambda code: accesses_as_text(code.stores)),
    ("shared ld/st", lambda code: _both(code, "shared")),
    ("local ld/st", lambda code: _both(code, "local")),
    ("atomics", lambda code: str(code.atomics)),
    ("barriers", lambda code: str(code.barriers)),
    ("branches", lambda code: str(code.branches)),
    ("chain", lambda code: str(len(code.dependent_loads))),
    ("waits", lambda code: str(len(code.waits))),
)
# Columns that are left out if no kernel has any, each with a word for the absent thing.
_RARE = {
    "spills": "spills",
    "shared": "shared memory",
    "shared ld/st": "access to shared memory",
    "local ld/st": "access to local memory",
    "atomics": "atomics",
    "barriers": "barriers",
}
_EMPTY = {"0", "0/0"}


def kernels_document(census: StaticCensus, targets: Sequence[str], *, whole: bool) -> Document:
    """Build the report on the kernels of a census, and on their code if it has that.

    Args:
        census: the compiled kernels.
        targets: the targets in display order.
        whole: show all targets, where each kernel is launched, and its signature.
    """
    cases, operations = (
        len(census.cases),
        {of.operation for v in census.variants for of in v.operations},
    )
    variants = ", ".join(variant.name for variant in census.variants)
    lead = [
        f"{cases} case{'s' * (cases != 1)}, {', '.join(sorted(operations))}; {variants}. Triton "
        f"{census.toolchain.triton}.",
        *_failures(census),
    ]
    shown = targets if whole else targets[:1]
    sections = [section for target in shown for section in _of_target(census, target)]
    if len(targets) > 1:
        sections.append(_by_target(census, targets))
    if whole:
        sections += _launched(census, targets[0])
    return Document(f"Kernels of {census.config}", tuple(lead), tuple(sections))


def kernels_json(census: StaticCensus, targets: Sequence[str]) -> list[dict[str, Any]]:
    """Return all kernels for a JSON document."""
    return [
        {
            "label": row.label,
            "variants": row.variants,
            "launched_by": row.places,
            **row.kernel.model_dump(mode="json", exclude_none=True),
        }
        for target in targets
        for row in kernel_rows(census, target)
    ]


def changes_document(changes: Sequence[KernelChange], before: str) -> Document:
    """Build the report on changes since another profile."""
    title = f"Against {before}"
    if not changes:
        return Document(title, ("No launch and no figure of any kernel has changed.",), ())
    rows = tuple(
        (
            Cell(change.where),
            Cell(change.what, note=change.detail or None),
            Cell(", ".join(change.targets)),
            Cell(change.before),
            Cell(change.after, tone=Tone.BAD if change.more else None),
        )
        for change in changes
    )
    variants = dict.fromkeys(name for change in changes for name in change.variants)
    lead = f"Changes in {', '.join(variants)}, increases first:"
    table = Table(("where", "what", "for", "before", "now"), rows, 3)
    return Document(title, (lead, table), ())


def _failures(census: StaticCensus) -> Iterator[str]:
    found: dict[str, dict[str, None]] = {}
    for variant in census.variants:
        for of in variant.operations:
            if of.failure is not None:
                place = f"{variant.name}, {of.operation}/{of.case}"
                found.setdefault(of.failure, {})[place] = None
    for failure, places in found.items():
        first, *others = places
        more = f" and {len(others)} more" if others else ""
        yield f"FAILED: {first}{more}: {failure}"


def _of_target(census: StaticCensus, target: str) -> Iterator[Section]:
    rows = kernel_rows(census, target)
    if not rows:
        yield Section(target, ("No kernel is launched.",))
        return
    coded = [(row, row.kernel.code) for row in rows if row.kernel.code is not None]
    columns = [(title, [str(value(row.kernel)) for row in rows]) for title, value in _FIGURES]
    if len(coded) == len(rows):
        columns += [(title, [text_of(code) for _, code in coded]) for title, text_of in _OF_CODE]
    kept = [
        (title, texts)
        for title, texts in columns
        if title not in _RARE or not _EMPTY.issuperset(texts)
    ]
    absent = [_RARE[title] for title, texts in columns if (title, texts) not in kept]
    table = Table(
        ("kernel", *(title for title, _ in kept)),
        tuple(
            (Cell(row.label), *(Cell(texts[index]) for _, texts in kept))
            for index, row in enumerate(rows)
        ),
        1,
    )
    without = (
        f"None has {' or '.join((', '.join(absent[:-1]), absent[-1]) if absent[1:] else absent)}."
        if absent
        else ""
    )
    explained = f"{_EXPLAINED * bool(coded)} {without}".strip()
    yield Section(target, (*filter(None, [explained]), table))
    if coded:
        yield Section(f"Loads that warps wait for on {target}", (Bullets(tuple(_waits(coded))),))


def _waits(rows: Sequence[tuple[KernelRow, KernelCode]]) -> Iterator[str]:
    """Yield a line for all kernels that wait for the same loads."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row, code in rows:
        alike.setdefault((chain_as_text(code), waits_as_text(code)), []).append(row.label)
    for (chain, waits), labels in alike.items():
        said = (
            f"chain {chain}; waits at {waits or 'none'}" if chain else "no load from global memory"
        )
        yield f"{', '.join(_shortened(labels))}: {said}."


def _shortened(labels: Sequence[str]) -> Iterator[str]:
    """Yield labels without repeated names: `a #1, #2`."""
    before = ""
    for label in labels:
        name, _, number = label.partition(" #")
        yield f"#{number}" if number and name == before else label
        before = name


def _by_target(census: StaticCensus, targets: Sequence[str]) -> Section:
    """Build a section with registers, waits and spills of each kernel on each target."""
    texts: dict[str, dict[str, str]] = {}
    coded = False
    for target in targets:
        for row in kernel_rows(census, target):
            code = row.kernel.code
            waits = "" if code is None else f", {len(code.waits)}"
            spills = f", spills {row.kernel.spill_bytes}" if row.kernel.spill_bytes else ""
            coded = coded or code is not None
            texts.setdefault(row.label, {})[target] = f"{row.kernel.registers}{waits}{spills}"
    rows = tuple(
        (Cell(label), *(Cell(of.get(target, ABSENT)) for target in targets))
        for label, of in texts.items()
    )
    table = Table(("kernel", *targets), rows, 1)
    return Section(f"Registers{' and waits' * coded} by target", (table,))


def _launched(census: StaticCensus, target: str) -> Iterator[Section]:
    rows = kernel_rows(census, target)
    items = tuple(
        f"{row.label}, by {', '.join(row.variants)} in {', '.join(row.places)}: "
        f"{row.kernel.signature}"
        for row in rows
    )
    if items:
        yield Section("Who launches them, with which parameters", (Bullets(items),))


def _both(code: KernelCode, space: str) -> str:
    return f"{of_space(code.loads, space)}/{of_space(code.stores, space)}"
