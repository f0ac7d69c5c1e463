"""Recordings of rounds of the gate on real hardware, which `selfcheck` draws from."""

from __future__ import annotations

from pathlib import Path


def recording_paths() -> list[Path]:
    """Return the recordings of the gate's rounds that come with the package, by name."""
    return sorted(Path(__file__).resolve().parent.glob("*.json"))
