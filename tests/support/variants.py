"""Helpers of tests that run variants."""

from __future__ import annotations

from bt_bench.variants.catalogue import default_variants, find_variants, load
from bt_bench.worker.checking.check import check

SHIPPED = tuple(default_variants())


def classes(names, folders=()):
    """Classes of variants by name."""
    found = find_variants(folders)
    return {name: load(found[name]) for name in names}


def failures(variants, workload, operations, device, title="test", seed=0, rounds=1):
    """Messages of the variants that fail, by variant and operation: empty if all pass."""
    verdicts = check(variants, workload, operations, device, title=title, seed=seed, rounds=rounds)
    return {
        (name, str(operation)): verdict.reason.message
        for (name, operation), verdict in verdicts.items()
        if verdict.reason is not None
    }
