"""Axes, layers and names."""

from __future__ import annotations

from itertools import product

import pytest

from bt_bench.results.run.plan import Plan
from bt_bench.suites.block_tables import operations as ops


def names(spec):
    return [case.name for case in spec.cases]


def parameters(spec, *keys):
    return [tuple(getattr(case.parameters, key) for key in keys) for case in spec.cases]


def test_only_cases_are_needed(load):
    spec = load("cases: [{name: a, requests: 1, tokens: 2}]")
    assert spec.name == "my"
    assert spec.description == ""
    assert spec.variants == [
        *("baseline", "fused", "fused_apply", "fused_gather_slots", "one_launch"),
        "one_launch_graph",
    ]
    assert spec.operations == [ops.GATHER_SLOTS, ops.STEP]
    assert spec.plan == Plan()
    assert names(spec) == ["a"]
    assert spec.cases[0].parameters.workload == "uniform"


def test_all_keys(load):
    spec = load(
        """\
        name: example
        description: for a test
        variants: [mine, fused]
        operations: [slots]
        plan: {rounds: 7, seed: 3}
        defaults: {groups: 2}
        cases: [{name: a, requests: 1, tokens: 2}]
        """
    )
    assert (spec.name, spec.description) == ("example", "for a test")
    assert spec.variants == ["mine", "fused"]
    assert spec.operations == [ops.SLOTS]
    assert spec.plan == Plan(rounds=7, seed=3)
    assert spec.cases[0].parameters.block_sizes() == (16, 16)


def test_product_last_axis_fastest(load):
    spec = load(
        """\
        cases:
          - name: "d_{groups}grp_{requests}req"
            tokens: 64
            product: {groups: [1, 2], requests: [1, 16, 64]}
        """
    )
    assert names(spec) == [
        "d_1grp_1req",
        "d_1grp_16req",
        "d_1grp_64req",
        "d_2grp_1req",
        "d_2grp_16req",
        "d_2grp_64req",
    ]
    assert parameters(spec, "groups", "requests") == list(product([1, 2], [1, 16, 64]))


def test_zip_advances_inside_the_product(load):
    spec = load(
        """\
        cases:
          - name: z
            product: {groups: [1, 2]}
            zip: {requests: [1, 2], tokens: [10, 20]}
        """
    )
    assert names(spec) == [
        "z-groups=1-requests=1",
        "z-groups=1-requests=2",
        "z-groups=2-requests=1",
        "z-groups=2-requests=2",
    ]
    assert parameters(spec, "groups", "requests", "tokens") == [
        (1, 1, 10),
        (1, 2, 20),
        (2, 1, 10),
        (2, 2, 20),
    ]


def test_zipped_axes_are_appended_until_the_rows_differ(load):
    spec = load(
        """\
        cases:
          - name: "z{requests}"
            zip: {requests: [1, 1, 2], tokens: [10, 20, 20], seed: [0, 1, 2]}
        """
    )
    assert names(spec) == ["z1-tokens=10", "z1-tokens=20", "z2-tokens=20"]


def test_axis_of_one_value_is_not_appended(load):
    spec = load("cases: [{name: a, requests: 1, tokens: 2, product: {groups: [4]}}]")
    assert names(spec) == ["a"]
    assert parameters(spec, "groups") == [(4,)]


def test_axes_of_features(load):
    spec = load(
        """\
        defaults: {requests: 1, tokens: 2, groups: 2}
        cases:
          - name: d
            product: {disabled_groups: [[], [1], [0, 1]]}
          - name: "w{sliding_window}"
            product: {sliding_window: [0, 127, [127, 0]]}
          - name: "r{cp_rank}of{cp_size}"
            zip: {cp_size: [1, 4, 4], cp_rank: [0, 0, 3]}
          - name: o
            product: {custom_outputs: [false, true], dummy_requests: [3]}
        """
    )
    assert names(spec) == [
        *("d-disabled_groups=none", "d-disabled_groups=1", "d-disabled_groups=0x1"),
        *("w0", "w127", "w127x0", "r0of1", "r0of4", "r3of4"),
        *("o-custom_outputs=false", "o-custom_outputs=true"),
    ]
    assert [case.parameters.reaches() for case in spec.cases[3:6]] == [(0, 0), (127, 127), (127, 0)]
    assert parameters(spec, "dummy_requests")[-1] == (3,)


def test_block_size_axis_with_lists(load):
    spec = load(
        """\
        cases:
          - name: a
            requests: 1
            tokens: 2
            product: {block_size: [16, [16, 64]]}
          - name: "b_{groups}grp"
            requests: 1
            tokens: 2
            product: {block_size: [[16], [16, 64]]}
          - name: "c_{groups}grp"
            requests: 1
            tokens: 2
            product: {block_size: [[16, 64], [32, 64]]}
        """
    )
    assert names(spec) == [
        "a-block_size=16",
        "a-block_size=16x64",
        "b_1grp",
        "b_2grp",
        "c_2grp-block_size=16x64",
        "c_2grp-block_size=32x64",
    ]
    assert [case.parameters.block_sizes() for case in spec.cases[:2]] == [(16,), (16, 64)]


def test_window_merges_part_by_part_and_names_itself(load):
    spec = load(
        """\
        defaults: {workload: trace, trace: azure_code, window: {steps: 8}}
        cases:
          - name: "{window}"
            product: {window: [{at: start}, {at: busiest, steps: 4}, {at: 70}]}
          - name: "slow_{rate}"
            window: {at: middle, name: lunch}
            product: {rate: [0.5, 4.0], window.steps: [1, 2]}
        """
    )
    windows = [
        (case.parameters.window.name, case.parameters.window.at, case.parameters.window.steps)
        for case in spec.cases
    ]
    assert names(spec) == [
        "start",
        "busiest",
        "step70",
        "slow_0.5-window.steps=1",
        "slow_0.5-window.steps=2",
        "slow_4-window.steps=1",
        "slow_4-window.steps=2",
    ]
    assert windows[:4] == [
        ("start", "start", 8),
        ("busiest", "busiest", 4),
        ("step70", 70, 8),
        ("lunch", "middle", 1),
    ]


def test_case_wins_over_defaults_and_model_sets_sizes_aside(load):
    spec = load(
        """\
        defaults: {requests: 4, tokens: 8, block_size: [32, 64], groups: 2}
        cases:
          - {name: default}
          - {name: own, requests: 2, block_size: 128}
          - {name: preset, model: gpt-oss-120b}
          - {name: list, block_size: [16, 16, 16]}
        """
    )
    assert [case.parameters.block_sizes() for case in spec.cases] == [
        (32, 64),
        (128, 128),
        (16, 16),
        (16, 16, 16),
    ]
    assert parameters(spec, "requests") == [(4,), (2,), (4,), (4,)]


def test_defaults_concern_the_kinds_that_have_them(load):
    spec = load(
        """\
        defaults: {rate: 4, tokens: 8}
        cases:
          - {name: a, requests: 2}
          - {name: b, workload: trace, trace: azure_conv}
        """
    )
    assert spec.cases[0].parameters.tokens == 8
    assert spec.cases[1].parameters.rate == 4.0


def test_workload_can_be_an_axis(load):
    spec = load(
        """\
        cases: [{name: a, requests: 2, product: {workload: [uniform, batch]}}]
        defaults: {tokens: 4}
        """
    )
    assert names(spec) == ["a-workload=uniform", "a-workload=batch"]


def test_anchors_aliases_and_merge_keys(load):
    spec = load(
        """\
        cases:
          - &first {name: a, requests: 2, tokens: &many 4}
          - {<<: *first, name: b}
          - {<<: [{requests: 3}, *first], name: c, tokens: *many}
        """
    )
    assert parameters(spec, "requests", "tokens") == [(2, 4), (2, 4), (3, 4)]


def test_yaml_1_2_scalars(load):
    spec = load(
        """\
        description: on
        cases:
          - {name: a, workload: trace, trace: azure_code, rate: 1e-1, max_num_reqs: 1_0, seed: 0x1F}
        """
    )
    assert spec.description == "on"
    assert parameters(spec, "rate", "max_num_reqs", "seed") == [(0.1, 10, 31)]


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ("seed: [1, 2]", ["a-seed=1", "a-seed=2"]),
        ("pad_requests: [false, true]", ["a-pad_requests=false", "a-pad_requests=true"]),
        ("mapping: [identity, shuffled]", ["a-mapping=identity", "a-mapping=shuffled"]),
        ("model: [qwen3-32b, deepseek-v3]", ["a-model=qwen3-32b", "a-model=deepseek-v3"]),
        ("staged_writes: [null, 1]", ["a-staged_writes=default", "a-staged_writes=1"]),
    ],
)
def test_text_of_appended_values(load, axis, expected):
    spec = load(f"cases: [{{name: a, requests: 1, tokens: 2, product: {{{axis}}}}}]")
    assert names(spec) == expected
