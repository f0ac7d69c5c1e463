"""Tables of a running engine, from a file that it printed."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from bt_bench.base.errors import UsageError
from bt_bench.config.dump import dump_config
from bt_bench.config.load import load_config
from bt_bench.protocol import build_workload
from bt_bench.suites.block_tables.vllm.loading import load_block_tables
from bt_bench.suites.block_tables.vllm.source import find_sources
from bt_bench.suites.block_tables.workloads import layout_of

SCRIPT = Path(__file__).parents[5] / "examples/print_kv_cache_config.py"
FOLDERS = [Path(folder) for folder in os.environ["TEST_VLLM_SOURCE"].split(os.pathsep) if folder]
PRINTED = {
    "format": "bt-bench kv_cache_config 1",
    "engine": "vllm",
    "release": "0.33.0",
    "model": "some/model",
    "max_num_reqs": 64,
    "max_num_batched_tokens": 512,
    "max_model_len": 5000,
    "cp_size": 1,
    "cp_rank": 0,
    "cp_interleave": 1,
    "groups": [
        {
            "block_size": 16,
            "width": 320,
            "reach": 127,
            "slot_mapping_enabled": True,
            "dcp_sharded": True,
        },
        {
            "block_size": 576,
            "width": 11,
            "reach": 0,
            "slot_mapping_enabled": True,
            "dcp_sharded": False,
        },
        # A ring of one column, which serves requests of any length.
        {
            "block_size": 8,
            "width": 1,
            "reach": 0,
            "slot_mapping_enabled": False,
            "dcp_sharded": True,
        },
    ],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a file of tables; the working directory is another one."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "tables.json").write_text(json.dumps(PRINTED))
    return tmp_path


def case_of(folder, text="requests: 8", overrides=()):
    (folder / "my.yaml").write_text(
        f"cases: [{{name: a, workload: batch, kv_cache_config: tables.json, {text}}}]"
    )
    (case,) = load_config(folder / "my.yaml", overrides=overrides).cases
    return case


def refusal(folder, text="requests: 8"):
    with pytest.raises(UsageError) as caught:
        case_of(folder, text)
    return str(caught.value).replace(str(folder), "F")


def test_the_layout_is_the_engines(folder):
    layout = layout_of(case_of(folder).parameters)
    assert layout.block_sizes == (16, 576, 8)
    assert layout.widths == (320, 11, 1)
    assert layout.reaches == (127, 0, 0)
    assert layout.slot_mapping_enabled == (True, True, False)
    assert layout.dcp_sharded == (True, False, True)
    assert (layout.max_num_reqs, layout.max_num_batched_tokens) == (64, 512)


def test_a_ring_holds_a_block_however_long_the_request(folder):
    parameters = case_of(folder, "requests: 8, min_length: 4000").parameters
    workload = build_workload(parameters)
    blocks = [[len(ids) for ids in append.block_ids] for append in workload.setup]
    assert {counts[2] for counts in blocks} == {1}
    assert min(counts[0] for counts in blocks) >= 250
    description = parameters.describe(workload)
    assert [rows.block_size for rows in description.steps.row_blocks] == [16, 576, 8]
    assert description.steps.row_blocks[2].blocks.max == 1
    assert description.layout_source == "some/model in vLLM 0.33.0"


def test_a_ring_in_a_trace(folder, write_trace):
    trace = write_trace([(0, 600, 3), (0, 700, 2)])
    (folder / "my.yaml").write_text(
        "cases: [{name: a, workload: trace, kv_cache_config: tables.json, "
        f"trace: '{trace}', window: {{steps: 3}}}}]"
    )
    (case,) = load_config(folder / "my.yaml").cases
    figures = case.parameters.describe()
    assert figures.steps.row_blocks[2].blocks.max == 1
    build_workload(case.parameters)


def test_a_dump_needs_the_file_no_longer(folder):
    spec = load_config(
        {
            "cases": [
                {
                    "name": "{groups}grp_{max_model_len}",
                    "requests": 8,
                    "tokens": 8,
                    "kv_cache_config": str(folder / "tables.json"),
                }
            ]
        }
    )
    assert [case.name for case in spec.cases] == ["3grp_5000"]
    (folder / "again.yaml").write_text(dump_config(spec))
    (folder / "tables.json").unlink()
    assert "kv_cache_config" not in (folder / "again.yaml").read_text()
    (again,) = load_config(folder / "again.yaml").cases
    assert again.parameters == spec.cases[0].parameters
    assert build_workload(again.parameters).digest() == (
        build_workload(spec.cases[0].parameters).digest()
    )


def test_a_path_in_set_is_relative_to_the_working_directory(folder):
    (folder / "elsewhere/other.json").write_text(json.dumps(PRINTED | {"max_num_reqs": 9}))
    case = case_of(folder, overrides=["kv_cache_config=other.json"])
    assert case.parameters.max_num_reqs == 9


def test_a_case_has_the_last_word_on_limits_and_windows(folder):
    text = "requests: 8, max_num_reqs: 9, max_model_len: 64, sliding_window: 0, cp_rank: 0"
    parameters = case_of(folder, text).parameters
    layout = layout_of(parameters)
    assert (layout.max_num_reqs, layout.widths, layout.reaches) == (9, (320, 11, 1), (0, 0, 0))


def test_files_as_an_axis(folder):
    for name, rows in (("a", 20), ("b", 30)):
        (folder / f"{name}.json").write_text(json.dumps(PRINTED | {"max_num_reqs": rows}))
    (folder / "my.yaml").write_text(
        "cases: [{name: x, requests: 1, tokens: 1, product: {kv_cache_config: [a.json, b.json]}}]"
    )
    cases = load_config(folder / "my.yaml").cases
    assert {case.name: case.parameters.max_num_reqs for case in cases} == {
        "x-kv_cache_config=a.json": 20,
        "x-kv_cache_config=b.json": 30,
    }


def test_context_parallelism(folder):
    (folder / "tables.json").write_text(
        json.dumps(
            PRINTED | {"cp_size": 4, "cp_rank": 2, "cp_interleave": 4, "max_model_len": 6000}
        )
    )
    layout = layout_of(case_of(folder).parameters)
    assert (layout.cp_size, layout.cp_rank, layout.cp_interleave) == (4, 2, 4)
    assert layout.cp_sizes == (4, 1, 4)
    assert not any(layout.reaches)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("requests: 1, model: deepseek-v3", "model is given beside kv_cache_config 'tables.json'"),
        ("requests: 1, block_size: 16", "block_size is given beside kv_cache_config"),
        ("requests: 1, widths: plain", "widths is given beside kv_cache_config 'tables.json', whi"),
        ("requests: 1, cp_size: 2", "cp_size is given beside kv_cache_config"),
        (
            "requests: 1, max_model_len: 5001",
            "'max_model_len' is 5001; expected at most 5000, that of kv_cache_config F/tables.json",
        ),
        ("requests: 1, disabled_groups: [3]", "disabled_groups has group 3 of 3 groups"),
        ("requests: 65", "'requests' and 'prefills' are 65 and 0, together 65; expected at most"),
        ("requests: 1, kv_cache_config: ''", "kv_cache_config is ''; expected text, not empty"),
        ("requests: 1, kv_cache_config: ~no_such_user/x", "/~no_such_user/x: cannot be read: "),
    ],
)
def test_parameters_that_disagree(folder, text, message):
    if "kv_cache_config" in text:
        (folder / "my.yaml").write_text(f"cases: [{{name: a, workload: batch, {text}}}]")
        with pytest.raises(UsageError) as caught:
            load_config(folder / "my.yaml")
        assert message in str(caught.value)
        return
    assert message in refusal(folder, text)


def changed(path, value):
    document = json.loads(json.dumps(PRINTED))
    *outer, last = path
    inner = document
    for part in outer:
        inner = inner[part]
    inner[last] = value
    return document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "is not JSON; print it from the engine with examples/print_kv_cache_config.py"),
        ([1], "format is [1]; expected 'bt-bench kv_cache_config 1'; print it from"),
        ({"groups": []}, "format is null; expected 'bt-bench kv_cache_config 1'"),
        (
            changed(["release"], "0.99.0"),
            "engine is 'vllm' and release '0.99.0'; expected 'vllm' and one of 0.33.0, whose",
        ),
        (changed(["engine"], "sglang"), "engine is 'sglang' and release '0.33.0'; expected 'vllm'"),
        (changed(["model"], 7), "model is 7; expected the model's name"),
        (changed(["groups"], []), "groups has 0 groups; expected a list of 1 to 64"),
        (changed(["groups"], 3), "groups has 3; expected a list of 1 to 64"),
        (changed(["groups", 1], "x"), "groups[1] is 'x'; expected an object"),
        (
            changed(["groups", 1, "width"], 0),
            "groups[1].width is 0; expected a whole number from 1 to 16777216",
        ),
        (
            changed(["groups", 2, "block_size"], True),
            "groups[2].block_size is true; expected a whole number from 1 to 4194304",
        ),
        (
            changed(["groups", 0, "dcp_sharded"], None),
            "groups[0].dcp_sharded is null; expected true or false",
        ),
        (
            changed(["groups", 0, "widht"], 1),
            "groups[0] has an unknown key 'widht'; did you mean 'width'?",
        ),
        (changed(["max_num_req"], 1), "it has an unknown key 'max_num_req'; did you mean"),
        (
            changed(["max_num_reqs"], "64"),
            "max_num_reqs is '64'; expected a whole number from 1 to 16384",
        ),
        (
            changed(["groups", 1, "width"], 16_777_216) | {"max_num_reqs": 16_384},
            "groups[1] has 16777216 columns in each of 16384 rows, 2048 GiB of tables; expected "
            "at most 256 GiB",
        ),
        (
            changed(["groups", 0, "width"], 312),
            "widths[0] is 312; expected at least 313 for 'max_model_len', 5000, of 16 tokens",
        ),
        (
            PRINTED | {"cp_size": 2, "cp_interleave": 5},
            "cp_interleave is 5; expected a divisor of the block size of every sharded group; "
            "group 0 has 16",
        ),
    ],
)
def test_what_a_file_may_not_say(folder, document, message):
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / "tables.json").write_text(text)
    assert f"kv_cache_config F/tables.json: {message}" in refusal(folder)


def test_no_file(folder):
    (folder / "tables.json").unlink()
    assert "kv_cache_config F/tables.json: cannot be read: No such file" in refusal(folder)


def script():
    spec = importlib.util.spec_from_file_location("print_kv_cache_config", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def worker_of(tables):
    config = SimpleNamespace(model="some/model")
    runner = SimpleNamespace(block_tables=tables, model_config=config, max_model_len=5000)
    return SimpleNamespace(model_runner=runner)


@pytest.fixture
def imported_vllm(monkeypatch):
    vllm = ModuleType("vllm")
    vllm.__version__ = "0.33.0"
    monkeypatch.setitem(sys.modules, "vllm", vllm)


def test_the_script_prints_what_is_read(imported_vllm):
    groups = PRINTED["groups"]
    tables = SimpleNamespace(
        block_sizes=[group["block_size"] for group in groups],
        block_tables=[
            SimpleNamespace(gpu=torch.zeros(64, group["width"], dtype=torch.int32))
            for group in groups
        ],
        sliding_window_reach=torch.tensor([group["reach"] for group in groups]),
        slot_mapping_enabled=torch.tensor([group["slot_mapping_enabled"] for group in groups]),
        dcp_sharded=torch.tensor([group["dcp_sharded"] for group in groups]),
        num_kv_cache_groups=3,
        max_num_reqs=64,
        max_num_batched_tokens=512,
        cp_size=1,
        cp_rank=0,
        cp_interleave=1,
    )
    assert json.loads(json.dumps(script().tables_of(worker_of(tables)))) == PRINTED


@pytest.mark.skipif(
    not FOLDERS, reason="needs unpacked wheels of vLLM: BT_BENCH_VLLM_SOURCE=DIR (docs/vllm.md)"
)
def test_the_script_reads_vllms_own_tables(imported_vllm, device):
    sources = {source.release: source for source in find_sources(FOLDERS).found}
    if "0.33.0" not in sources:
        pytest.skip(f"needs the wheel of vLLM 0.33.0; found {', '.join(sources)}")
    groups = PRINTED["groups"]
    tables = load_block_tables(sources["0.33.0"])(
        block_sizes=[group["block_size"] for group in groups],
        max_num_reqs=64,
        max_num_batched_tokens=512,
        max_num_blocks_per_group=[group["width"] for group in groups],
        device=device,
        slot_mapping_enabled=[group["slot_mapping_enabled"] for group in groups],
        dcp_sharded=[group["dcp_sharded"] for group in groups],
        sliding_window_reach=[group["reach"] for group in groups],
    )
    assert script().tables_of(worker_of(tables)) == PRINTED
