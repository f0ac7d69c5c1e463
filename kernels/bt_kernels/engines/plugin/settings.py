"""The variables of the environment that switch the plugin."""

from __future__ import annotations

import os
from pathlib import Path

from bt_kernels.engines.plugin.messages import warn_once

MODE = "BT_KERNELS"
SHADOW_STEPS = "BT_KERNELS_SHADOW_STEPS"
COUNTERS = "BT_KERNELS_COUNTERS"
RECORD = "BT_KERNELS_RECORD"
RECORD_MB = "BT_KERNELS_RECORD_MB"
REPRO = "BT_KERNELS_REPRO"
INPUTS = "BT_KERNELS_INPUTS"

OFF, ON, SHADOW = "off", "on", "shadow"
DEFAULT_SHADOW_STEPS = 1000
DEFAULT_RECORD_MB = 256


def mode() -> str:
    """Return `"on"`, `"shadow"` or `"off"`; any other `BT_KERNELS` is off, with a warning."""
    value = os.environ.get(MODE, "")
    if value in (ON, SHADOW):
        return value
    if value not in (OFF, ""):
        warn_once(
            f"{MODE}={value!r} is unknown; expected on, shadow or off. The engine keeps its own "
            "block tables"
        )
    return OFF


def prepares_inputs() -> bool:
    """Return whether ours prepares whole batches; off unless `BT_KERNELS_INPUTS` is `on`.

    Any other value is off, with a warning.
    """
    value = os.environ.get(INPUTS, "")
    if value not in (ON, OFF, ""):
        warn_once(
            f"{INPUTS}={value!r} is unknown; expected on or off. The engine prepares its batches "
            "by its own code"
        )
    return value == ON


def shadow_steps() -> int:
    """Return the number of steps that shadow mode compares, 1,000 by default.

    Anything but a positive integer in `BT_KERNELS_SHADOW_STEPS` is the default, with a warning.
    """
    return _positive(SHADOW_STEPS, DEFAULT_SHADOW_STEPS, "steps are compared")


def record_file() -> Path | None:
    """Return the file that calls are recorded in, or `None`."""
    value = os.environ.get(RECORD, "")
    return Path(value) if value else None


def record_bytes() -> int:
    """Return the bytes after which a file of recorded calls is full, 256 MB by default.

    Anything but a positive integer in `BT_KERNELS_RECORD_MB` is the default, with a warning.
    """
    return _positive(RECORD_MB, DEFAULT_RECORD_MB, "MB are recorded in a file") * 10**6


def repro_folder() -> Path | None:
    """Return the folder for repro files, or `None`: the one of temporary files."""
    value = os.environ.get(REPRO, "")
    return Path(value) if value else None


def _positive(name: str, default: int, then: str) -> int:
    value = os.environ.get(name, "") or str(default)
    if value.isascii() and value.isdigit() and int(value):
        return int(value)
    warn_once(f"{name}={value!r} is not a positive integer; {default:,} {then}")
    return default


def prints_counters() -> bool:
    """Return whether host time is measured, and the counters are printed at exit."""
    return os.environ.get(COUNTERS, "") not in ("", "0")
