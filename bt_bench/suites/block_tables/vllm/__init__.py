"""Opponents, timed beside our variants: vLLM's own tables, from an installation or a wheel."""
