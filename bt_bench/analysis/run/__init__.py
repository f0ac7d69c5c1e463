"""Analyses of one run: savings against its baseline, budgets, cross-checks of methods."""
