"""Timing and counting: the cost of one case, on a GPU or on the CPU."""
