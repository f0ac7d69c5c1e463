"""Warnings of the plugin, in the log of the engine."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("bt_kernels.plugin")

_SAID: set[str] = set()


def warn_once(message: str) -> None:
    """Log a warning, unless this process has logged the same one before."""
    if message not in _SAID:
        _SAID.add(message)
        LOGGER.warning("bt_kernels: %s", message)


def forget() -> None:
    """Let every warning be logged again, after the plugin was removed."""
    _SAID.clear()


def describe(error: BaseException) -> str:
    """Return the type and the message of an exception in one line."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")
