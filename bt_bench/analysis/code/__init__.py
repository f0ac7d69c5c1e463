"""Analysis of compiled kernels, and their comparison: PTX, machine code, messages of ptxas."""

from __future__ import annotations

from bt_bench.analysis.code.kernel_changes import KernelChange, kernel_changes
from bt_bench.analysis.code.kernels import (
    KernelRow,
    accesses_as_text,
    chain_as_text,
    kernel_rows,
    of_space,
    waits_as_text,
)
