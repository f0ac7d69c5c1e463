"""`BlockTables` under its former name, for one release; import it from `bt_kernels`."""

from __future__ import annotations

from bt_kernels.engines import BlockTables

__all__ = ["BlockTables"]
