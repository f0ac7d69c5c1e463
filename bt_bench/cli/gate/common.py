"""Shared by all modes of `bt-bench gate`: the trees, the variants, the report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.cli.options import (
    choose_variants,
)
from bt_bench.cli.outputs import final_code, write_outputs
from bt_bench.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bt_bench.analysis import Judged, Rules
    from bt_bench.cli.outputs import Output
    from bt_bench.config import SweepSpec
    from bt_bench.names import FailOn
    from bt_bench.runs import Lost, Tree
    from bt_bench.variants import VariantEntry

RECORDING_NAME = "recording.json"
VERDICTS_NAME = "verdicts.json"


@dataclass(frozen=True)
class Options:
    """What was asked for, once config and environment are taken into account.

    Args:
        spec: the config.
        base: the revision to compare with, if any.
        against: the file to compare with, if any.
        folders: folders of variants, from `--kernels`.
        command: the command of `--build`.
        build_seconds: its time limit; `None` for the default.
        on_traceback: takes the tracebacks of errors in variants; `None`: none are wanted.
        rules: margin and alpha.
        fail_on: verdicts that fail the gate.
        outputs: where the report goes.
        config: the value of `--config`.
        load: reads another config with the same flags.
        chosen: which of variants, cases and operations are selected by flags.
        allow_partial: accept a stored result whose run did not finish.
        require_power: fail a gate that could not have found what it was to find.
    """

    spec: SweepSpec
    base: str | None
    against: str | None
    folders: list[Path]
    command: str | None
    rules: Rules
    fail_on: tuple[FailOn, ...]
    outputs: list[Output]
    config: str
    load: Callable[[str], SweepSpec]
    chosen: frozenset[str] = frozenset()
    allow_partial: bool = False
    require_power: bool = False
    build_seconds: float | None = None
    on_traceback: Callable[[str], None] | None = None


@contextmanager
def both_trees(options: Options) -> Iterator[tuple[Tree, Tree]]:
    """Base and working tree, built if there is a `--build` command."""
    from bt_bench.runs import BUILD_SECONDS, base_tree, build, locate, working_tree

    assert options.base is not None
    location = locate(Path.cwd(), options.folders, options.spec.suite)
    new = working_tree(location)
    with base_tree(location, options.base) as old:
        for tree in (old, new) if options.command is not None else ():
            print(f"bt-bench: building {tree.label}", file=sys.stderr, flush=True)
            build(tree, options.command or "", options.build_seconds or BUILD_SECONDS)
        yield old, new


def lost_of(options: Options, old: Tree, new: Tree) -> Lost:
    """What the base's config has and that of the working tree no longer has."""
    from bt_bench.runs import Lost, config_of, lost_between, other_files, without_variant

    lost, warnings = Lost(), [*without_variant(options.spec, new)]
    warnings += [*other_files(options.spec, old, new), *_other_settings(old, new)]
    file, path = _file_of(options), None
    if file is not None:
        path = config_of(old, new, file)
    unseen = "so cases that the config no longer has are not noticed"
    if path is not None and not path.is_file():
        warnings.append(f"{old.label} has no {options.config}, {unseen}")
    elif path is not None:
        try:
            lost = lost_between(options.load(str(path)), options.spec, (old, new))
        except UsageError as error:
            warnings.append(old.named(f"the config cannot be read, {unseen}: {error}"))
    return replace(lost, warnings=(*lost.warnings, *warnings))


def _file_of(options: Options) -> Path | None:
    """The file of the config, if it can differ between revisions: one of the user's."""
    from bt_bench.config import stock_config_names, stock_config_path

    suite = options.spec.suite
    if options.config == "-":
        return None
    if options.config not in stock_config_names(suite):
        return Path(options.config)
    return None if suite.folder is None else stock_config_path(options.config, suite)


def _other_settings(old: Tree, new: Tree) -> list[str]:
    """Warnings about project settings that differ between the revisions."""
    from bt_bench.config import read_settings
    from bt_bench.runs import place_below

    here = place_below(Path.cwd(), new.top)
    there = old.top if here is None else old.top / here
    try:
        before = read_settings(there if there.is_dir() else old.top)
    except UsageError as error:
        return [old.named(f"its settings cannot be read: {error}")]
    after = read_settings(Path.cwd())
    found = []
    if before.device != after.device:
        found.append(f"[tool.bt-bench] device is {after.device}, but {before.device} in the base")
    folders = [
        [place_below(folder, tree.top) for folder in settings.kernels or ()]
        for settings, tree in ((before, old), (after, new))
    ]
    if folders[0] != folders[1]:
        found.append("[tool.bt-bench] kernels names other folders than in the base")
    return found


def entries_here(options: Options) -> list[VariantEntry]:
    """The working tree's variants, from the repository if it has kernels, else as installed."""
    from bt_bench.runs import locate, working_tree

    try:
        found = working_tree(locate(Path.cwd(), options.folders, options.spec.suite)).variants()
    except UsageError:
        return choose_variants(options.spec, options.folders)
    return entries_of(options, found)


def entries_of(options: Options, found: Mapping[str, VariantEntry]) -> list[VariantEntry]:
    """The variants of the config that exist."""
    return [found[name] for name in options.spec.variants if name in found]


def finish(judged: Judged, options: Options, folder: Path | None) -> ExitCode:
    """Writes all reports, then reports the outcome."""
    from bt_bench.analysis import not_comparable
    from bt_bench.cli.outputs import Output

    kept = [] if folder is None else [Output("json", folder / VERDICTS_NAME)]
    write_outputs(judged, [*kept, *options.outputs])
    if folder is not None:
        print(f"bt-bench: rounds and verdicts are in {folder}/", file=sys.stderr)
    why = not_comparable(judged.judgements)
    nothing = {} if why is None else {", ".join(judged.others) or judged.title: why}
    return final_code(judged, options.fail_on, nothing, require_power=options.require_power)


def make_folder(name: str, out: Path | None) -> Path:
    """Makes the folder of a gate: `--out`, which must be new, or one named after the time."""
    from bt_bench.config import read_settings
    from bt_bench.results import RunFolder

    if out is not None and out.exists():
        raise UsageError(f"--out {out} exists already; expected a new folder for the gate")
    if out is not None:
        return RunFolder.create_exact(out).path
    parent = read_settings(Path.cwd()).reports or Path("reports")
    return RunFolder.create(parent, f"gate-{name}").path
