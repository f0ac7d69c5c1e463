"""Calls git on exactly the given folder, and without running anything else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

# A hook or an outer git would point git at another repository or index.
_OF_ANOTHER_GIT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
# What a repository or the user's settings would have git run or write beside what it is asked for:
# hooks, a monitor of the file system (empty, as older versions expect a hook there), and the
# refreshed index of a checkout that is only looked at.
_NOTHING_ELSE = (
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.fsmonitor="),
    # Files that are tracked can make a folder look like a bare repository, with settings that run
    # programs; what is asked of git there would be answered by them.
    *("-c", "safe.bareRepository=explicit"),
    "--no-optional-locks",
)


def git_command(folder: Path, *arguments: str, trees: Iterable[Path] = ()) -> list[str]:
    """Return the command line that runs git in a folder; see `git_environment` for `trees`.

    Raises:
        FileNotFoundError: without a git on PATH outside the trees.
    """
    program = shutil.which("git", path=_path_outside((folder, *trees)))
    if program is None:
        raise FileNotFoundError("git")
    return [program, *_NOTHING_ELSE, "-C", str(folder), *arguments]


def git_environment(folder: Path, trees: Iterable[Path] = ()) -> dict[str, str]:
    """Return the environment for git, whose PATH has neither folders of trees nor relative ones.

    A tree that is judged must not choose the git that is asked about it, nor what git starts.

    Args:
        folder: where git runs.
        trees: folders of other trees.
    """
    return without_another_git() | {"PATH": _path_outside((folder, *trees))}


def _path_outside(folders: Iterable[Path]) -> str:
    """Return PATH without entries that lie in the checkouts around folders, or are relative."""
    # By strings, since this is done twice for each call of git.
    places = {os.path.realpath(str(folder)) for folder in (*folders, os.curdir)}
    tops = tuple({_with_separator(top) for place in places if (top := _checkout_around(place))})
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if _is_outside(entry, tops))


def _with_separator(top: str) -> str:
    return top if top.endswith(os.sep) else f"{top}{os.sep}"  # "/" has one


def _is_outside(entry: str, tops: tuple[str, ...]) -> bool:
    if not os.path.isabs(entry):  # noqa: PTH117
        return False
    # The program itself too: a link of an environment may lead into a tree.
    real = os.path.realpath(entry), os.path.realpath(f"{entry}/git")
    return not any(f"{path}{os.sep}".startswith(tops) for path in real)


def _checkout_around(place: str) -> str | None:
    """Return the top of the checkout that a folder is in, which git is not asked for."""
    while not os.path.lexists(f"{place}{os.sep}.git"):
        above = os.path.dirname(place)  # noqa: PTH120
        if above == place:
            return None
        place = above
    return place


def without_another_git() -> dict[str, str]:
    """The environment without variables that would point git to another repository."""
    return {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_GIT}
