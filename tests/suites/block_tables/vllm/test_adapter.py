"""Somebody else's block tables as a variant: run as they are, adapted by their signatures."""

from __future__ import annotations

import sys

import pytest
import torch
from support.variants import failures
from support.vllm_stand_in import NEW, OLD, write_stand_in

from bt_bench.base.errors import UsageError
from bt_bench.protocol import default_suite
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.checking.differences import tamed
from bt_bench.suites.block_tables.vllm.differences import MEANINGS
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_bench.suites.block_tables.workloads.conformance.random_calls import random_workload
from bt_bench.variants.catalogue import find_variants, load_apart
from bt_bench.worker.checking.check import check
from bt_kernels.layout import TableLayout

# Rows of one length in all groups, as the older signatures need them; block ids times 262144 wrap.
LAYOUT = TableLayout((16, 5, 262_144), (4, 13, 1), max_num_reqs=5, max_num_batched_tokens=40)
OPERATIONS = (ops.STEP, ops.GATHER_SLOTS, ops.GATHER)
ALWAYS = {"writes_to_a_row", "positions_outside", "int32_slots", "refusals"}


def loaded(root):
    return load_apart(find_variants(opponents=default_suite().opponents([root]))["vllm"])


def wrong(variant, device):
    workload = tamed(random_workload(3, LAYOUT, 3, full=True), variant.differences)
    return failures({"vllm": variant}, workload, OPERATIONS, device)


@pytest.mark.parametrize("signatures", [NEW, OLD], ids=["new", "old"])
def test_both_signatures_pass_with_their_differences(signatures, tmp_path, device):
    variant = loaded(write_stand_in(tmp_path, signatures))
    assert variant.features == frozenset()
    own = {"one_length", "rows_kept", "slots_kept"} if signatures is OLD else set()
    assert variant.differences == ALWAYS | own
    assert variant.differences <= set(MEANINGS)
    assert wrong(variant, device) == {}
    shrinking = conformance_workloads(0)["shrinking"]
    outcome = check({"vllm": variant}, shrinking, [ops.STEP], device)["vllm", ops.STEP]
    assert outcome.report.differences == sorted(variant.differences)


@pytest.mark.parametrize(
    ("signatures", "change", "message"),
    [
        (NEW, {"pad_from": "starts[-1] + 1"}, "slot_mappings[0, "),
        (NEW, {"zero": ""}, "input_block_tables[0]["),
        (NEW, {"rows": "num_reqs_padded - 1"}, "block table of group 0 has shape"),
        # An older release leaves rows alone: one that does not is not what it is taken for.
        (OLD, {"zero": "            target[len(idx_mapping) :] = 0\n"}, "input_block_tables[0]["),
        (OLD, {"pad_from": "starts[-1]"}, "slot_mappings[0, "),
        (OLD, {"rows": "1"}, "block table of group 0 has shape"),
        (OLD, {"tokens": "1"}, "slot mappings has shape"),
        (OLD, {"zero_dummies": "        self.input_block_tables[0].zero_()\n"}, "dummy outputs"),
    ],
)
def test_what_differs_beyond_that_fails(signatures, change, message, tmp_path, device):
    variant = loaded(write_stand_in(tmp_path, signatures, **change))
    assert message in wrong(variant, device)["vllm", "step"]


def test_its_methods_are_called_as_they_are(tmp_path, device):
    tables = loaded(write_stand_in(tmp_path, NEW))(LAYOUT, device)
    for name in (
        "append_block_ids",
        "apply_staged_writes",
        "gather_block_tables",
        "compute_slot_mappings",
    ):
        method = getattr(tables, name)
        assert type(method.__self__).__name__ == "BlockTables", name
        assert str(method.__code__.co_filename).startswith(str(tmp_path)), name


def test_arms_share_no_code(tmp_path):
    root = write_stand_in(tmp_path, NEW)
    before = set(sys.modules)
    first, second = loaded(root), loaded(root)
    for name in ("apply_staged_writes", "compute_slot_mappings"):
        of_first, of_second = (getattr(variant.wrapped, name) for variant in (first, second))
        assert of_first.__code__ is not of_second.__code__
        assert of_first.__globals__["Staged"] is not of_second.__globals__["Staged"]
    assert first.restore.__code__ is not second.restore.__code__
    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] == "vllm"}


def test_a_layout_of_several_lengths_is_not_for_the_older_one(tmp_path, device):
    variant = loaded(write_stand_in(tmp_path, OLD))
    workload = conformance_workloads(0)["corners_int32"]
    outcome = check({"vllm": variant}, workload, [ops.STEP], device)["vllm", ops.STEP]
    assert outcome.reason.code == "unsupported"
    assert "one_length: the rows of all groups hold the same number of" in outcome.reason.message


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("block_table.py", "self, idx_mapping, num", "self, magic, idx_mapping, num", "'magic'"),
        ("block_table.py", "def gather_block_tables", "def gather", "has no gather_block_tables"),
        ("block_table.py", "class BlockTables", "class Tables", "lacks a class 'BlockTables'"),
        ("block_table.py", "import divide", "import cut", "needs 'cut' of vllm.utils.math_utils"),
        ("block_table.py", "vllm.utils.math_utils", "vllm.maths", "needs 'divide' of vllm.maths"),
        ("block_table.py", "import Counts", "import Sums", "needs 'Sums' of vllm.v1.worker.gpu"),
        ("block_table.py", "class ", "class: ", "does not parse"),
        ("buffer_utils.py", "class Staged", "1 / 0\nclass Staged", "does not run: ZeroDivision"),
    ],
)
def test_a_release_that_is_not_known_is_refused(file, old, new, message, tmp_path):
    path = write_stand_in(tmp_path, NEW) / "vllm/v1/worker/gpu" / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UsageError, match=message):
        loaded(tmp_path)


def test_a_snapshot_is_put_back_in_place(tmp_path):
    tables = loaded(write_stand_in(tmp_path, NEW))(LAYOUT, "cpu")
    start = tables.snapshot()
    tables.append_block_ids(1, ([5], [6, 7], [8]), True)
    tables.apply_staged_writes()
    tables.gather_block_tables(torch.tensor([1]), 2)
    assert tables.num_dirty_rows == 1
    tables.append_block_ids(2, ([1], [], []), True)  # still staged
    tables.restore(start)
    tables.apply_staged_writes()
    assert not any(table.any() for table in tables.block_tables + tables.input_block_tables)
    assert tables.num_dirty_rows == 0
    assert not tables.num_blocks.any()
    assert not tables._tables.num_blocks.gpu.any()
