"""Calls git on exactly the given folder, and without running anything else."""

from __future__ import annotations

import os
from pathlib import Path

# A hook or an outer git would point git at another repository or index.
_OF_ANOTHER_GIT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
# What a repository or the user's settings would have git run or write beside what it is asked for:
# hooks, a monitor of the file system (empty, as older versions expect a hook there), and the
# refreshed index of a checkout that is only looked at.
_NOTHING_ELSE = (
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.fsmonitor="),
    "--no-optional-locks",
)


def git_command(folder: Path, *arguments: str) -> list[str]:
    """The command line that runs git in a folder."""
    return ["git", *_NOTHING_ELSE, "-C", str(folder), *arguments]


def without_another_git() -> dict[str, str]:
    """The environment without variables that would point git to another repository."""
    return {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_GIT}
