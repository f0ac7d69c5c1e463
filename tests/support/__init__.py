"""Helpers of the tests: made-up results, scripted devices, processes, commands."""
