"""Sequences of an engine's calls: vLLM's class and ours do the same; planted faults are found."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import beside_vllm
import numpy as np
import pytest
from beside.draw import INTERPRETED, LAYOUTS, LEFT_OUT, NO_GROUPS, ON_GPU, Scheduler, layout_of
from beside.faults import FAULTS

from bt_bench.suites.block_tables.vllm.loading import load_block_tables
from bt_bench.suites.block_tables.vllm.source import find_sources
from bt_kernels import BlockTables

FOLDERS = [Path(folder) for folder in os.environ["TEST_VLLM_SOURCE"].split(os.pathsep) if folder]


@pytest.fixture(scope="module")
def vllm_tables():
    """The class of vLLM, of an unpacked wheel."""
    sources = find_sources(FOLDERS).found if FOLDERS else ()
    for source in sources:
        if source.release == beside_vllm.RELEASE:
            return load_block_tables(source)
    pytest.skip(
        f"needs an unpacked wheel of vLLM {beside_vllm.RELEASE}: BT_BENCH_VLLM_SOURCE=DIR "
        "(docs/vllm.md)"
    )


def differences(theirs, ours, numbers, device):
    for number in numbers:
        yield from beside_vllm.play(theirs, ours, 0, number, device)[1]


def test_vllm_and_ours_do_the_same_with_each_layout(vllm_tables, device):
    seen = Counter()
    for number in range(len(LAYOUTS)):
        counted, found = beside_vllm.play(vllm_tables, BlockTables, 0, number, device)
        assert found == []
        seen.update(counted)
    assert all(seen[f"layout: {name}"] == 1 for name in LAYOUTS)
    assert {
        "call: vLLM.append_block_ids, new",
        "call: vLLM.append_block_ids, running",
        "call: vLLM.apply_staged_writes",
        "call: vLLM.gather_block_tables",
        "call: vLLM.compute_slot_mappings",
        "call: vLLM.get_dummy_block_tables",
        "call: vLLM.get_dummy_slot_mappings",
        "call: vLLM.init_block_table_layout_tensors",
        "call: ours.prepare_step",
        "call: ours.gather_and_compute_slot_mappings",
        "step: writes redirected",
        "step: without tokens",
        "steps with nothing staged",
        "slots of more than max_num_batched_tokens tokens",
        "gathers of more than max_num_reqs rows",
    } <= {name for name, count in seen.items() if count}


# Without the wheel, a second object of ours is in the place of vLLM's.


def test_ours_does_the_same_as_ours(device):
    assert list(differences(BlockTables, BlockTables, range(4), device)) == []


FOUND_BY = {
    "slot": ("gpt-oss-120b", "slot_mappings"),
    "window": ("deepseek-v4", "input_block_tables"),
    "tail": ("qwen3-next-80b", "slot_mappings"),
    "rows": ("gpt-oss-120b", "input_block_tables"),
    "apply": ("gpt-oss-120b", "block_tables"),
}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("beside", ["ours", "vLLM"])
def test_a_planted_fault_is_found(fault, beside, request, device):
    theirs = BlockTables if beside == "ours" else request.getfixturevalue("vllm_tables")
    layout, buffer = FOUND_BY[fault]
    numbers = range(LAYOUTS.index(layout), 400, len(LAYOUTS))
    found = list(islice(differences(theirs, FAULTS[fault], numbers, device), 5))
    assert any(buffer in each.buffer for each in found)


@pytest.mark.parametrize("limits", [INTERPRETED, ON_GPU], ids=["interpreted", "on a gpu"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_scheduler_makes_valid_steps(name, limits):
    rng = np.random.default_rng(1)
    small = limits._replace(rows=limits.rows[:3], tokens=limits.tokens[:2])
    drawn = layout_of(rng, name, small, Counter())
    layout, left_out = drawn.layout, Counter()
    scheduler = Scheduler(rng, drawn, left_out)
    owned = np.zeros((layout.num_groups, layout.max_num_reqs), dtype=int)
    for _ in range(12):
        batch = scheduler.schedule()
        written = [row for row, _, _ in batch.writes]
        assert len(set(written)) == len(written)
        for row, ids, overwrite in batch.writes:
            counts = [len(own) for own in ids]
            owned[:, row] = counts if overwrite else owned[:, row] + counts
            for size, own in zip(layout.block_sizes, ids, strict=True):
                assert all(0 <= each <= 2**31 // size - 1 for each in own)
        assert (owned <= np.array(layout.widths)[:, None]).all()
        assert len(set(batch.rows.tolist())) == len(batch.rows) <= batch.num_reqs_padded
        assert 1 <= batch.lengths.sum() <= batch.num_tokens_padded
        assert batch.num_reqs_padded <= layout.max_num_reqs
        assert batch.num_tokens_padded <= layout.max_num_batched_tokens
        for row, start, length in zip(batch.rows, batch.starts, batch.lengths, strict=True):
            assert batch.computed[row] == start
            assert start + length <= drawn.max_model_len
        for group, enabled in enumerate(layout.slot_mapping_enabled):
            ranks = layout.cp_size if layout.dcp_sharded[group] else 1
            room = layout.widths[group] * layout.block_sizes[group] * ranks
            assert not enabled or drawn.max_model_len <= room


def test_what_needs_no_import_is_stated_right():
    assert len(LAYOUTS) == beside_vllm.BATCHES
    assert tuple(FAULTS) == beside_vllm.FAULTS


def test_a_difference_is_told_with_the_command_that_repeats_it(monkeypatch, tmp_path, capsys):
    summary = {
        "steps": 6,
        "num_differences": 1,
        "sessions_with_differences": 1,
        "device": "cpu",
        "of_these": {"left out: int32_slots": 3, "step: step": 6},
        "differences": [{"session": 7}],
        "failures": [],
    }
    monkeypatch.setattr(beside_vllm, "play_all", lambda *_, **__: summary)
    monkeypatch.setattr(beside_vllm, "source_of", lambda _folder: None)
    options = ["--vllm-source", "WHEEL", "--device", "cpu", "--sequences", "9", "--seed", "4"]
    options += ["--out", str(tmp_path), "--plant", "tail"]
    monkeypatch.setattr(sys, "argv", ["beside_vllm.py", *options])
    assert beside_vllm.main() == 1
    repeat = "--vllm-source WHEEL --device cpu --seed 4 --plant tail --session 7"
    assert f"python studies/beside_vllm.py {repeat}" in capsys.readouterr().out
    written = json.loads((tmp_path / "beside-vllm.json").read_text())
    assert (written["sequences"], written["planted"]) == (9, "tail")
    assert written["left_out"]["int32_slots"]["count"] == 3
    assert written["left_out"].keys() == LEFT_OUT.keys()


def test_a_folder_without_the_release_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"--vllm-source .* holds no vllm/v1/worker"):
        beside_vllm.source_of(tmp_path)
    for name in ("block_table", "buffer_utils"):
        path = tmp_path / "vllm" / "v1" / "worker" / "gpu" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with pytest.raises(SystemExit, match=r"has vLLM unknown; expected 0\.33\.0"):
        beside_vllm.source_of(tmp_path)


def test_the_documentation_quotes_the_report():
    root = Path(beside_vllm.__file__).parents[1]
    found = json.loads((root / "reports" / "beside-vllm" / "cpu.json").read_text())
    result = f"{found['num_differences']} differences in {found['sequences']:,} sequences"
    assert f"{result} ({found['steps']:,} steps)" in (root / "docs" / "engines.md").read_text()
    assert found["failures"] == []
    assert {f"layout: {name}" for name in LAYOUTS} <= found["of_these"].keys()
    assert found["left_out"].keys() == LEFT_OUT.keys()


def test_an_engine_without_groups_is_among_the_layouts():
    drawn = layout_of(np.random.default_rng(0), NO_GROUPS, INTERPRETED, Counter())
    assert drawn.layout.num_groups == 0
