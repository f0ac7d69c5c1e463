"""Parts shared by all modes of `bt-bench gate`: the trees, the variants, the report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.base.errors import BtBenchError, ExitCode, UsageError
from bt_bench.base.names import RECORDING_NAME, VERDICTS_NAME
from bt_bench.cli.exits import say
from bt_bench.cli.loading import new_folder
from bt_bench.cli.options import choose_variants
from bt_bench.cli.outputs import Output, final_code, write_outputs
from bt_bench.cli.pages import write_gate_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bt_bench.analysis import Judged, Rules
    from bt_bench.base.names import DeviceChoice, FailOn
    from bt_bench.config import Settings, SweepSpec
    from bt_bench.results import StaticCensus
    from bt_bench.runs import Lost, Tree
    from bt_bench.variants import VariantEntry


@dataclass(frozen=True)
class Options:
    """The request, once config and environment are taken into account.

    Args:
        spec: the config.
        base: the revision to compare with, if any.
        against: the file to compare with, if any.
        folders: folders of variants, from `--kernels`.
        command: the command of `--build`.
        build_seconds: its timeout; `None` for the default.
        on_traceback: receives the tracebacks of errors in variants; `None`: none are wanted.
        rules: margin and alpha.
        fail_on: verdicts that fail the gate.
        outputs: where the report goes.
        config: the value of `--config`.
        suite: the value of `--suite`, if it was given.
        load: reads another config with the same flags, and with a suite in place of `--suite`.
        folders_of: returns the folders of variants by flag, else by a config, else by the settings
            at a place.
        chosen: names of the selections made by flags: of variants, cases and operations.
        allow_partial: accept a stored result whose run did not finish.
        require_power: fail a gate that could not have found the slowdown it looks for.
        show_all: list all verdicts in a table, with how they were decided.
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
    suite: str | None
    load: Callable[[str, str | None], SweepSpec]
    folders_of: Callable[[SweepSpec | None, Path], list[Path]]
    chosen: frozenset[str] = frozenset()
    allow_partial: bool = False
    require_power: bool = False
    show_all: bool = False
    build_seconds: float | None = None
    on_traceback: Callable[[str], None] | None = None


@dataclass(frozen=True)
class Trees:
    """Both revisions, each with the kernels that its own config and settings name.

    Args:
        base: a checkout of the base.
        head: the working tree, copied beside it.
        lost: cases that only the base's config has, and its other differences.
        device: the device in the base's settings; `None` if they name none.
    """

    base: Tree
    head: Tree
    lost: Lost
    device: DeviceChoice | None = None

    def at_home(self, judged: Judged) -> Judged:
        """Return a comparison that has the user's own paths, and none of the copy."""
        return replace(
            judged,
            judgements=tuple(
                replace(each, detail=self.head.at_home(each.detail)) for each in judged.judgements
            ),
            facts=tuple(map(self.head.at_home, judged.facts)),
            warnings=tuple(map(self.head.at_home, judged.warnings)),
        )

    def tracebacks(self, take: Callable[[str], None] | None) -> Callable[[str], None] | None:
        """Return a function that takes tracebacks as another does, likewise."""
        return None if take is None else lambda text: take(self.head.at_home(text))


@contextmanager
def both_trees(options: Options) -> Iterator[Trees]:
    """Yield checkouts of base and working tree, built if there is a `--build` command.

    Raises:
        BtBenchError: as raised in the block, with paths of the user's checkout.
    """
    from bt_bench.runs import BUILD_SECONDS, base_tree, build, copied, locate, working_tree

    assert options.base is not None
    location = locate(Path.cwd(), options.folders, options.spec.suite)
    here = working_tree(location)
    with base_tree(location, options.base) as old:
        new = copied(here, old)
        try:
            for tree in (old, new) if options.command is not None else ():
                say(f"building {tree.label}")
                build(tree, options.command or "", options.build_seconds or BUILD_SECONDS)
            yield _by_own_configs(options, old, new)
        except BtBenchError as error:
            error.args = (new.at_home(str(error)),)
            raise


def _by_own_configs(options: Options, old: Tree, new: Tree) -> Trees:
    """Read the base's config, locate its kernels by it, and find cases that the head has lost."""
    from bt_bench.runs import (
        location_in,
        lost_between,
        other_files,
        other_places,
        other_suite,
        without_variant,
    )

    spec = options.spec
    suite = _suite_in_base(options, old, new)
    theirs, warnings = _config_in_base(options, old, new, suite)
    settings, device, said = _other_settings(old, new)
    ref = theirs.suite if theirs is not None else spec.suite
    folders = options.folders_of(theirs or spec, settings)
    old = replace(old, location=location_in(old, new, folders, ref))
    before = theirs or spec
    before = before.model_copy(update={"variants": _variants_of(options, before, old)})
    lost = lost_between(before, spec, (old, new))
    found = [
        *lost.warnings,
        *without_variant(spec, new),
        *other_places(old, new),
        *other_suite(old, new),
        *other_files(spec, old, new),
        *said,
        *warnings,
    ]
    return Trees(old, new, replace(lost, warnings=tuple(found)), device)


def _variants_of(options: Options, spec: SweepSpec, base: Tree) -> list[str]:
    """Return a config's variants in the base; if the config lists none, add all the base ships.

    A config without a list has the variants of the installed suite, which may be the head's.
    """
    from bt_bench.protocol import load_suite
    from bt_bench.variants import REFERENCE, default_variants

    if "variants" in options.chosen or base.location.kernels is None:
        return spec.variants
    if set(spec.variants) != set(default_variants(load_suite(options.spec.suite))):
        return spec.variants
    found = base.variants().values()
    shipped = [entry.name for entry in found if entry.shipped and entry.name != REFERENCE]
    return list(dict.fromkeys([*spec.variants, *shipped]))


def _suite_in_base(options: Options, old: Tree, new: Tree) -> str | None:
    """Return the counterpart of `--suite` in the base's tree, if it is a folder in the head's."""
    from bt_bench.runs import place_below

    if options.suite is None or options.spec.suite.folder is None:
        return options.suite
    place = place_below(Path(options.suite), new.location.top)
    return options.suite if place is None else str(old.top / place)


def _config_in_base(
    options: Options, old: Tree, new: Tree, suite: str | None
) -> tuple[SweepSpec | None, list[str]]:
    """Read the base's version of the config; `None` if it cannot differ, or with a warning."""
    unseen = "so anything that the config has lost or changed goes unnoticed"
    try:
        path = _path_in_base(options, old, new, suite)
        if path is None:
            return None, []
        if not path.is_file():
            return None, [f"{old.label} has no {options.config}, {unseen}"]
        return options.load(str(path), suite), []
    except UsageError as error:
        return None, [old.named(f"the config cannot be read, {unseen}: {error}")]


def _path_in_base(options: Options, old: Tree, new: Tree, suite: str | None) -> Path | None:
    """Return the base's file for `--config`; `None` if it cannot differ.

    The value may be the name of a suite's config in one tree, and a path in the other.
    """
    from bt_bench.config import own_config
    from bt_bench.protocol import find_suite
    from bt_bench.runs import config_of

    def in_base(given: str | None, where: str) -> Path | None:
        ref = None if given is None else find_suite(given, Path.cwd(), where)
        file = own_config(options.config, ref)
        if file is None or file.is_relative_to(old.top):
            return file
        return config_of(old, new, file)

    try:
        path = in_base(suite, "the base's --suite")
    except UsageError:  # it has no such suite
        path = None
    # The name may stand for a file that the base lacks: then take the place of the head's file.
    return path if path is not None and path.is_file() else in_base(options.suite, "--suite")


def _other_settings(old: Tree, new: Tree) -> tuple[Path, DeviceChoice | None, list[str]]:
    """Locate the base's project settings, and warn if its device differs from the head's.

    The head must not choose its device: on one without a GPU, nothing would be timed.

    Returns:
        The folder to read settings from, the device, and the warnings.
    """
    from bt_bench.config import read_settings
    from bt_bench.runs import place_below

    after, there = read_settings(Path.cwd()), Path.cwd()
    if after.source is not None and place_below(after.source, new.location.top) is None:
        return there, after.device, []  # outside the repository: both revisions share them
    here = place_below(there, new.location.top)
    there = old.top if here is None else old.top / here
    there = there if there.is_dir() else old.top
    try:
        before = read_settings(there)
    except UsageError as error:
        return Path.cwd(), None, [old.named(f"its settings cannot be read: {error}")]
    if before.device == after.device:
        return there, before.device, []
    said = (
        f"[tool.bt-bench] device is {_device(after)}, but {_device(before)} in the base, which is "
        "used"
    )
    return there, before.device, [said]


def _device(settings: Settings) -> str:
    return settings.device or "not set"


def entries_here(options: Options) -> list[VariantEntry]:
    """Return the working tree's variants: from the repository if it has kernels, else installed."""
    from bt_bench.runs import locate, working_tree

    try:
        found = working_tree(locate(Path.cwd(), options.folders, options.spec.suite)).variants()
    except UsageError:
        return choose_variants(options.spec, options.folders)
    return entries_of(options, found)


def entries_of(options: Options, found: Mapping[str, VariantEntry]) -> list[VariantEntry]:
    """Return the variants of the config that exist."""
    return [found[name] for name in options.spec.variants if name in found]


def finish(
    judged: Judged,
    options: Options,
    folder: Path | None,
    censuses: Sequence[StaticCensus] = (),
) -> ExitCode:
    """Write all reports, then report the outcome.

    Args:
        judged: the verdicts.
        options: the options of the gate.
        folder: where verdicts and page go; `None` for nowhere.
        censuses: of base and head, for a static gate.
    """
    kept = [] if folder is None else [Output("json", folder / VERDICTS_NAME)]
    write_outputs(judged, [*kept, *options.outputs], options.show_all)
    if folder is not None:
        write_gate_page(judged, folder, censuses)
        timed = judged.power is not None and (folder / RECORDING_NAME).exists()
        say(f"{'rounds and ' * timed}verdicts are in {folder}/")
    return code_of(judged, options.fail_on, require_power=options.require_power)


def code_of(judged: Judged, fail_on: Sequence[FailOn], *, require_power: bool) -> ExitCode:
    """Return the exit code of a gate. If too little was compared, print the reason on stderr."""
    from bt_bench.analysis import not_comparable

    why = not_comparable(judged.judgements)
    nothing = {} if why is None else {", ".join(judged.others) or judged.title: why}
    return final_code(judged, fail_on, nothing, require_power=require_power)


def refuse_existing(out: Path | None) -> None:
    """Refuse a folder for the gate that exists."""
    if out is not None and out.exists():
        raise UsageError(f"--out {out} exists already; expected a new folder for the gate")


def make_folder(name: str, out: Path | None) -> Path:
    """Make the folder of a gate: `--out`, which must be new, or one named after the time."""
    refuse_existing(out)
    return new_folder(f"gate-{name}", None, out).path
