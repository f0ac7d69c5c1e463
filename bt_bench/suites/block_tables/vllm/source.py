"""The sources of vLLM's block tables, found without running them."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bt_bench.base.errors import UsageError
from bt_bench.upstream.source import UNKNOWN, release_in

VLLM = "vllm"
"""Name of the variant if there is one source; of all of them together if there are more."""

BLOCK_TABLE = "vllm.v1.worker.gpu.block_table"
BUFFER_UTILS = "vllm.v1.worker.gpu.buffer_utils"
INPUT_BATCH = "vllm.v1.worker.gpu.input_batch"

TABLE_MODULES = (BLOCK_TABLE, BUFFER_UTILS)
"""The files that block tables need."""

INPUT_MODULES = (*TABLE_MODULES, INPUT_BATCH)
"""The files that the preparation of a batch needs."""

_HOW = "pip download vllm==0.33.0 --no-deps, and unpack the wheel"


@dataclass(frozen=True)
class VllmSource:
    """A vLLM whose files are available.

    Args:
        root: folder that holds the package's folder `vllm`.
        release: its version, or `unknown` if no file states it.
        modules: the modules that are used of it.
    """

    root: Path
    release: str
    modules: tuple[str, ...] = TABLE_MODULES

    def path_of(self, module: str) -> Path:
        """Return the path of one of its modules, whether or not the file exists."""
        return self.root.joinpath(*module.split(".")).with_suffix(".py")

    def update(self, digest: hashlib._Hash) -> None:
        """Add to a digest the files with code that may run in a step."""
        for module in (*self.modules, *_UTILITIES):
            path = self.path_of(module)
            digest.update(path.read_bytes() if path.is_file() else b"absent")


_UTILITIES = ("vllm.utils.torch_utils", "vllm.utils.math_utils")


@dataclass(frozen=True)
class Sources:
    """The available sources, or why there are none.

    Args:
        found: sources of distinct releases, at most one of them unknown.
        reason: why `found` is empty.
    """

    found: tuple[VllmSource, ...]
    reason: str = ""

    def names(self) -> dict[str, VllmSource]:
        """Return the variants that they make, by name."""
        if len(self.found) == 1:
            return {VLLM: self.found[0]}
        return {f"{VLLM}_{source.release}": source for source in self.found}


def is_opponent(name: str) -> bool:
    """Return whether a variant's name is one that `Sources.names` can give."""
    return re.fullmatch(rf"{VLLM}(_(\d.*|{UNKNOWN}))?", name) is not None


def find_sources(folders: Sequence[Path], modules: tuple[str, ...] = TABLE_MODULES) -> Sources:
    """Return the given sources; without any, the installed vLLM.

    Args:
        folders: from `--vllm-source`.
        modules: the modules that a source must have.

    Raises:
        UsageError: for a folder that holds none, and for two of one release.
    """
    if not folders:
        return _installed(modules)
    found: dict[str, VllmSource] = {}
    for folder in folders:
        source = _given(folder, modules)
        if source.release in found:
            raise UsageError(
                f"--vllm-source {folder}: vLLM {source.release}, as in "
                f"{found[source.release].root}; expected sources of different releases, each with "
                "the vllm-*.dist-info folder of its wheel, which names it"
            )
        found[source.release] = source
    return Sources(tuple(found.values()))


def _given(folder: Path, modules: tuple[str, ...]) -> VllmSource:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UsageError(f"--vllm-source {folder} {what}; expected a folder ({_HOW})")
    source = VllmSource(folder.resolve(), release_in(folder), modules)
    missing = _missing(source)
    if missing:
        raise UsageError(f"--vllm-source {folder} holds no {missing}; expected one ({_HOW})")
    return source


def _installed(modules: tuple[str, ...]) -> Sources:
    spec = importlib.util.find_spec(VLLM)
    if spec is None or spec.origin is None:
        return Sources((), "vLLM is not installed; pass an unpacked wheel by --vllm-source DIR")
    root = Path(spec.origin).parent.parent
    source = VllmSource(root, release_in(root), modules)
    missing = _missing(source)
    if missing:
        return Sources((), f"the installed vLLM {source.release} has no {missing}")
    return Sources((source,))


def _missing(source: VllmSource) -> str:
    """Return the first required file that a source lacks; empty if it lacks none."""
    paths = [source.path_of(module) for module in source.modules]
    missing = [path.relative_to(source.root).as_posix() for path in paths if not path.is_file()]
    return missing[0] if missing else ""
