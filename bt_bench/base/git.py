"""Git, run on exactly the given folder, and no other program with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from bt_bench.base.errors import UsageError

# A hook or an outer git would point git at another repository, index or store of objects, or let it
# read paths otherwise. Git's settings stay (GIT_CONFIG_*): CI systems declare safe folders there.
_OF_ANOTHER_GIT = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_PREFIX", "GIT_COMMON_DIR"),
        *("GIT_INTERNAL_SUPER_PREFIX", "GIT_INDEX_FILE", "GIT_INDEX_VERSION", "GIT_NAMESPACE"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH"),
        *("GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE"),
        *("GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS"),
        *("GIT_ICASE_PATHSPECS", "GIT_ATTR_SOURCE"),
    }
)
# Suppress everything else that a repository or the user's settings would have git run or write:
# hooks, a file system monitor (empty, since older versions expect a hook there), and the refreshed
# index of a checkout that is only read.
_NOTHING_ELSE = (
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.fsmonitor="),
    # Tracked files can imitate a bare repository, whose settings run programs and whose contents
    # would answer every query.
    *("-c", "safe.bareRepository=explicit"),
    "--no-optional-locks",
)
_MOST_LINES = 20


def run_git(
    folder: Path, *arguments: str, seconds: float = 10.0, trees: Iterable[Path] = ()
) -> bytes:
    """Run git in a folder, and return its output.

    Args:
        folder: git's working directory.
        arguments: git's command, and its options.
        seconds: time limit.
        trees: as for `git_environment`.

    Raises:
        UsageError: if git is missing, fails, or takes too long, with its whole message.
    """
    import subprocess  # not above: `--help` imports this module, and that one takes milliseconds

    try:
        done = subprocess.run(
            git_command(folder, *arguments, trees=trees),
            capture_output=True,
            env=git_environment(folder, trees) | {"LC_ALL": "C"},
            timeout=seconds,
            check=False,
            start_new_session=True,  # Ctrl-C must not interrupt its cleanup
        )
    except FileNotFoundError:
        raise UsageError(
            "git is not installed; expected it on PATH, outside the repository"
        ) from None
    except OSError as error:  # such as a script without an interpreter's name, or too many files
        raise UsageError(
            f"git cannot be run: {error.strerror or error}: {error.filename or 'git'}; expected a "
            "program that runs, first on PATH"
        ) from None
    except subprocess.TimeoutExpired:
        what = " ".join(arguments[:2])
        raise UsageError(f"git {what} did not end within {seconds:g} s in {folder}") from None
    if done.returncode:
        # All of it: where git refuses a folder, the remedy is in its last line.
        said = done.stderr.decode("utf-8", "backslashreplace").expandtabs(2).splitlines()
        lines = [line.rstrip() for line in said if line.strip()][-_MOST_LINES:]
        text = "\n  ".join(lines) or f"exit code {done.returncode}"
        raise UsageError(f"git: {text}")
    return done.stdout


def git_command(folder: Path, *arguments: str, trees: Iterable[Path] = ()) -> list[str]:
    """Return the command line that runs git in a folder; see `git_environment` for `trees`.

    Raises:
        FileNotFoundError: if PATH has no git outside the trees.
    """
    program = shutil.which("git", path=_path_outside((folder, *trees)))
    if program is None:
        raise FileNotFoundError("git")
    return [program, *_NOTHING_ELSE, "-C", str(folder), *arguments]


def git_environment(folder: Path, trees: Iterable[Path] = ()) -> dict[str, str]:
    """Return the environment for git, without PATH entries that are relative or inside trees.

    A tree under judgement must choose neither the git that examines it nor the programs that git
    starts.

    Args:
        folder: git's working directory.
        trees: folders of other trees.
    """
    return without_another_git() | {"PATH": _path_outside((folder, *trees))}


def _path_outside(folders: Iterable[Path]) -> str:
    """Return PATH without relative entries and entries inside the checkouts around folders."""
    # As strings, since this runs twice for each call of git.
    places = {os.path.realpath(str(folder)) for folder in (*folders, os.curdir)}
    tops = tuple({_with_separator(top) for place in places if (top := _checkout_around(place))})
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if _is_outside(entry, tops))


def _with_separator(top: str) -> str:
    return top if top.endswith(os.sep) else f"{top}{os.sep}"  # "/" has one


def _is_outside(entry: str, tops: tuple[str, ...]) -> bool:
    if not os.path.isabs(entry):  # noqa: PTH117
        return False
    # The program itself, too: a virtual environment's link may lead into a tree.
    real = os.path.realpath(entry), os.path.realpath(f"{entry}/git")
    return not any(f"{path}{os.sep}".startswith(tops) for path in real)


def _checkout_around(place: str) -> str | None:
    """Return the top of the checkout around a folder, or `None`, without calling git."""
    while not os.path.lexists(f"{place}{os.sep}.git"):
        above = os.path.dirname(place)  # noqa: PTH120
        if above == place:
            return None
        place = above
    return place


def without_another_git() -> dict[str, str]:
    """Return the environment without the variables that point git to another repository."""
    return {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_GIT}
