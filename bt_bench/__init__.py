"""Measures and compares the block-table kernels of LLM inference engines."""

from __future__ import annotations

__version__ = "0.1.0"
