"""Planned variants and cases of a run, read from the config in its folder without suite code."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from bt_bench.base.errors import UsageError
from bt_bench.config.problems import Problems
from bt_bench.config.sources import read_config
from bt_bench.config.yaml import parse_yaml
from bt_bench.protocol import find_suite
from bt_bench.results import CONFIG_NAME

# Everything up to the next plain key at the beginning of a line; comments and lists in brackets may
# begin there too. Parsing a whole config of a thousand cases would take far longer.
_VARIANTS = re.compile(r"^variants[ \t]*:.*\n(?:(?!\w+[ \t]*:).*\n)*", re.MULTILINE)


def planned_variants(folder: Path, found: Collection[str] = ()) -> tuple[str, ...] | None:
    """Return the variants that a run folder's config names, in its order; `None` without a config.

    Args:
        folder: the run folder.
        found: variants with results, which must therefore have been planned.

    Raises:
        UsageError: for a config without a list of variants, or one that lacks variants in `found`.
    """
    path = folder / CONFIG_NAME
    if not os.path.lexists(path):
        return None  # a run of an earlier version, or results that somebody collected
    if path.exists() and not (path.is_file() or path.is_dir()):  # opening a FIFO may wait for ever
        raise UsageError(f"{path} is not a regular file; expected the config of the run")
    text = read_config(path).text
    parts = _VARIANTS.findall(text if text.endswith("\n") else f"{text}\n")
    names = _parsed(parts[0], path, Problems()).get("variants") if len(parts) == 1 else None
    if not isinstance(names, list) or not set(found) <= {str(name) for name in names}:
        problems = Problems()
        names = _parsed(text, path, problems).get("variants")
        problems.raise_if_any()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"{path} does not name the variants that were measured; expected a list under "
            "'variants', "
            "as sweep writes it. Put it back as it was"
        )
    if unplanned := [name for name in found if name not in names]:
        raise UsageError(
            f"{path} does not name {', '.join(unplanned)} under 'variants', but their results "
            "are beside it. Put it back as it was, or move the results of other runs away"
        )
    return tuple(dict.fromkeys(names))


def planned_cases(folder: Path) -> int:
    """Count the planned cases of a run, one per operation, from its expanded config.

    Raises:
        UsageError: for a folder without such a config.
    """
    top = _top(folder)
    counts = [len(each) for each in map(top.get, ("cases", "operations")) if isinstance(each, list)]
    if len(counts) != 2:
        raise UsageError(f"{folder / CONFIG_NAME} is not the config of a run, as sweep writes it")
    return counts[0] * counts[1]


def planned_folders(folder: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return the folders that a run's config names: a user's suite, if any, and variant folders.

    Raises:
        UsageError: for a folder without a config.
    """
    top = _top(folder)
    suite, kernels = top.get("suite"), top.get("kernels")
    if isinstance(suite, str):
        suite = find_suite(suite, folder).folder
    named = kernels if isinstance(kernels, list) else [kernels] if kernels else []
    return None if suite is None else str(suite), tuple(map(str, named))


def _top(folder: Path) -> dict[str, object]:
    """Return a run's config as plain values."""
    path, problems = folder / CONFIG_NAME, Problems()
    top = _parsed(read_config(path).text, path, problems)
    problems.raise_if_any()
    return top


def _parsed(text: str, path: Path, problems: Problems) -> dict[str, object]:
    root = parse_yaml(text, str(path), problems)
    top = root.plain() if root is not None else None
    return top if isinstance(top, dict) else {}
