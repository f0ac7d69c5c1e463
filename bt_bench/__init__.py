"""Measures and compares the block-table kernels of LLM inference engines."""

__version__ = "0.1.0"
