"""The GPUs that kernels can be compiled for, and their shared memory."""

from __future__ import annotations

from bt_bench.base.errors import UsageError, names_hint

# Shared memory that a program can have, in bytes, by compute capability. Source: CUDA C++
# Programming Guide, "Technical Specifications per Compute Capability".
MAX_SHARED_BYTES = {
    80: 163 * 1024,
    86: 99 * 1024,
    89: 99 * 1024,
    90: 227 * 1024,
    100: 227 * 1024,
    103: 227 * 1024,
    120: 99 * 1024,
}


def capability_of(target: str) -> int:
    """Return the compute capability of a target: 90 for `sm_90`.

    Raises:
        UsageError: for an unknown target.
    """
    known = {f"sm_{capability}": capability for capability in MAX_SHARED_BYTES}
    if target not in known:
        raise UsageError(f"unknown target {target!r}; {names_hint(target, known)}")
    return known[target]
