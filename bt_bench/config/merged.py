"""The config of a merged run: the cases of its shards' configs, in the order of the whole sweep.

The texts are taken over as `dump_config` wrote them. Parsing many thousands of cases would take
minutes.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from bt_bench.base.errors import UsageError
from bt_bench.config.problems import Problems
from bt_bench.config.yaml import parse_yaml
from bt_bench.protocol import find_suite
from bt_bench.results import CONFIG_NAME

_CASES = re.compile(rb"^cases:.*\n", re.MULTILINE)
_CASE = re.compile(rb"^- ", re.MULTILINE)
_SUITE = re.compile(rb"^suite:.*\n(?:[ \t].*\n)*", re.MULTILINE)


@dataclass(frozen=True)
class ConfigParts:
    """A config as `dump_config` writes it, in two parts.

    Args:
        path: its file.
        head: the text before its cases.
        values: the values of the head.
        at: where in the file its cases begin, in bytes.
    """

    path: Path
    head: bytes
    values: Mapping[str, object]
    at: int


def read_parts(folder: Path) -> ConfigParts:
    """Read the head of the config in the folder of a run.

    Raises:
        UsageError: if there is none, or it is not as sweep writes it.
    """
    path = folder / CONFIG_NAME
    if not path.is_file():
        raise UsageError(f"{folder} has no {CONFIG_NAME}; expected the folder of a shard's run")
    text = path.read_bytes()
    match = _CASES.search(text)
    if match is None:
        raise UsageError(f"{path} has no list of cases; expected the config that sweep has written")
    head = text[: match.start()]
    problems = Problems()
    root = parse_yaml(head.decode(errors="replace"), str(path), problems)
    problems.raise_if_any()
    values = root.plain() if root is not None else None
    if not isinstance(values, dict):
        raise UsageError(
            f"{path} has nothing before its cases; expected the config that sweep has written"
        )
    return ConfigParts(path, head, values, match.end())


def merged_config(
    parts: Sequence[tuple[ConfigParts, Sequence[str]]], order: Iterable[str], folder: Path
) -> Iterator[bytes]:
    """Yield the text of the config that has the cases of all parts.

    Args:
        parts: the configs of the shards, and the names of the cases of each, in its order.
        order: names of all cases in the order of the whole sweep; others are left out.
        folder: the folder that the config will be in.

    Raises:
        UsageError: if a config does not have as many cases as names.
    """
    texts: dict[str, bytes] = {}
    for config, names in parts:
        texts |= zip(names, _case_texts(config, len(names)), strict=True)
    first = parts[0][0]
    yield _SUITE.sub(lambda _: _suite(first, folder), first.head)
    kept = [name for name in order if name in texts]
    yield b"cases:\n" if kept else b"cases: []\n"
    yield from map(texts.__getitem__, kept)


def _case_texts(config: ConfigParts, count: int) -> list[bytes]:
    with config.path.open("rb") as file:
        file.seek(config.at)
        text = file.read()
    starts = [match.start() for match in _CASE.finditer(text)]
    if len(starts) != count:
        raise UsageError(
            f"{config.path} has {len(starts)} cases; expected the {count} that the shard was given"
        )
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _suite(config: ConfigParts, folder: Path) -> bytes:
    """Return the line of a head that names the suite; a path is relative to the config's folder."""
    found = find_suite(str(config.values["suite"]), config.path.parent).folder
    if found is None:
        name = str(config.values["suite"])
    else:
        path = os.path.relpath(found, folder.resolve())
        name = path if path.startswith(".") else f"./{path}"
    text = io.StringIO()
    YAML().dump({"suite": name}, text)
    return text.getvalue().encode()
