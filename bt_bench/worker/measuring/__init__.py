"""Timing and counting: what one case costs, on a device or without one."""
