"""Compilation of kernels for GPUs that need not be present; its figures are exact."""
