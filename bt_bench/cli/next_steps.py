"""The commands at the end of a report, ready to be pasted into the user's shell."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.cli.exits import visible

if TYPE_CHECKING:
    from bt_bench.results import RunFolder, VariantResult

PROGRAM = "bt-bench"


def program() -> str:
    """Return how to call this program: `bt-bench` if PATH finds this installation, else a path."""
    installed = Path(sys.executable).parent / PROGRAM
    on_path = shutil.which(PROGRAM)
    if on_path is not None and installed.exists() and Path(on_path).samefile(installed):
        return PROGRAM
    if installed.exists():
        return shlex.quote(near(installed))
    return f"{shlex.quote(near(Path(sys.executable)))} -m bt_bench"


def near(path: Path) -> str:
    """Return the path relative to the working directory, if it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def command(*arguments: object, called: str | None = None) -> str:
    """Return a command line of this program, quoted for a shell."""
    return f"{called or program()} {shlex.join(map(str, arguments))}"


def repeated(option: str, values: Iterable[object]) -> list[object]:
    """Return the words that give an option several times, with a value each."""
    return [word for value in values for word in (option, value)]


def resume_command(
    folder: object,
    device: str | None,
    sources: Iterable[object] = (),
    called: str | None = None,
    *,
    gpus: str | None = None,
    suite: object = None,
    kernels: Iterable[object] = (),
    profile: bool = False,
) -> str:
    """Return the command that resumes a run.

    Args:
        folder: folder of the run.
        device: value for `--device`, if any.
        sources: values for `--vllm-source`.
        called: the program's name in the command; `None`: as it can be called here.
        gpus: value for `--gpus`, if any.
        suite: folder of a user's suite.
        kernels: values for `--kernels`.
        profile: whether the run also profiles cases.
    """
    return command(
        *("sweep", "--resume", folder),
        *(() if device is None else ("--device", device)),
        *(() if gpus is None else ("--gpus", gpus)),
        *(() if suite is None else ("--suite", suite)),
        *repeated("--kernels", kernels),
        *repeated("--vllm-source", sources),
        *["--profile"] * profile,
        called=called,
    )


def _given(arguments: Sequence[str], option: str) -> list[str]:
    """Return the values of an option in a command line."""
    found: list[str] = []
    for index, argument in enumerate(arguments):
        if argument == option:
            found += arguments[index + 1 : index + 2]
        elif argument.startswith(f"{option}="):
            found.append(argument.removeprefix(f"{option}="))
    return found


def next_lines(
    folder: Path, results: Sequence[VariantResult], called: str | None = None
) -> Iterator[str]:
    """Yield lines about a run's folder and the next commands; a terminal must not wrap them.

    Args:
        folder: folder of the run.
        results: results of its variants.
        called: the program's name in commands; `None`: as it can be called here.
    """
    from bt_bench.results import RunFolder

    run = RunFolder(folder)
    yield visible(f"Results: {folder}{os.sep} ({', '.join(_files_of(run))})")
    commands = []
    is_merged = bool(results[0].shards)  # it cannot be resumed
    if any(not result.complete for result in results) and not is_merged:
        begun = results[0].tool.command
        indexed = [given for given in _given(begun, "--device") if given.startswith("cuda:")]
        gpus = next(iter(_given(begun, "--gpus")), None)
        on_cpu = results[0].environment.device == "cpu"
        device = [results[0].environment.device, *indexed][-1] if gpus is None or on_cpu else None
        sources = _given(begun, "--vllm-source")
        profile = "--profile" in begun
        suite, kernels = _folders_of(folder)
        again = resume_command(
            folder,
            device,
            sources,
            called,
            gpus=gpus,
            suite=suite,
            kernels=kernels,
            profile=profile,
        )
        commands.append(again)
    compared = _comparable(results)
    if compared:
        # Variants that failed are left out: they would only fail the comparison, too.
        some = [] if len(compared) == len(results) else ["--variants", ",".join(compared[1:])]
        commands.append(command("compare", folder, *some, called=called))
    commands.append(command("show", folder, "--all", called=called))
    if not run.page_path.is_file():
        commands.append(command("report", folder, called=called))
    for index, line in enumerate(commands):
        yield visible(f"{'Next:   ' if index == 0 else '        '} {line}")


def _files_of(run: RunFolder) -> Iterator[str]:
    """Yield the names of the files that the folder of a run has; of its results, patterns."""
    from bt_bench.base import unpacked_path
    from bt_bench.results import RESULT_SUFFIX

    yield from (path.name for path in (run.page_path, run.comparison_path) if path.is_file())
    paths = run.result_paths()
    packings = {path.name.removeprefix(unpacked_path(path).name) for path in paths}
    yield from (f"*{RESULT_SUFFIX}{packing}" for packing in sorted(packings))


def _folders_of(folder: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return the folders in a run's config, which the command that resumes it has to name, too."""
    from bt_bench.base.errors import UsageError
    from bt_bench.config import planned_folders

    try:
        return planned_folders(folder)
    except UsageError:
        return None, ()


def _comparable(results: Sequence[VariantResult]) -> list[str]:
    """Return the variants that did not fail, the base first; none if nothing can be compared."""
    from bt_bench.analysis import baseline_index

    failed = {
        result.variant.name
        for result in results
        if any(case.status == "failed" for case in result.cases)
    }
    base = results[baseline_index(results)].variant.name
    names = [base, *(each.variant.name for each in results if each.variant.name != base)]
    whole = [name for name in names if name not in failed]
    is_partial = any(not result.complete for result in results)
    return [] if is_partial or base in failed or len(whole) < 2 else whole
