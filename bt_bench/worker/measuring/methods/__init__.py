"""Timing methods: events, captured graphs, the profiler, the interpreter."""
