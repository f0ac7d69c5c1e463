"""In what opponents are let off, who is none, and that it is no more than that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.legality import assert_legal
from support.variants import classes, failures

from bt_bench.config.load import load_config
from bt_bench.protocol import build_workload
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.checking.differences import as_defined, tamed, undefined_on
from bt_bench.suites.block_tables.vllm.differences import MEANINGS, OpponentTables, differences_of
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_kernels.layout import TableLayout

ALL = frozenset(MEANINGS)


class Theirs(OpponentTables):
    """An opponent with every difference."""

    differences = ALL


@pytest.fixture(autouse=True)
def adapted(monkeypatch):
    """Classes that count as loaded from entries of opponents."""
    kinds = {Theirs}
    monkeypatch.setattr("bt_bench.variants.catalogue._ADAPTED", kinds)
    return kinds


@pytest.mark.parametrize(
    "parents",
    [lambda fused: (fused,), lambda fused: (fused, OpponentTables), lambda fused: (fused, Theirs)],
    ids=["a variant", "with Opponent", "with an opponent"],
)
def test_no_variant_can_excuse_itself(device, parents):
    (fused,) = classes(["fused"]).values()

    class Mine(*parents(fused)):
        differences = ALL

        def prepare_step(self, *args, **given):
            tables, slots = super().prepare_step(*args, **given)
            self.slot_mappings[slots >= 2**31] = 7 if slots.numel() else 0
            return tables, slots

    assert differences_of(Mine) == differences_of(object) == frozenset()
    assert differences_of(Theirs) == ALL
    workload = conformance_workloads(0)["corners_int32"]
    assert undefined_on(Mine, workload) is None
    assert "writes_to_a_row" in undefined_on(Theirs, workload)
    assert failures({"mine": Mine}, workload, [ops.STEP], device)


@pytest.mark.parametrize("name", ["corners", "edges", "cp4_rank1", "disabled", "shrinking"])
def test_tamed_workloads_are_legal_and_defined(name, adapted):
    workload = conformance_workloads(0)[name]
    assert tamed(workload, frozenset()) is workload
    inside = tamed(workload, ALL)
    assert_legal(inside)
    assert tamed(inside, ALL) is inside
    assert (inside is workload) == (name in ("disabled", "shrinking"))
    differences = ALL - {"one_length"}

    class Others(OpponentTables):
        pass

    Others.differences = differences
    adapted.add(Others)
    assert undefined_on(Others, inside) is None


def test_writes_to_a_row_become_what_they_amount_to():
    workload = conformance_workloads(0)["shrinking"]
    appends = (
        Append(1, ([1, 2],), False),
        Append(0, ([3],), False),
        Append(1, ([4],), True),
        Append(1, ([5],), False),
        Append(0, ([6],), False),
    )
    step = replace(workload.steps[0], appends=appends)
    (merged,) = tamed(replace(workload, steps=(step,)), ALL).steps
    assert merged.appends == (Append(1, ([4, 5],), True), Append(0, ([3, 6],), False))


def test_positions_come_to_lie_in_the_rows_of_enabled_groups():
    layout = TableLayout((4, 2), (3, 1), 5, 32, slot_mapping_enabled=(True, False))
    workload = replace(conformance_workloads(0)["shrinking"], layout=layout)
    step = replace(workload.steps[2], positions=np.array([-1, 11, 12]))
    (inside,) = tamed(replace(workload, steps=(step,)), ALL).steps
    assert inside.positions.tolist() == [11, 11, 0]


def test_int32_slots_are_exact_where_they_wrap_and_where_they_do_not():
    class Tables:
        layout = TableLayout((262_144, 3), (1, 1), 1, 4)

    ids = torch.tensor([[8191, 8192, 16_384, -1], [715_827_882, 715_827_883, 2**31 - 1, -1]])
    sizes, offset = torch.tensor([[262_144], [3]]), 2
    slots = torch.where(ids < 0, -1, ids * sizes + offset)
    product = (ids.to(torch.int32) * sizes.to(torch.int32)).long() + offset
    theirs = as_defined(frozenset({"int32_slots"}), Tables, {"slot_mappings": slots}, -9, 0)
    assert theirs["slot_mappings"].tolist() == torch.where(ids < 0, -1, product).tolist()
    wrapped = (theirs["slot_mappings"] != slots).tolist()
    assert wrapped == [[False, True, True, False]] * 2
    assert (
        as_defined(frozenset(), Tables, {"slot_mappings": slots}, -9, 0)["slot_mappings"] is slots
    )


@pytest.mark.parametrize(("size", "told"), [(715_827_882, False), (715_827_883, True)])
def test_blocks_of_2_31_tokens_over_all_ranks_are_undefined(size, told):
    layout = TableLayout((16, size), (1, 1), 1, 4, cp_size=3)
    workload = replace(conformance_workloads(0)["shrinking"], layout=layout)
    assert ("int32_ranks" in (undefined_on(Theirs, workload) or "")) == told
    alone = replace(layout, dcp_sharded=(True, False))
    assert "int32_ranks" not in (undefined_on(Theirs, replace(workload, layout=alone)) or "")


@pytest.mark.parametrize("config", ["quick", "origin"])
def test_stock_cases_are_defined_for_opponents(config):
    for case in load_config(config).cases:
        assert undefined_on(Theirs, build_workload(case.parameters)) is None, case.name
