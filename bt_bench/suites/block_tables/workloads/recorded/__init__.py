"""Recorded calls of an engine, as `bt_kernels.engines.recordings` reads them."""
