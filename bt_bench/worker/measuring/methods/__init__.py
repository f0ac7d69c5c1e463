"""The ways to take a time: events, captured graphs, the profiler, the interpreter."""
