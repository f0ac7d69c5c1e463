"""The terminal that commands print to, as described by the environment."""

from __future__ import annotations

import os
import re

_LEAST = {"COLUMNS": 20, "TERMINAL_WIDTH": 20, "LINES": 2}
"""Sizes that Rich or Typer read, each with the least value that leaves room for output."""


def heed_only_sane_sizes() -> None:
    """Drop sizes that no terminal has from the environment, before Rich and Typer read them.

    They then ask the terminal itself. In a width of 0 Rich would print nothing at all.
    """
    for name, least in _LEAST.items():
        size = os.environ.get(name, "")
        if not re.fullmatch("[0-9]{1,4}", size) or int(size) < least:
            os.environ.pop(name, None)


def take_no_log_for_a_terminal() -> None:
    """Keep Typer from treating a GitHub log as a terminal and colouring it."""
    if os.environ.get("GITHUB_ACTIONS"):
        os.environ.setdefault("_TYPER_FORCE_DISABLE_TERMINAL", "1")
