"""Parsers for the output of ptxas: resource usage by `-v`, and the version."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_VERSION = re.compile(r"\bV(\d[\w.]*)")


@dataclass(frozen=True)
class Usage:
    """The resources of a kernel's thread.

    Args:
        registers: registers of the kernel and of all functions that it calls.
        spill_bytes: bytes stored and loaded for lack of registers.
        stack_bytes: bytes of local memory.
    """

    registers: int
    spill_bytes: int
    stack_bytes: int


def read_usage(log: str) -> Usage | None:
    """Parse the log of one kernel; return `None` for any other text.

    Functions that are not inlined have frames of their own, which add up.
    """
    frames = [tuple(map(int, found)) for found in _FRAME.findall(log)]
    registers = [int(found) for found in _REGISTERS.findall(log)]
    if not frames or not registers:
        return None
    return Usage(
        registers=max(registers),
        spill_bytes=sum(stores + loads for _, stores, loads in frames),
        stack_bytes=sum(stack for stack, _, _ in frames),
    )


def read_version(text: str) -> str:
    """Return the version that `ptxas --version` printed; the whole text if it has none."""
    found = _VERSION.search(text)
    return found[1] if found else text.strip()
