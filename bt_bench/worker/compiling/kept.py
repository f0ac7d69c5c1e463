"""A cache of compiled variants; unchanged sources are not compiled again.

An entry holds one variant. It is valid while everything that it depends on is unchanged: bt-bench,
the suite, the cases and the files that they name, the toolchain, the variant with its package of
kernels, and the files of all other modules that it used.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from bt_bench.base import expanded
from bt_bench.base.atomic import replacing
from bt_bench.config import SweepSpec
from bt_bench.protocol import is_regular, load_suite
from bt_bench.results import StaticCensus
from bt_bench.variants import VariantEntry, local_imports
from bt_bench.worker.compiling.census import DEFAULT_TARGETS, Compiled, compile_cases

_PACKAGE = Path(__file__).resolve().parents[2]
_LIBRARIES = ("triton", "torch", "numpy")
_MOST_ENTRIES = 64
_SETTINGS = ("TRITON_", "PTXAS_", "DISABLE_", "LLVM_", "MLIR_", "NVPTX_", "USE_")
"""Beginnings of the variables that Triton and its tools compile by."""


class _Entry(BaseModel):
    """A cache entry: a variant's census, and digests of its modules' files by path."""

    files: dict[str, str]
    census: StaticCensus


def take_code_census(
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    targets: Sequence[str] = DEFAULT_TARGETS,
    on_traceback: Callable[[str], None] | None = None,
    on_compile: Callable[[Sequence[str]], None] | None = None,
) -> StaticCensus:
    """Take a census with the code of all kernels; compile only variants missing from the cache.

    Args:
        spec: its cases and operations are used; its variants are ignored.
        entries: the variants, at least one.
        targets: the targets to compile for.
        on_traceback: called with the traceback of each failure of a variant.
        on_compile: called with the names of the variants to be compiled, if there are any.

    Raises:
        UsageError: see `take_census`; also if nvdisasm is not found.
        BtBenchError: for a defect of bt-bench.
    """
    common = _common(spec, targets)
    keys = {entry.name: _digest([common, _identity(entry)]) for entry in entries}
    context: dict[str, Any] = {"operations": load_suite(spec.suite).by_name}
    found = {name: _read(key, context) for name, key in keys.items()}
    missing = [entry for entry in entries if found[entry.name] is None]
    if missing:
        if on_compile is not None:
            on_compile([entry.name for entry in missing])
        compiled = compile_cases(spec, missing, targets, on_traceback=on_traceback, code=True)
        for entry in missing:
            census = compiled.census.restricted(variants=[entry.name])
            found[entry.name] = census
            # A failure is not cached: its cause may be gone next time.
            if all(of.failure is None for of in census.variants[0].operations):
                _keep(keys[entry.name], entry.name, compiled)
    parts = [census for census in found.values() if census is not None]
    return parts[0].model_copy(
        update={"variants": [variant for part in parts for variant in part.variants]}
    )


def _folder() -> Path:
    """Return the folder of the cache.

    Raises:
        OSError: if no home directory is known.
    """
    home = expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    if not home.is_absolute():
        raise FileNotFoundError(f"{home} is in no folder that is known")
    return home / "bt-bench" / "compiled"


def _common(spec: SweepSpec, targets: Sequence[str]) -> list[object]:
    """Return the parts of a cache key that all variants share."""
    cases = [
        [
            case.name,
            case.parameters.model_dump(mode="json"),
            [_of_file(path) for path in case.parameters.files()],
        ]
        for case in spec.cases
    ]
    suite = [] if spec.suite.folder is None else [_of_files(_files_of(spec.suite.folder))]
    settings = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
    return [
        _of_files(_PACKAGE.rglob("*.py")),
        [spec.name, cases, [str(operation) for operation in spec.operations], list(targets)],
        [spec.suite.name, *suite],
        [platform.python_version(), *map(_version, _LIBRARIES), sorted(settings.items())],
    ]


def _files_of(suite: Path) -> Iterable[Path]:
    """Return the files of a user's suite: all of its folder, or the file that it is."""
    return [suite, *local_imports(suite)] if suite.is_file() else suite.rglob("*.py")


def _identity(entry: VariantEntry) -> list[str]:
    return [entry.name, str(entry.path), str(entry.kernels), entry.source_sha256()]


def _read(key: str, context: dict[str, Any]) -> StaticCensus | None:
    """Return the census cached under a key; `None` if there is none, or it is out of date."""
    try:
        text = (_folder() / f"{key}.json").read_bytes()
        entry = _Entry.model_validate_json(text, context=context)
    except (OSError, ValidationError):
        return None
    same = all(_of_file(Path(path)) == digest for path, digest in entry.files.items())
    return entry.census if same else None


def _keep(key: str, name: str, compiled: Compiled) -> None:
    files = {path: _of_file(Path(path)) for path in compiled.files[name]}
    entry = _Entry(files=files, census=compiled.census.restricted(variants=[name]))
    with suppress(OSError):  # an entry that cannot be written is compiled again
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / f"{key}.json") as file:
            file.write(entry.model_dump_json(exclude_none=True).encode())
        oldest_first = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in oldest_first[:-_MOST_ENTRIES]:
            path.unlink()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "absent"


def _of_files(paths: Iterable[Path]) -> str:
    return _digest([[str(path), _of_file(path)] for path in sorted(filter(is_regular, paths))])


def _of_file(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
