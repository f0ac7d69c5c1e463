"""The stock configs, the documentation, and the round trip of a dump."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field
from support.recorded import write

from bt_bench.base.errors import UsageError
from bt_bench.config import validation
from bt_bench.config.dump import dump_config
from bt_bench.config.load import load_config
from bt_bench.config.settings import read_settings
from bt_bench.config.stock import stock_config_names, stock_config_path
from bt_bench.config.validation import leaves
from bt_bench.protocol import build_workload, default_suite
from bt_bench.results.run.plan import Plan
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import (
    BatchParameters,
    TraceParameters,
    WorkloadParameters,
    layout_of,
)
from bt_bench.suites.block_tables.workloads.layouts.presets import MODEL_PRESETS
from bt_kernels.layout import CONTEXT_PARALLELISM, FEATURES, SLIDING_WINDOW, TableLayout

DOCUMENT = (Path(__file__).parents[2] / "docs" / "configs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", stock_config_names())
def test_stock_config_loads_and_survives_the_dump(name, tmp_path):
    spec = load_config(name)
    assert spec.name == name
    if name == "shapes":
        assert spec.variants == ["baseline", "fused", "one_launch"]
        assert spec.operations == [ops.STEP]
    elif name == "layouts":
        assert spec.variants == ["baseline", "one_launch", "vllm"]
        assert spec.operations == [ops.STEP, ops.APPLY, ops.GATHER, ops.SLOTS]
    else:
        parts = [] if name == "quick" else ["fused_apply", "fused_gather_slots"]
        assert spec.variants == ["baseline", *parts, "fused", "one_launch"]
        assert spec.operations == [ops.GATHER_SLOTS, ops.STEP]
    names = [case.name for case in spec.cases]
    assert len(set(names)) == len(names)
    (tmp_path / "dump.yaml").write_text(dump_config(spec), encoding="utf-8")
    assert load_config(tmp_path / "dump.yaml") == spec
    assert load_config(stock_config_path(name)) == spec


def test_origin_has_the_five():
    spec = load_config("origin")
    assert spec.plan == Plan()
    figures = [
        (case.name, len(case.parameters.block_sizes()), case.parameters.requests,
         case.parameters.tokens)
        for case in spec.cases
    ]  # fmt: skip
    assert figures == [
        ("small_batch_1grp", 1, 32, 512),
        ("medium_batch_1grp", 1, 128, 2048),
        ("large_batch_1grp", 1, 256, 8192),
        ("medium_batch_2grp", 2, 128, 2048),
        ("medium_batch_4grp", 4, 128, 2048),
    ]
    for case in spec.cases:
        assert set(case.parameters.block_sizes()) == {16}
        assert case.parameters.max_num_reqs == 256
        assert case.parameters.max_num_batched_tokens == 8192
        assert case.parameters.max_model_len == 4096
        assert case.parameters.staged_writes is None
        assert case.parameters.mapping == "identity"


def test_quick_is_tiny():
    spec = load_config("quick")
    programs = 0
    for case in spec.cases:
        parameters = case.parameters
        groups = len(parameters.block_sizes())
        if isinstance(parameters, TraceParameters):
            requests, steps = parameters.max_num_reqs, parameters.window.steps
        else:
            requests, steps = parameters.requests, 1
        if isinstance(parameters, BatchParameters):
            requests += parameters.prefills
        programs += steps * 2 * groups * (requests + 1)
    plan = spec.plan
    # Without a GPU nothing is profiled; launches are counted in one replay.
    replays = plan.rounds + plan.instances * plan.warmup_rounds + plan.check_rounds + 1
    arms = len(spec.variants) * len(spec.operations)
    assert programs * replays * arms < 15_000  # at 1 ms each, a quarter of the minute


def test_production_covers_the_range():
    spec = load_config("production")
    assert 40 <= len(spec.cases) <= 60
    requests = {case.parameters.requests for case in spec.cases}
    assert {1, 1024} <= requests
    groups = {len(case.parameters.block_sizes()) for case in spec.cases}
    assert {1, 2, 4, 7} <= groups
    lengths = {case.parameters.max_model_len for case in spec.cases}
    assert (min(lengths), max(lengths)) == (8192, 131072)
    models = {case.parameters.model for case in spec.cases} - {None}
    assert len(models) == 8
    assert models <= set(MODEL_PRESETS)
    assert {case.name for case in spec.cases} >= models


def test_layouts_has_each_model_in_three_steps():
    cases = {case.name: case.parameters for case in load_config("layouts").cases}
    assert set(cases) == {
        f"{model}_{step}" for model in MODEL_PRESETS for step in ("decode", "mixed", "prefill")
    }
    assert all(case.startswith(f"{each.model}_") for case, each in cases.items())
    assert max(each.num_bytes() for each in cases.values()) <= 68 << 20


def test_shapes_covers_the_range():
    """Without building them, which takes seconds."""
    cases = {case.name: case.parameters for case in load_config("shapes").cases}
    assert 300 <= len(cases) <= 400
    assert {len(each.block_sizes()) for each in cases.values()} == set(range(1, 9))
    assert {0, 1, 1024} <= {each.requests for each in cases.values()} <= set(range(1025))
    assert {0, 1, 16_384} <= {each.tokens for each in cases.values()} <= set(range(16_385))
    assert {each.spread for each in cases.values()} == {"even", "one", "power_law"}
    assert {each.writes for each in cases.values()} >= {"none", "few", "many", "long"}
    sizes = {size for each in cases.values() for size in each.block_sizes()}
    assert {16, 32, 48, 64, 128, 256, 512, 1024} == sizes
    columns = {width for each in cases.values() for width in layout_of(each).widths}
    assert (min(columns), max(columns)) == (1, 8192)
    needed = [each.features for each in cases.values()]
    assert {frozenset({feature}) for feature in FEATURES} <= set(needed)
    assert FEATURES - {CONTEXT_PARALLELISM} in needed
    assert FEATURES - {SLIDING_WINDOW} in needed
    assert any(each.pad_requests for each in cases.values())


def test_shapes_takes_little_memory():
    """What is set up and checked of a case takes time, and there are hundreds."""
    for case in load_config("shapes").cases:
        parameters = case.parameters
        assert parameters.num_bytes() <= 68 << 20, case.name
        ids = parameters.requests * (parameters.longest or parameters.max_model_len) / 2
        assert ids * len(parameters.block_sizes()) / min(parameters.block_sizes()) < 160_000


def test_features_has_each_beside_the_plain_path():
    features = {case.name: case.parameters.features for case in load_config("features").cases}
    assert frozenset().union(*features.values()) == FEATURES
    single = {next(iter(needed)) for needed in features.values() if len(needed) == 1}
    assert single == FEATURES
    kinds = {name.partition("_")[0] for name in features}
    assert {name for name, needed in features.items() if not needed} == {
        *(f"{kind}_plain" for kind in kinds - {"trace"}),
        "trace_gemma_plain",
    }
    assert FEATURES - {CONTEXT_PARALLELISM} == features["decode_all_but_cp"]
    assert FEATURES - {SLIDING_WINDOW} == features["decode_all_but_window"]


def test_features_has_the_same_steps_with_and_without_a_window():
    cases = {case.name: case.parameters for case in load_config("features").cases}
    plain, window = (build_workload(cases[f"trace_gemma_{name}"]) for name in ("plain", "window"))
    for left, right in zip(plain.steps, window.steps, strict=True):
        assert left.idx_mapping.tolist() == right.idx_mapping.tolist()
        assert left.positions.tolist() == right.positions.tolist()
    assert window.features == {SLIDING_WINDOW}


def test_dump_spells_everything_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(
        "cases: [{name: '{window}', workload: trace, trace: azure_code, block_size: [16, 64]}]"
    )
    assert dump_config(load_config("my.yaml")) == (
        """\
name: my
description: ''
variants: [baseline, fused, fused_apply, fused_gather_slots, one_launch, one_launch_graph]
operations: [gather_slots, step]
plan:
  rounds: 4000
  min_rounds: 48
  precision_percent: 1.0
  case_seconds: 20.0
  warmup_rounds: 3
  instances: 8
  launch_paths: [jit, compiled, graph]
  loads: [idle, busy]
  l2: [hot, cold]
  control: true
  profile_rounds: 24
  graph_rounds: 48
  check_rounds: 1
  hang_seconds: 120.0
  seed: 0
cases:
- name: start
  workload: trace
  block_size: [16, 64]
  max_num_reqs: 1024
  max_num_batched_tokens: 8192
  max_model_len: 8192
  idx_mapping_dtype: int64
  pad_requests: false
  disabled_groups: []
  cp_size: 1
  cp_rank: 0
  cp_interleave: 1
  unsharded_groups: []
  custom_outputs: false
  seed: 0
  trace: azure_code
  columns:
    preset: azure
  part: {}
  rate: 1.0
  base_ms: 20.0
  per_token_us: 5.0
  prefix_caching: false
  window:
    name: start
    at: start
    steps: 64
"""
    )


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_of_the_documentation_loads(text, tmp_path):
    (trace,) = blocks("csv")
    (tables,) = blocks("json")
    (tmp_path / "gateway.csv").write_text(trace, encoding="utf-8")
    (tmp_path / "tables.json").write_text(tables, encoding="utf-8")
    write(tmp_path / "calls.4711-1.bin", TableLayout((16,), (8,), 4, 32))
    (tmp_path / "my.yaml").write_text(text, encoding="utf-8")
    spec = load_config(tmp_path / "my.yaml")
    for name in (case.name for case in spec.cases if "prefill_1x" in case.name):
        assert f"`{name}`" in DOCUMENT


def test_settings_of_the_documentation_load(tmp_path):
    (text,) = blocks("toml")
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    assert read_settings(tmp_path).device == "auto"


def test_errors_of_the_documentation_are_real(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(
        "cases:\n  - name: a\n    groups: 1\n    requests: many\n    tokns: 2\n    tokens: 2\n"
    )
    with pytest.raises(UsageError) as caught:
        load_config("my.yaml")
    assert f"{caught.value}\n" in blocks("text")


def test_the_trace_of_the_documentation_is_read(tmp_path):
    (trace,) = blocks("csv")
    (text,) = [text for text in blocks("yaml") if "gateway.csv" in text]
    (tmp_path / "my.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "gateway.csv").write_text(trace, encoding="utf-8")
    (case,) = load_config(tmp_path / "my.yaml").cases
    case.parameters.check_by_reading()
    assert build_workload(case.parameters).sizes()["num_reqs"]
    (tmp_path / "gateway.csv").write_text(trace.replace("95", "n/a"), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        case.parameters.check_by_reading()
    assert str(caught.value).removeprefix(f"{tmp_path}/") + "\n" in blocks("text")


@pytest.mark.parametrize("model", [Plan, *default_suite().kinds.values()])
def test_documentation_has_the_limits(model):
    for name, field in leaves(model).items():
        rows = re.findall(rf"^\| `{re.escape(name)}` \|(.*)\|$", DOCUMENT, re.MULTILINE)
        cells = [[cell.strip() for cell in row.split("|")] for row in rows]
        limits = limits_of(field)
        assert any(all(limit in row for limit in limits) for row in cells), (name, limits)


def limits_of(field) -> list[str]:
    spelled = {"ge": "{}", "gt": "above {}", "le": "{:.0f}"}
    return [
        text.format(getattr(item, key))
        for item in field.metadata
        for key, text in spelled.items()
        if hasattr(item, key)
    ]


def test_documentation_has_the_models():
    rows = re.findall(r"^\| `(.+)` \| (.+) \| `(.+)` \|$", DOCUMENT, re.MULTILINE)
    expected = [
        (name, ", ".join(spelled_groups(preset.groups)), preset.model)
        for name, preset in MODEL_PRESETS.items()
    ]
    assert [row for row in rows if row[0] in MODEL_PRESETS] == expected


def spelled_groups(groups):
    for (size, reach), equal in groupby(groups, lambda group: (group.block_size, group.reach)):
        count = len(list(equal))
        yield f"{count} × " * (count > 1) + f"{size}" + f" ({reach})" * (reach > 0)


def test_stock_configs_inside_the_package_win(tmp_path, monkeypatch):
    package = tmp_path / "bt_bench"
    (package / "configs").mkdir(parents=True)
    monkeypatch.setattr("bt_bench.suites.block_tables.suite._PACKAGE", package)
    assert default_suite().configs == package / "configs"


class Odd(WorkloadParameters):
    workload: Literal["odd"]
    file: Path


class Below(WorkloadParameters):
    workload: Literal["below"]
    some: int = Field(ge=1, lt=5)


def test_types_that_no_config_has_are_refused(monkeypatch):
    monkeypatch.setattr(default_suite(), "kinds", {"below": Below, "odd": Odd})
    with pytest.raises(UsageError, match=r"workload 'odd', parameter 'file': type .*Path.* cannot"):
        validation.Vocabulary(default_suite())
    some = validation.leaves(Below)["some"]
    assert validation.expectation(some) == "a whole number of 1 or more and below 5"
