"""Calibration: the costs of the device and the host themselves."""
