"""`bt-bench gate --static`: comparison of compiled kernels, without a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.analysis import Verdict
from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.cli.exits import say
from bt_bench.cli.gate.common import (
    Options,
    both_trees,
    entries_here,
    entries_of,
    finish,
    make_folder,
    refuse_existing,
)
from bt_bench.cli.pages import CENSUS_NAMES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bt_bench.analysis import Judged
    from bt_bench.cli.gate.common import Trees
    from bt_bench.results import StaticCensus
    from bt_bench.variants import Isolation, VariantEntry


def static_gate(
    options: Options,
    patterns: tuple[str, ...],
    save: Path | None,
    out: Path | None,
    dry_run: bool = False,
) -> ExitCode:
    """Compile the kernels; save and compare the census if requested.

    Args:
        options: the options of the gate.
        patterns: patterns of metrics; without any, all are compared.
        save: where to write the census of the working tree.
        out: a new folder for both censuses, verdicts and page; `None` for none of them.
        dry_run: only list the cases that would be compiled.
    """
    from bt_bench.analysis import judge_static
    from bt_bench.results import COUNTED, select, write_census

    if options.base is None and options.against is None and save is None:
        raise UsageError("nothing to do: give --base REF, --against CENSUS or --save FILE")
    if out is not None and options.base is None and options.against is None:
        raise UsageError("--out has no effect on a census alone; leave it out, or give a base")
    refuse_existing(out)
    chosen = select(list(COUNTED), list(patterns))
    if options.base is not None:
        if dry_run:
            with both_trees(replace(options, command=None)) as trees:
                _alike(options, trees, (trees.base.variants(), trees.head.variants()))
            return _show_plan(options)
        judged, *censuses = _against_revision(options, save)
    else:
        # Before anything is compiled, since the file may not be a census.
        stored = None if options.against is None else _stored(options, options.against)
        entries = entries_here(options)
        kept = {variant.name for variant in stored.variants} if stored is not None else set()
        _refuse_unknown(options, {entry.name: entry for entry in entries}, kept)
        if dry_run:
            return _show_plan(options)
        new = _taken(options, entries, "working tree")
        _save(new, save)
        if stored is None:
            return ExitCode.OK
        judged = judge_static(stored, new, Path(options.against or "").name, "working tree")
        censuses = [stored, new]
    folder = None if out is None else make_folder(options.spec.name, out)
    if folder is not None:
        for name, census in zip(CENSUS_NAMES, censuses, strict=True):
            write_census(folder / name, census)
    return finish(_only(judged, chosen), options, folder, censuses)


def _show_plan(options: Options) -> ExitCode:
    from bt_bench.worker import DEFAULT_TARGETS

    against = options.base or options.against
    what = "a census to save" if against is None else f"working tree against {against}"
    print(f"{what}, compiled for {', '.join(DEFAULT_TARGETS)}")
    print(f"  variants: {', '.join(options.spec.variants)}")
    print(f"  cases: {', '.join(case.name for case in options.spec.cases)}")
    print(f"  operations: {', '.join(options.spec.operations)}")
    return ExitCode.OK


def _against_revision(
    options: Options, save: Path | None
) -> tuple[Judged, StaticCensus, StaticCensus]:
    """Compare with another revision; returns the verdicts, and the censuses of base and head."""
    from bt_bench.analysis import judge_static, missing_from_config
    from bt_bench.runs import compare_trees, isolations

    with both_trees(options) as trees:
        options = replace(options, on_traceback=trees.tracebacks(options.on_traceback))
        old_tree, new_tree, lost = trees.base, trees.head, trees.lost
        old_found, new_found = old_tree.variants(), new_tree.variants()
        alike = _alike(options, trees, (old_found, new_found))
        of_old, of_new = isolations(old_tree, new_tree)
        same = compare_trees(old_tree, new_tree, built=options.command is not None)
        new = _taken(options, entries_of(options, new_found), new_tree.label, of_new)
        _save(new, save)
        old = new
        if not same.proved:
            try:
                old = _taken(options, entries_of(options, old_found), old_tree.label, of_old)
            except UsageError as error:
                raise UsageError(old_tree.named(str(error))) from None
        judged = judge_static(old, new, old_tree.label, new_tree.label)
        gone = (missing_from_config(*place, judged) for place in lost.places)
        judged = replace(
            judged,
            judgements=(*judged.judgements, *gone),
            facts=(same.how, *alike, *judged.facts),
            warnings=(*judged.warnings, *lost.warnings),
        )
        return trees.at_home(judged), old, new


def _alike(
    options: Options, trees: Trees, found: tuple[Mapping[str, VariantEntry], ...]
) -> tuple[str, ...]:
    """Refuse names that neither side has, and a comparison of nothing but identical variants.

    Returns:
        Facts about the variants whose files are identical on both sides, if others differ.
    """
    from bt_bench.runs import measured_alike

    on_base, on_head = found
    _refuse_unknown(options, {**on_base, **on_head})
    names = [name for name in options.spec.variants if name in on_base and name in on_head]
    return measured_alike(trees.base, trees.head, names, found)


def _stored(options: Options, path: str) -> StaticCensus:
    """Read the stored census, restricted by flags; cases the config lost stay, as missing."""
    from bt_bench.results import read_census

    chosen, spec = options.chosen, options.spec
    return read_census(path).restricted(
        variants=set(spec.variants) if "variants" in chosen else None,
        cases={case.name for case in spec.cases} if "cases" in chosen else None,
        operations=set(spec.operations) if "operations" in chosen else None,
    )


def _refuse_unknown(
    options: Options, found: Mapping[str, VariantEntry], stored: Collection[str] = ()
) -> None:
    """Refuse names of variants that neither side has."""
    from bt_bench.variants import choose

    choose([name for name in options.spec.variants if name not in stored], dict(found))


def _taken(
    options: Options,
    entries: list[VariantEntry],
    label: str,
    isolation: Isolation | None = None,
) -> StaticCensus:
    from bt_bench.worker import take_census

    say(f"compiling {label}")
    return take_census(
        options.spec, entries, isolation=isolation, on_traceback=options.on_traceback
    )


def _save(census: StaticCensus, path: Path | None) -> None:
    from bt_bench.results import write_census

    if path is not None:
        write_census(path, census)
        say(f"the census is in {path}")


def _only(judged: Judged, metrics: Collection[str]) -> Judged:
    """Return the comparison restricted to some metrics.

    Missing and failed cases stay, since they have no metric. `registers` also selects
    `registers/sm_90`.
    """
    kept = [
        judgement
        for judgement in judged.judgements
        if judgement.verdict in (Verdict.MISSING, Verdict.INVALID)
        or judgement.metric.partition("/")[0] in metrics
    ]
    return replace(judged, judgements=tuple(kept))
