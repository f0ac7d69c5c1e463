"""Simulated gates: how often they find slowdowns, and how often they are wrong."""
