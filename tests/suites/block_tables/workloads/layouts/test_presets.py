"""Presets by model: the rule for widths, and the layouts that vLLM's own code plans."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from bt_bench.config.load import load_config
from bt_bench.suites.block_tables.suite import SUITE
from bt_bench.suites.block_tables.vllm.source import find_sources
from bt_bench.suites.block_tables.workloads import layout_of
from bt_bench.suites.block_tables.workloads.layouts.presets import MODEL_PRESETS, aligned_width

DERIVE = Path(__file__).parents[5] / "studies/layouts/derive.py"
FOLDERS = [Path(folder) for folder in os.environ["TEST_VLLM_SOURCE"].split(os.pathsep) if folder]
LENGTHS = [1, 4096, 5000, 40_961, 131_072, 262_144]


def derive():
    spec = importlib.util.spec_from_file_location("derive", DERIVE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parameters_of(**options):
    case = {"name": "a", "requests": 1, "tokens": 1, **options}
    return load_config({"cases": [case]}).cases[0].parameters


@pytest.fixture(scope="module")
def wheel():
    if not FOLDERS:
        pytest.skip("needs unpacked wheels of vLLM: BT_BENCH_VLLM_SOURCE=DIR (docs/vllm.md)")
    sources = {source.release: source for source in find_sources(FOLDERS).found}
    if "0.33.0" not in sources:
        pytest.skip(f"needs the wheel of vLLM 0.33.0; found {', '.join(sources)}")
    if not sources["0.33.0"].path_of("vllm.v1.core.kv_cache_planning").is_file():
        pytest.skip("needs the whole wheel of vLLM 0.33.0, not only its block tables")
    return sources["0.33.0"].root


@pytest.fixture(scope="module")
def planned(wheel):
    module = derive()
    models = json.loads(module.MODELS.read_text())["models"]
    return module.planned(wheel, models, LENGTHS)


@pytest.mark.parametrize("model", MODEL_PRESETS)
def test_a_workload_has_the_groups_of_the_engine(model, planned):
    expected = planned[model]
    for index, length in enumerate(LENGTHS):
        parameters = parameters_of(model=model, max_model_len=length, max_num_reqs=1)
        description, _ = SUITE.describe("a", parameters)
        assert description["block_sizes"] == [group["block_size"] for group in expected]
        assert description["widths"] == [group["widths"][index] for group in expected]
        assert description["reaches"] == [group["reach"] for group in expected]
        assert description["slot_mapping_enabled"] == [
            group["slot_mapping_enabled"] for group in expected
        ]
        assert list(layout_of(parameters).dcp_sharded) == [
            group["dcp_sharded"] for group in expected
        ]


def test_ranks_have_the_widths_of_the_engine(wheel):
    module = derive()
    models = json.loads(module.MODELS.read_text())["models"]
    for model, expected in module.planned(wheel, models, LENGTHS, ranks=4).items():
        for index, length in enumerate(LENGTHS):
            given = {"model": model, "max_model_len": length, "cp_size": 4, "cp_interleave": 4}
            widths = parameters_of(**given).row_widths()
            assert list(widths) == [group["widths"][index] for group in expected], model


def test_the_stored_groups_are_the_planned_ones(planned):
    module = derive()
    document = json.loads(module.MODELS.read_text())
    stored = {name: entry["groups"] for name, entry in document["models"].items()}
    assert {name: module.compact(groups) for name, groups in planned.items()} == stored


def test_the_file_is_as_the_script_writes_it():
    module = derive()
    text = module.MODELS.read_text()
    assert module.rendered(json.loads(text)) == text


def test_each_entry_names_its_source():
    document = json.loads(derive().MODELS.read_text())
    for entry in document["models"].values():
        assert set(entry["config_class"]) & {"."}
        assert entry["transformers"]
        assert ("changed" in entry) == ("changed_from" in entry)
        assert set(entry.get("changed", ())) <= set(entry["dimensions"])


def test_dimensions_are_compared_with_the_class(monkeypatch):
    class Config:
        def to_dict(self):
            return {"a": 1, "layer_types": ["x", "y", "x"], "b": 2}

    name = "transformers.models.some.configuration_some"
    monkeypatch.setitem(sys.modules, name, type(sys)(name))
    sys.modules[name].Config = Config
    entry = {"config_class": "some.Config", "dimensions": {"a": 1, "layer_types": ["x", "y"]}}
    assert derive().differing_dimensions(entry) == []
    entry["dimensions"] |= {"b": 3}
    assert derive().differing_dimensions(entry) == ["b is 3; Config has 2"]
    assert derive().differing_dimensions(entry | {"changed": ["b"]}) == []


@pytest.mark.parametrize(
    ("block_size", "length", "width"),
    [(2768, 262_144, 96), (528, 262_144, 504), (544, 262_144, 484), (16, 5000, 320), (128, 1, 1)],
)
def test_rows_are_rounded_up_as_in_vllm(block_size, length, width):
    assert aligned_width(-(-length // block_size), block_size) == width
    sizes = {"block_size": block_size, "max_model_len": length, "max_num_reqs": 1}
    assert parameters_of(**sizes, widths="aligned").row_widths() == (width,)
    assert parameters_of(**sizes).row_widths() == (-(-length // block_size),)


def test_a_workload_prints_its_groups():
    parameters = parameters_of(model="gpt-oss-120b", max_model_len=5000, disabled_groups=[1])
    _, document = SUITE.describe("a", parameters)
    groups, source, *_ = document.lead[0].items
    assert groups == (
        "2 groups (block size × row width): 16 tokens × 320 columns (reach 127), "
        "16 tokens × 320 columns (no slots)"
    )
    assert source == "tables of openai/gpt-oss-120b in vLLM 0.33.0"


def test_states_have_columns_for_drafts():
    parameters = parameters_of(model="qwen3-next-80b-mtp2", max_model_len=5000)
    assert parameters.row_widths() == (11, 11, 11, 10)
    plain = parameters_of(model="qwen3-next-80b-mtp2", max_model_len=5000, widths="plain")
    assert plain.row_widths() == (9, 9, 9, 9)


def test_parameters_override_a_models():
    given = {"model": "gpt-oss-120b", "max_model_len": 5000}
    assert parameters_of(**given).reaches() == (127, 0)
    assert parameters_of(**given, sliding_window=0).reaches() == (0, 0)
    assert parameters_of(**given, sliding_window=[0, 5]).reaches() == (0, 5)
    assert parameters_of(**given, widths=[313, 400]).row_widths() == (313, 400)
    assert parameters_of(**given, disabled_groups=[1]).with_slots() == (True, False)


def test_ranks_share_attention_and_have_all_states():
    parameters = parameters_of(model="qwen3-next-80b", cp_size=4, max_model_len=262_144)
    assert parameters.sharded() == (False, False, False, True)
    assert parameters.row_widths() == (456, 456, 456, 114)
    assert not any(parameters_of(model="gpt-oss-120b", cp_size=2).reaches())
