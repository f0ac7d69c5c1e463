"""Correctness: variants against the reference."""
