"""`bt-bench profile`, with a file for each of its tools."""
