"""Workloads: the batches of a case, derived from workloads of block tables."""
