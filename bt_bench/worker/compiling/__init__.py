"""Kernels compiled ahead for GPUs that are not there: exact figures, without noise."""
