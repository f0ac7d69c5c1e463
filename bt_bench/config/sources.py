"""Sources of a config: a path, the name of a stock config, a mapping, or stdin."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bt_bench.base import refuse_stand_in
from bt_bench.base.errors import UsageError, nearest, shown
from bt_bench.config.problems import Place
from bt_bench.config.stock import stock_config_names, stock_config_path
from bt_bench.protocol import SuiteRef, find_suite, is_file_of_functions, load_suite

MAX_BYTES = 6 * 2**20
"""More than the longest valid config has; YAML is slow to parse, and takes memory."""


@dataclass(frozen=True)
class ConfigText:
    """The text of a config, its label in errors, and its default name.

    Paths in the config are relative to `folder`.
    """

    text: str
    label: str
    default_name: str
    folder: Path


Source = str | os.PathLike[str] | Mapping[str, Any]
"""A path, the bare name of a stock config, `-` for stdin, or the config itself as a mapping."""


def read_config(source: Source, suite: SuiteRef | None = None) -> ConfigText:
    """Read a config.

    Args:
        source: a path, the bare name of a stock config, `-` for stdin, or a mapping. A file that is
            named like a stock config can be given as `./quick`. A Python file of functions
            stands for the config with all of its cases.
        suite: the suite with the stock configs; `None`: the default suite.

    Raises:
        UsageError: if there is nothing to read, or it is not text.
    """
    if source == "-":
        return ConfigText(
            _decoded(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>"),
            "<stdin>",
            "stdin",
            Path.cwd(),
        )
    if isinstance(source, Mapping):
        return ConfigText(_spelled(source), "<mapping>", "mapping", Path.cwd())
    path, label = _find(source, suite)
    if is_file_of_functions(path) and path.is_file():
        found = load_suite(find_suite(str(path), Path.cwd(), where="config"))
        return ConfigText(found.own_config, label, path.stem, path.parent)
    text = _decoded(_read_bytes(path, label, lambda: _stock_hint(path, suite)), label)
    return ConfigText(text, label, path.stem, path.parent)


def _spelled(source: Mapping[str, Any]) -> str:
    """Return a mapping as JSON, which is YAML as well: a config has one way to be validated."""

    def plain(value: Any) -> Any:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, Mapping):
            return dict(value)
        if hasattr(value, "tolist"):  # a number or an array of numpy
            return value.tolist()
        raise UsageError(
            f"config has {shown(value)} of type {type(value).__name__}; expected numbers, texts, "
            "paths, lists and mappings"
        )

    try:
        return json.dumps(dict(source), default=plain, ensure_ascii=False, indent=1)
    except (TypeError, ValueError, RecursionError) as error:  # keys, circles, depth
        raise UsageError(f"config is no mapping that YAML can hold: {error}") from None


def own_config(source: str, suite: SuiteRef | None = None) -> Path | None:
    """Return the file that `read_config` reads, if it is the user's own.

    Args:
        source: as in `read_config`; stdin and configs that come with bt-bench give `None`.
        suite: as in `read_config`.
    """
    is_shipped = (suite is None or suite.folder is None) and _is_stock(source, suite)
    return None if source == "-" or is_shipped else _find(source, suite)[0]


def _find(source: str | os.PathLike[str], suite: SuiteRef | None) -> tuple[Path, str]:
    if isinstance(source, str) and _is_stock(source, suite):
        return stock_config_path(source, suite), f"{source}.yaml"
    return Path(source), os.fspath(source)


def _is_stock(source: str, suite: SuiteRef | None) -> bool:
    # A file of functions needs no other suite.
    return not is_file_of_functions(Path(source)) and source in stock_config_names(suite)


def read_text_file(path: Path, label: str, expected: str) -> str:
    """Read a text in UTF-8 of the size that a config may have.

    Args:
        path: the file.
        label: its name in messages.
        expected: the kind of file, for the message that there is none.

    Raises:
        UsageError: if there is nothing to read, or it is not text.
    """
    return _decoded(_read_bytes(path, label, lambda: f"expected {expected}"), label)


def _read_bytes(path: Path, label: str, hint: Callable[[], str]) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{label}: no such file; {hint()}") from None
    except IsADirectoryError:
        raise UsageError(f"{label}: is a directory; expected a YAML file") from None
    except PermissionError:
        raise UsageError(f"{label}: not readable; check its permissions") from None
    except OSError as error:
        raise UsageError(f"{label}: not readable: {error.strerror or error}") from None
    except ValueError:
        raise UsageError(f"{label!r}: not a path of a file; {hint()}") from None


def _stock_hint(path: Path, suite: SuiteRef | None) -> str:
    if (functions := path.with_name(f"{path.name}.py")).is_file():
        return f"did you mean the file of functions {str(functions)!r}?"
    names = stock_config_names(suite)
    if path.stem in names:
        return f"{path.stem!r} is a stock config: write {path.stem!r} in place of the path"
    like = nearest(str(path), names)
    if like is not None:
        return f"did you mean the stock config {like!r}?"
    return f"expected a YAML file, '-' for stdin, or a stock config: {', '.join(names)}"


def _decoded(data: bytes, label: str) -> str:
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"{label}: is larger than {MAX_BYTES // 2**20} MiB; expected a config. Write axes "
            "under 'product' or 'zip' in place of single cases"
        )
    refuse_stand_in(data, label, "a config")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        place = Place(label, line, column)
        raise UsageError(
            f"{place}: byte 0x{data[error.start]:02x} is not UTF-8; expected a text file in UTF-8"
        ) from None
