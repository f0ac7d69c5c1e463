"""Files with scenarios that showed a fault, which play them again after any edit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

import bt_bench
from bt_bench.base import read_text, write_text
from bt_bench.base.errors import UsageError
from bt_bench.protocol import Recipe, Suite, source_sha256
from bt_bench.results import Noun, Reason
from bt_bench.runs.faults import Found


class StoredScenarios(Noun):
    """A file with scenarios.

    Args:
        tool: version of bt-bench.
        suite: name of the suite.
        suite_sha256: digest of the suite's code, which the scenarios depend on.
        variant: the variant that they were found with.
        reason: the fault at that time.
        lines: the last scenario, for people.
        scenarios: the scenarios to play, in order.
    """

    schema_version: Literal[1] = 1
    tool: str
    suite: str
    suite_sha256: str
    variant: str
    reason: Reason
    lines: tuple[str, ...]
    scenarios: tuple[Recipe, ...] = Field(min_length=1)


def store_found(folder: Path, suite: Suite, variant: str, found: Found) -> Path:
    """Store the scenarios that reproduce a fault.

    Args:
        folder: folder of such files, which is created if it is missing.
        suite: suite of the variant.
        variant: its name.
        found: the fault, with its scenarios.

    Returns:
        The file, which the same scenarios of a variant share.

    Raises:
        OSError: if it cannot be written.
    """
    stored = StoredScenarios(
        tool=bt_bench.__version__,
        suite=suite.name,
        suite_sha256=source_sha256(suite),
        variant=variant,
        reason=found.reason,
        lines=found.lines,
        scenarios=found.needs,
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = _place_for(stored, folder, f"{variant}-{found.number}")
    write_text(path, json.dumps(stored.model_dump(mode="json"), indent=1, sort_keys=False) + "\n")
    return path


def _place_for(stored: StoredScenarios, folder: Path, name: str) -> Path:
    """Return the file that has the same scenarios, or else the first path that is free."""
    for number in count(1):
        path = folder / (f"{name}.json" if number == 1 else f"{name}-{number}.json")
        try:
            there = StoredScenarios.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return path
        except (OSError, ValidationError):  # of another version, or of something else
            continue
        if there.scenarios == stored.scenarios:
            return path
    raise AssertionError


def read_found(path: Path, suite: Suite) -> tuple[Sequence[Recipe], str]:
    """Read scenarios from a file.

    Returns:
        The scenarios, and a warning if they may no longer be those that were stored; else "".

    Raises:
        UsageError: if it is not such a file, or one of another suite.
    """
    try:
        text = read_text(
            path, str(path), "scenarios that check has stored", "reports/check/it-7.json"
        )
        stored = StoredScenarios.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(
            f"{path}: {where}: {first['msg']}; expected scenarios that `bt-bench check` has stored"
        ) from None
    if stored.suite != suite.name:
        raise UsageError(
            f"{path}: its scenarios are of the suite {stored.suite}, and not of {suite.name}; name "
            "it with --suite"
        )
    if stored.suite_sha256 == source_sha256(suite):
        return stored.scenarios, ""
    return stored.scenarios, (
        f"{path} was stored with other code of the suite {stored.suite}, whose scenarios may have "
        "been others"
    )
