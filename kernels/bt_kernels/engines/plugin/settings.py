"""The variables of the environment that switch the plugin."""

from __future__ import annotations

import os

from bt_kernels.engines.plugin.messages import warn_once

MODE = "BT_KERNELS"
SHADOW_STEPS = "BT_KERNELS_SHADOW_STEPS"
COUNTERS = "BT_KERNELS_COUNTERS"

OFF, ON, SHADOW = "off", "on", "shadow"
DEFAULT_SHADOW_STEPS = 1000


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


def shadow_steps() -> int:
    """Return the number of steps that shadow mode compares, 1,000 by default.

    Anything but a positive integer in `BT_KERNELS_SHADOW_STEPS` is the default, with a warning.
    """
    value = os.environ.get(SHADOW_STEPS, "") or str(DEFAULT_SHADOW_STEPS)
    if value.isascii() and value.isdigit() and int(value):
        return int(value)
    warn_once(
        f"{SHADOW_STEPS}={value!r} is not a positive integer; {DEFAULT_SHADOW_STEPS:,} steps are "
        "compared"
    )
    return DEFAULT_SHADOW_STEPS


def prints_counters() -> bool:
    """Return whether host time is measured, and the counters are printed at exit."""
    return os.environ.get(COUNTERS, "") not in ("", "0")
