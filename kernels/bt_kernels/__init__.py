"""Block-table kernels for LLM inference engines; needs torch, triton and numpy only.

`TableLayout` gives the sizes, `bt_kernels.interface` the operations, and each file of
`bt_kernels.variants` one implementation of them.
"""

from bt_kernels.layout import PAD_SLOT_ID, TableLayout

__all__ = ["PAD_SLOT_ID", "TableLayout"]
