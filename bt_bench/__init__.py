"""Measures and compares kernels of a few microseconds; block tables are its first suite."""

from __future__ import annotations

__version__ = "0.1.0"
