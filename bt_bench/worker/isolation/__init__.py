"""Keeps arms apart from each other and from the harness, and names whose code did what."""
