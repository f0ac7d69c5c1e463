"""The commands that repeat a run, as a stranger can use them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from bt_bench.base import one_line
from bt_bench.results.run.result import VariantResult


def sweep_commands(results: Sequence[VariantResult]) -> list[str]:
    """Return the command line of each run, quoted for a shell, without duplicates.

    Absolute paths are shortened, see `command_text`.
    """
    tools = (
        tool
        for result in results
        for tool in (*(part.tool for part in result.parts or ()), result.tool)
    )
    return [*dict.fromkeys(command_text(tool.command) for tool in tools)]


def command_text(command: Sequence[str]) -> str:
    """Return a command line, quoted for a shell.

    Absolute paths are shortened to their last name: others do not have these folders, and their
    names may be private.
    """
    return one_line(shlex.join(map(public_text, command)))


def public_text(argument: str) -> str:
    """Return an argument of a command, with an absolute path shortened to its last name."""
    option, equals, path = argument.rpartition("=") if argument.startswith("-") else ("", "", "")
    path = path if equals else argument
    if not Path(path).is_absolute():
        return argument
    return f"{option}{equals}{Path(path).name or 'DIR'}"


def folder_of(result: VariantResult) -> str | None:
    """Return the folder that a run's command names by `--out`, shortened likewise, if any."""
    words = result.tool.command
    found = [after for word, after in pairwise(words) if word == "--out"]
    found += [word.removeprefix("--out=") for word in words if word.startswith("--out=")]
    return public_text(found[-1]) if found else None
