"""`bt-bench gate --static`: what is compiled, compared without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.cli.gate import Options, both_trees, entries_here, entries_of, finish
from bt_bench.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bt_bench.catalogue import VariantEntry
    from bt_bench.gating.trees import Tree
    from bt_bench.static.model import StaticCensus
    from bt_bench.verdicts import Judged


def static_gate(options: Options, patterns: tuple[str, ...], save: Path | None) -> ExitCode:
    """Compiles, saves where asked to, and compares where there is something to compare with."""
    if options.base is None and options.against is None and save is None:
        raise UsageError("nothing to do: give --base REF, --against CENSUS or --save FILE")
    if options.base is not None:
        judged = _against_revision(options, save)
    else:
        entries = entries_here(options)
        _refuse_unknown(options, {entry.name: entry for entry in entries})
        new = _taken(options, entries, "working tree")
        _save(new, save)
        if options.against is None:
            return ExitCode.OK
        judged = _against_file(new, options.against)
    return finish(_only(judged, patterns), options, None)


def _against_revision(options: Options, save: Path | None) -> Judged:
    from bt_bench.static.judging import judge_static

    with both_trees(options) as (old_tree, new_tree):
        old_found, new_found = old_tree.variants(), new_tree.variants()
        _refuse_unknown(options, old_found | new_found)
        new = _taken(options, entries_of(options, new_found), new_tree.label)
        _save(new, save)
        try:
            old = _taken_anew(options, new, entries_of(options, old_found), new_found, old_tree)
        except UsageError as error:
            raise UsageError(old_tree.named(str(error))) from None
        return judge_static(old, new, old_tree.label, new_tree.label)


def _against_file(new: StaticCensus, path: str) -> Judged:
    from bt_bench.static.files import read_census
    from bt_bench.static.judging import judge_static

    return judge_static(read_census(path), new, Path(path).name, "working tree")


def _refuse_unknown(options: Options, found: Mapping[str, VariantEntry]) -> None:
    from bt_bench.catalogue import choose

    choose(options.spec.variants, dict(found))


def _taken(options: Options, entries: list[VariantEntry], label: str) -> StaticCensus:
    from bt_bench.static.census import take_census

    print(f"bt-bench: compiling {label}", file=sys.stderr, flush=True)
    return take_census(options.spec, entries)


def _taken_anew(
    options: Options,
    new: StaticCensus,
    entries: list[VariantEntry],
    new_found: Mapping[str, VariantEntry],
    tree: Tree,
) -> StaticCensus:
    """The census of the base; files that are equal in the working tree are not compiled again."""
    changed = [
        entry
        for entry in entries
        if entry.name not in new_found
        or entry.source_sha256() != new_found[entry.name].source_sha256()
    ]
    taken = _taken(options, changed, tree.label).variants if changed else []
    known = {variant.name: variant for variant in (*new.variants, *taken)}
    return new.model_copy(update={"variants": [known[entry.name] for entry in entries]})


def _save(census: StaticCensus, path: Path | None) -> None:
    from bt_bench.static.files import write_census

    if path is not None:
        write_census(path, census)
        print(f"bt-bench: the census is in {path}", file=sys.stderr)


def _only(judged: Judged, patterns: tuple[str, ...]) -> Judged:
    """The comparison with the metrics that were asked for."""
    from dataclasses import replace

    from bt_bench.metrics import select

    names = list(dict.fromkeys(judgement.metric for judgement in judged.judgements))
    chosen = set(select(names, list(patterns)))
    return replace(
        judged,
        judgements=tuple(j for j in judged.judgements if j.metric in chosen),
        overall=tuple(o for o in judged.overall if o.metric in chosen),
    )
