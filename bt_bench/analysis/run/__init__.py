"""Analyses of one run: budgets, cross-checks of methods, promises of its calibration."""
