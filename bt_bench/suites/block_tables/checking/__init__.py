"""Checks of block-table variants against the reference."""
