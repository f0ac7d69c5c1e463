"""Profiles of one step, for `bt-bench profile`."""
