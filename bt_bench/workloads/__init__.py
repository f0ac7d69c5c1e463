"""Workloads: the exact calls of an engine, made up or from a trace."""
