"""Helpers of tests that run variants."""

from __future__ import annotations

import torch

from bt_bench.variants.catalogue import default_variants, find_variants, load
from bt_bench.worker.checking.check import check

SHIPPED = tuple(default_variants())


def classes(names, folders=()):
    """Classes of variants by name."""
    found = find_variants(folders)
    return {name: load(found[name]) for name in names}


def variant_of(name, native=True):
    """The class of a variant, with or without helpers in C."""
    return type("Chosen", (classes([name])[name],), {"native": native})


def assert_equal(tables, reference):
    """Holds that all buffers of tables have the contents of the reference's."""
    for found, wanted in [
        *zip(tables.block_tables, reference.block_tables, strict=True),
        *zip(tables.input_block_tables, reference.input_block_tables, strict=True),
        (tables.slot_mappings, reference.slot_mappings),
    ]:
        assert torch.equal(found.cpu().to(torch.int64), wanted)


def failures(variants, workload, operations, device, title="test", seed=0, rounds=1):
    """Messages of the variants that fail, by variant and operation: empty if all pass."""
    verdicts = check(variants, workload, operations, device, title=title, seed=seed, rounds=rounds)
    return {
        (name, str(operation)): verdict.reason.message
        for (name, operation), verdict in verdicts.items()
        if verdict.reason is not None
    }
