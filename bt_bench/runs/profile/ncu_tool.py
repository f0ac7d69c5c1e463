"""Nsight Compute: its location, its version, its command line and its known errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bt_bench.base.errors import UsageError
from bt_bench.base.processes import run_kept
from bt_bench.results import Cache
from bt_bench.worker.measuring.nvtx_ranges import DOMAIN

OLDEST = (2023, 3)
"""The first version that is known to have every option used here."""

INSTALLED = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
"""Places to search if it is not on `PATH`, in this order; of one place's versions, the newest."""

REPORT_SUFFIX = ".ncu-rep"

_INSTALL = (
    "install Nsight Compute (https://developer.nvidia.com/nsight-compute; it comes with the CUDA "
    "toolkit), or add its folder to PATH"
)
_VERSION_SECONDS = 30.0
_SHOWN_LINES = 6

# Texts of its errors, with causes and remedies. The first one that is found is reported.
_KNOWN_ERRORS = (
    (
        "ERR_NVGPUCTRPERM",
        "may not read this GPU's counters (ERR_NVGPUCTRPERM), which the driver gives to "
        "administrators alone; run as root, give a container the capability SYS_ADMIN, or have the "
        "driver's module loaded with NVreg_RestrictProfilingToAdminUsers=0 "
        "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)",
    ),
    (
        "Driver resource was unavailable",
        "cannot have the GPU's counters, since another tool uses them; end other profilers, and "
        "pause monitors such as DCGM (dcgmi profile --pause)",
    ),
    (
        "LibraryNotLoaded",
        "cannot be initialised here (LibraryNotLoaded): a sandbox such as gVisor hides the "
        "driver's profiling interface; run on the host, or in a container that passes it through",
    ),
    (
        "not supported on device",
        "does not support this GPU; use a version of it that does, or another GPU",
    ),
)


@dataclass(frozen=True)
class Ncu:
    """An installed Nsight Compute.

    Args:
        path: path of its program.
        version: its version as printed, such as `2025.3.1.0`.
    """

    path: Path
    version: str

    @property
    def modules(self) -> list[Path]:
        """Folders that may hold its module for Python, the likeliest first.

        In a CUDA toolkit its program is a script in another folder.
        """
        here = self.path.resolve().parent
        toolkit = _newest(here.parent.glob("nsight-compute-*"))
        apart = _newest(Path("/opt/nvidia/nsight-compute").glob("*"))
        return [folder / "extras" / "python" for folder in (here, *toolkit, *apart)]


def _newest(paths: Iterable[Path]) -> list[Path]:
    """Sort paths with versions in their names, the newest first."""
    return sorted(paths, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))])[::-1]


def find_ncu(installed: Sequence[str] | None = None) -> Ncu:
    """Find Nsight Compute, first on `PATH`.

    Args:
        installed: patterns of absolute paths to search after that; `None`: `INSTALLED`.

    Raises:
        UsageError: if it is missing, prints no version, or is too old.
    """
    on_path = shutil.which("ncu")
    patterns = INSTALLED if installed is None else installed
    found = [Path(on_path)] if on_path else _installed(patterns)
    if not found:
        raise UsageError(f"ncu is neither on PATH nor at {' or '.join(patterns)}; {_INSTALL}")
    text = _printed_version(found[0])
    match = re.search(r"Version (\d+)\.(\d+)[.\d]*", text)
    if match is None:
        raise UsageError(f"{found[0]} --version names no version: {_last_lines(text)}; {_INSTALL}")
    version = match[0].removeprefix("Version ")
    if (int(match[1]), int(match[2])) < OLDEST:
        raise UsageError(
            f"{found[0]} is Nsight Compute {version}, which is too old; expected "
            f"{OLDEST[0]}.{OLDEST[1]} or newer, so {_INSTALL}"
        )
    return Ncu(found[0], version)


def _installed(patterns: Sequence[str]) -> list[Path]:
    return [
        path
        for pattern in patterns
        for path in _newest(Path("/").glob(pattern.removeprefix("/")))
        if os.access(path, os.X_OK)
    ]


def _printed_version(path: Path) -> str:
    try:
        done = run_kept([str(path), "--version"], env=os.environ, seconds=_VERSION_SECONDS)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{path} --version has not ended after {_VERSION_SECONDS:g} s; {_INSTALL}"
        ) from None
    return f"{done.stdout}\n{done.stderr}"


def ncu_command(
    ncu: Ncu, report: Path, ranges: Sequence[str], l2: Cache, launches: int, marked: Sequence[str]
) -> list[str]:
    """Return the command that profiles the kernels in some ranges of a process.

    Args:
        ncu: the program.
        report: the file to write, which ends in `REPORT_SUFFIX`.
        ranges: names of the NVTX ranges.
        l2: whether caches are flushed before each replay of a kernel.
        launches: the most kernels to profile.
        marked: the command of the process.
    """
    includes = (part for name in ranges for part in ("--nvtx-include", _filter(name)))
    return [
        str(ncu.path),
        *("--target-processes", "application-only"),
        *("--clock-control", "none"),
        *("--cache-control", "none" if l2 is Cache.HOT else "all"),
        *("--set", "full"),
        *("--import-source", "yes"),
        "--nvtx",
        *includes,
        *("--launch-count", str(launches)),
        *("--export", str(report.with_suffix(""))),
        *marked,
    ]


def _filter(name: str) -> str:
    """Return a filter for a push-pop range; characters that may have a meaning match any."""
    return f"regex:{DOMAIN}@{re.sub(r'[^A-Za-z0-9_=-]', '.', name)}/"


def environment() -> Mapping[str, str]:
    """Return the environment of the process: it imports from the same paths, with line info."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONSAFEPATH": "1",
        "TRITON_DISABLE_LINE_INFO": "0",
    }


def is_known_error(printed: str) -> bool:
    """Return whether Nsight Compute printed a known reason why it cannot profile here."""
    return any(text in printed for text, _ in _KNOWN_ERRORS)


def why_no_report(ncu: Ncu, printed: str) -> UsageError:
    """Return an error for the user that explains why Nsight Compute wrote no report.

    Args:
        ncu: the program.
        printed: all that it printed.
    """
    for text, meaning in _KNOWN_ERRORS:
        if text in printed:
            return UsageError(f"{ncu.path} {meaning}")
    return UsageError(f"{ncu.path} wrote no report: {_last_lines(printed)}")


def _last_lines(printed: str) -> str:
    """Return its last errors and warnings, or else the end of all it printed."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("==ERROR==", "==WARNING=="))]
    return "; ".join((telling or lines)[-_SHOWN_LINES:]) or "it printed nothing"
