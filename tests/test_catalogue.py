"""Loading variants: shared, and with code of their own."""

from __future__ import annotations

import sys

from bt_bench.catalogue import find_variants, load, load_apart


def test_arms_that_are_loaded_apart_share_no_code():
    """Python specialises code for the types that it meets; so each arm needs code of its own."""
    entry = find_variants()["fused"]
    before = {name: module for name, module in sys.modules.items() if "bt_kernels" in name}
    first, second = load_apart(entry), load_apart(entry)
    assert first is not second
    for method in ("append_block_ids", "prepare_step", "apply_staged_writes", "restore"):
        assert getattr(first, method).__code__ is not getattr(second, method).__code__, method
    globals_of = [variant.append_block_ids.__globals__ for variant in (first, second)]
    for name in ("check_append", "StagedWrites", "HostRing", "launches"):
        assert globals_of[0][name] is not globals_of[1][name], name
    after = {name: module for name, module in sys.modules.items() if "bt_kernels" in name}
    assert before == after


def test_what_is_loaded_shared_is_the_same_again():
    entry = find_variants()["fused"]
    assert load(entry) is load(entry)


def test_a_users_file_is_loaded_apart_as_well(tmp_path):
    (tmp_path / "mine.py").write_text("from bt_kernels.variants.fused import Variant as Variant\n")
    entry = find_variants([tmp_path])["mine"]
    shared, apart = load(entry), load_apart(entry)
    assert apart is not shared
    assert apart.prepare_step.__globals__ is not shared.prepare_step.__globals__
