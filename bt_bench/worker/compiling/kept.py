"""Keeps what was compiled, so that the same sources are not compiled again.

An entry is of one variant. It counts as long as all that it was made of is as it was: bt-bench, the
suite, cases and the files that they name, the toolchain, the variant with its package of kernels,
and the files of all other modules that it used.
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

from bt_bench.base.atomic import replacing
from bt_bench.config import SweepSpec
from bt_bench.protocol import load_suite
from bt_bench.results import StaticCensus
from bt_bench.variants import VariantEntry
from bt_bench.worker.compiling.census import DEFAULT_TARGETS, Compiled, compile_cases

_PACKAGE = Path(__file__).resolve().parents[2]
_LIBRARIES = ("triton", "torch", "numpy")
_MOST_ENTRIES = 64


class _Entry(BaseModel):
    """What is kept of a variant, and digests of the files of its modules by their paths."""

    files: dict[str, str]
    census: StaticCensus


def take_code_census(
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    targets: Sequence[str] = DEFAULT_TARGETS,
    on_traceback: Callable[[str], None] | None = None,
    on_compile: Callable[[Sequence[str]], None] | None = None,
) -> StaticCensus:
    """As `take_census`, with the code of all kernels; compiles only what is not kept.

    Args:
        spec: gives cases and operations; its variants are ignored.
        entries: the variants.
        targets: what to compile for.
        on_traceback: takes the traceback of each failure of a variant.
        on_compile: takes the names of the variants that are about to be compiled, if any are.

    Raises:
        UsageError: as `take_census`; if there is no variant.
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
            # What failed may have done so for a reason that is gone next time.
            if all(of.failure is None for of in census.variants[0].operations):
                _keep(keys[entry.name], entry.name, compiled)
    parts = [census for census in found.values() if census is not None]
    return parts[0].model_copy(
        update={"variants": [variant for part in parts for variant in part.variants]}
    )


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "bt-bench" / "compiled"


def _common(spec: SweepSpec, targets: Sequence[str]) -> list[object]:
    """What all variants have in common."""
    cases = [
        [
            case.name,
            case.parameters.model_dump(mode="json"),
            [_of_file(path) for path in case.parameters.files()],
        ]
        for case in spec.cases
    ]
    suite = [] if spec.suite.folder is None else [_of_files(spec.suite.folder.rglob("*.py"))]
    settings = {name: value for name, value in os.environ.items() if name.startswith("TRITON_")}
    return [
        _of_files(_PACKAGE.rglob("*.py")),
        [spec.name, cases, [str(operation) for operation in spec.operations], list(targets)],
        [spec.suite.name, *suite],
        [platform.python_version(), *map(_version, _LIBRARIES), sorted(settings.items())],
    ]


def _identity(entry: VariantEntry) -> list[str]:
    return [entry.name, str(entry.path), str(entry.kernels), entry.source_sha256()]


def _read(key: str, context: dict[str, Any]) -> StaticCensus | None:
    """What is kept under a key, if it still counts."""
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
    folder = _folder()
    with suppress(OSError):  # what cannot be kept is compiled again
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
    return _digest([[str(path), _of_file(path)] for path in sorted(paths)])


def _of_file(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
