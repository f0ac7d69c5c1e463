"""`--set`, `--variants`, `--operations` and `-k`."""

from __future__ import annotations

import pytest

from bt_bench.results.run.nouns import Cache, LaunchPath
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads.layouts.presets import MODEL_PRESETS

BASE = """\
plan: {rounds: 10}
defaults: {max_model_len: 4096}
cases:
  - {name: fixed, groups: 4, requests: 2, tokens: 8}
  - name: "axes_{groups}grp"
    tokens: 64
    product: {groups: [1, 2], requests: [1, 16]}
  - name: zipped
    zip: {requests: [1, 2], tokens: [3, 4]}
"""

NO_YAML = "check quotes, brackets, tags and repeated keys"

TRACES = """\
defaults: {workload: trace, trace: azure_conv, window: {steps: 64}}
cases:
  - {name: a, window: {at: busiest, name: rush}}
  - {name: b, product: {window: [{at: start}, {at: middle, steps: 3}]}}
"""


def names(spec):
    return [case.name for case in spec.cases]


def parameters(spec, *keys):
    return [tuple(getattr(case.parameters, key) for key in keys) for case in spec.cases]


def windows(spec):
    return [(case.parameters.window.name, case.parameters.window.steps) for case in spec.cases]


def test_one_value_replaces_fixed_parameters_and_axes(load):
    spec = load(BASE, overrides=["requests=3"])
    assert parameters(spec, "groups", "requests", "tokens") == [
        (4, 3, 8),
        (1, 3, 64),
        (2, 3, 64),
        (None, 3, 3),
        (None, 3, 4),
    ]
    assert names(spec) == ["fixed", "axes_1grp", "axes_2grp", "zipped-tokens=3", "zipped-tokens=4"]


def test_several_values_are_an_axis_everywhere(load):
    spec = load(BASE, overrides=["groups=1,7"], select="fixed*,axes*")
    assert names(spec) == [
        "fixed-groups=1",
        "fixed-groups=7",
        "axes_1grp-requests=1",
        "axes_1grp-requests=16",
        "axes_7grp-requests=1",
        "axes_7grp-requests=16",
    ]


def test_a_list_is_one_value_and_sets_groups_aside(load):
    spec = load(BASE, overrides=["block_size=[16, 64]"], select="fixed")
    assert spec.cases[0].parameters.block_sizes() == (16, 64)
    spec = load(BASE, overrides=["block_size=[16,64],[32]"], select="fixed*")
    assert names(spec) == ["fixed-block_size=16x64", "fixed-block_size=32"]


def test_a_model_sets_groups_aside(load):
    spec = load(BASE, overrides=["model=gemma-3-27b"], select="axes*")
    assert names(spec) == ["axes_7grp-requests=1", "axes_7grp-requests=16"]


def test_plan(load):
    assert load(BASE, overrides=["plan.rounds=5"]).plan.rounds == 5


@pytest.mark.parametrize("value", ["jit,graph", "[jit, graph]", " jit , graph "])
def test_lists_of_the_plan(load, value):
    spec = load(BASE, overrides=[f"plan.launch_paths={value}"])
    assert spec.plan.launch_paths == [LaunchPath.JIT, LaunchPath.GRAPH]


def test_one_value_of_a_list_of_the_plan(load):
    spec = load(BASE, overrides=["plan.l2=hot", "plan.control=false"])
    assert spec.plan.l2 == [Cache.HOT]
    assert not spec.plan.control


def test_the_last_of_two_holds(load):
    assert load(BASE, overrides=["plan.seed=1", "plan.seed=2"]).plan.seed == 2


def test_part_of_the_window(load):
    spec = load(TRACES, overrides=["window.steps=10"])
    assert windows(spec) == [("rush", 10), ("start", 10), ("middle", 10)]
    spec = load(TRACES, overrides=["window.steps=8,9"], select="a*")
    assert names(spec) == ["a-window.steps=8", "a-window.steps=9"]


def test_place_of_the_window_renames_it(load):
    text = """\
    cases:
      - {name: a, workload: trace, trace: azure_conv, window: {at: start, name: dawn}}
    """
    assert windows(load(text, overrides=["window.at=middle"])) == [("middle", 64)]
    assert windows(load(text, overrides=["window.steps=2"])) == [("dawn", 2)]


def test_whole_window(load):
    spec = load(TRACES, overrides=["window={at: 5, steps: 2}"])
    assert windows(spec) == [("step5", 2), ("step5", 2)]


def test_only_the_kinds_that_have_it(load):
    text = """\
    cases:
      - {name: a, requests: 2, tokens: 4}
      - {name: b, workload: batch, requests: 2}
    """
    spec = load(text, overrides=["tokens=9"])
    assert spec.cases[0].parameters.tokens == 9
    spec = load(text, overrides=["tokens_per_request=2,3"])
    assert names(spec) == ["a", "b-tokens_per_request=2", "b-tokens_per_request=3"]


def test_the_kind_itself(load):
    spec = load("cases: [{name: a, requests: 2}]", overrides=["prefills=1", "workload=batch"])
    assert spec.cases[0].parameters.prefills == 1


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        *[
            (text, f"--set {text}: {value!r} is not a YAML value; {NO_YAML}")
            for text, value in [
                ("groups=[1", "[1"),
                ("groups=!x 1", "!x 1"),
                ("window={at: 1, at: 2}", "{at: 1, at: 2}"),
            ]
        ],
        (
            "groups=0",
            "--set groups=0: groups is 0; expected a whole number from 1 to 64",
        ),
        ("group=1", "--set group=1: unknown axis 'group'; did you mean 'groups'?"),
        (
            "plan.round=1",
            "--set plan.round=1: unknown key 'round' in plan; did you mean 'rounds'?",
        ),
        (
            "plan.rounds=many",
            "--set plan.rounds=many: rounds is 'many'; expected a whole number from 1 to 100000",
        ),
        (
            "plan.rounds=1,2",
            "--set plan.rounds=1,2: plan.rounds has 2 values; a sweep has one plan, give one",
        ),
        (
            "plan.loads=idle,bsy",
            "--set plan.loads=idle,bsy: loads[1] is 'bsy'; expected one or more of idle, busy, in "
            "a list",
        ),
        ("rounds=1", "--set rounds=1: unknown axis 'rounds'; did you mean 'plan.rounds'?"),
        ("groups", "--set groups: expected axis=value or axis=value,value,…"),
        ("groups=", "--set groups=: expected axis=value or axis=value,value,…"),
        (
            "rate=2",
            "--set rate=2: 'rate' is a parameter of trace workloads, and no case is one",
        ),
        (
            "model=llama",
            "--set model=llama: unknown model 'llama'; expected one of " + ", ".join(MODEL_PRESETS),
        ),
        (
            "workload=bath",
            "--set workload=bath: workload is 'bath'; did you mean 'batch'?",
        ),
    ],
)
def test_refused(error_of, override, expected):
    assert error_of(BASE, overrides=[override]) == expected


def test_options_that_contradict_each_other(error_of):
    assert error_of(BASE, overrides=["groups=2", "model=qwen3-32b"]) == (
        "--set model=qwen3-32b: 'model' is set beside 'groups', which it includes; give one"
    )
    assert error_of(TRACES, overrides=["window.steps=2", "window={at: 5}"]) == (
        "--set window={at: 5}: 'window' is set beside 'window.steps', which it includes; give one"
    )


def test_variants_and_operations_stand_in(load, error_of):
    spec = load(BASE, variants=["b", "a", "b"], operations=[ops.SLOTS])
    assert spec.variants == ["b", "a"]
    assert spec.operations == [ops.SLOTS]
    assert error_of(BASE, variants=[]) == "--variants: no names; expected one or more"


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("fix", ["fixed"]),
        ("xe", ["axes_1grp-requests=1", "axes_1grp-requests=16", "axes_2grp-requests=1",
                "axes_2grp-requests=16", "fixed"]),
        ("*_1grp*,zipped*=2", ["axes_1grp-requests=1", "axes_1grp-requests=16",
                               "zipped-requests=2"]),
        ("!axes,!zipped", ["fixed"]),
        ("axes, !1grp, !*=16", ["axes_2grp-requests=1"]),
    ],
)  # fmt: skip
def test_select(load, select, expected):
    assert sorted(names(load(BASE, select=select))) == expected


def test_select_leaves_nothing(error_of):
    assert error_of(BASE, select="nothing") == (
        "-k 'nothing': no case matches; the cases are:\n"
        "  fixed\n  axes_1grp-requests=1\n  axes_1grp-requests=16\n  axes_2grp-requests=1\n"
        "  axes_2grp-requests=16\n  zipped-requests=1\n  zipped-requests=2"
    )
    assert error_of(BASE, select="fixd,axes").startswith(
        "-k 'fixd': no case matches; did you mean 'fixed'? The cases are:\n  fixed\n"
    )
    assert error_of(BASE, select=" , !") == (
        "-k ' , !': expected text or a pattern of the names of cases"
    )


def test_select_lists_the_first_names_only(error_of):
    text = "cases: [{name: a, requests: 1, tokens: 1, product: {seed: [%s]}}]"
    message = error_of(text % ",".join(map(str, range(23))), select="x")
    assert message.splitlines()[1] == "  a-seed=0"
    assert message.splitlines()[20:] == ["  a-seed=19", "  … and 3 more"]
