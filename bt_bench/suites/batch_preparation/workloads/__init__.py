"""Workloads: the batches of a case, derived from those of block tables."""
