"""Isolation of arms from each other and from the harness, and attribution of errors to code."""
