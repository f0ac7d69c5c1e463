"""A user's own copy of vLLM, found without running it."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from bt_bench.base.errors import UsageError

VLLM = "vllm"
UNKNOWN = "unknown"

_EXPECTED = "an installation, an unpacked wheel, or an unpacked source distribution"


@dataclass(frozen=True)
class Source:
    """A copy of vLLM.

    Args:
        root: the folder that holds the package's folder `vllm`.
        release: its version, or `UNKNOWN` if no file gives it, as in a checkout.
    """

    root: Path
    release: str


def find_source(folder: Path | None) -> Source:
    """Return the copy in a folder; without one, the installed vLLM.

    Raises:
        UsageError: if there is none.
    """
    if folder is None:
        spec = importlib.util.find_spec(VLLM)
        if spec is None or spec.origin is None:
            raise UsageError("vLLM is not installed; pass a copy by --source DIR")
        folder = Path(spec.origin).parent.parent
    elif not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UsageError(f"--source {folder} {what}; expected the folder of {_EXPECTED}")
    elif not (folder / VLLM).is_dir():
        raise UsageError(
            f"--source {folder} has no folder {VLLM}; expected the folder that holds it, of "
            f"{_EXPECTED}"
        )
    return Source(folder, release_in(folder))


def release_in(root: Path) -> str:
    """Read the release from the metadata beside the package or the version file in it."""
    candidates = [(path, r"^Version: (.+)$") for path in root.glob("vllm-*.dist-info/METADATA")]
    candidates.append((root / VLLM / "_version.py", r"^__version__\b.*=\s*['\"](.+)['\"]"))
    for path, pattern in candidates:
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            stated = re.search(pattern, text, re.MULTILINE)
            if stated:
                return stated[1].strip()
    return UNKNOWN
