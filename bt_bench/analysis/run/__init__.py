"""Analyses of one run: budgets, rooflines, and the cases that stand out."""
