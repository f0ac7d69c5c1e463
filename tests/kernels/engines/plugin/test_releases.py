"""Each release's own class, driven by the text of its runner, with the plugin and without.

Whole buffers are equal after each step. The files are not copied here:

    python tests/support/vllm_releases.py DIR
    BT_BENCH_VLLM_RELEASES=DIR python -m pytest tests/kernels/engines/plugin/test_releases.py
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from beside.draw import INTERPRETED, LAYOUTS, NO_GROUPS, Scheduler, layout_of
from support.in_c import plant
from support.vllm_releases import is_fetched
from support.vllm_runner import GPU, Step, imported_from, write_package

from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import counting, releases
from bt_kernels.engines.plugin.deferring import DeferringTables
from bt_kernels.engines.plugin.releases import RELEASES
from bt_kernels.engines.recordings import Append, Recording

KNOWN = dict(RELEASES)
# One of those with the same files, which `test_the_files_are_those_of_the_release` shows.
DISTINCT = list({(r.block_table, r.model_runner): r.version for r in KNOWN.values()}.values())
SHARDED_ALWAYS = ("0.25", "0.26", "0.27", "0.28", "0.29", "0.30")
ENABLED_ALWAYS = SHARDED_ALWAYS[:4]
KINDS = ("step", "step", "step", "step", "no tokens", "no rank has tokens", "dummy", "pcp")


def folder_of(version):
    folders = os.environ["TEST_VLLM_RELEASES"]
    if not folders:
        pytest.skip(
            "needs files of vLLM's source distributions (python tests/support/vllm_releases.py "
            "DIR): BT_BENCH_VLLM_RELEASES=DIR"
        )
    folder = Path(folders) / version
    if not is_fetched(folder):
        pytest.skip(f"BT_BENCH_VLLM_RELEASES={folders} has no files of vLLM {version}")
    return folder


@pytest.fixture(params=DISTINCT)
def vllm(request, tmp_path, device):
    """The version, and a function that imports modules of the package."""
    folder = folder_of(request.param)
    with imported_from(write_package(tmp_path, folder, request.param)) as module:
        yield request.param, module
        plugin.remove()
        counting.reset()


@pytest.mark.parametrize("version", KNOWN)
def test_the_files_are_those_of_the_release(version):
    folder = folder_of(version) / GPU
    for name in ("block_table", "model_runner"):
        digest = hashlib.sha256((folder / f"{name}.py").read_bytes()).hexdigest()
        assert digest == getattr(KNOWN[version], name)


class Pair:
    """A runner with the plugin and one without, and the steps that both make."""

    def __init__(self, vllm, mode, monkeypatch, seed, *, ranks=False, steps=1000):
        version, module = vllm
        monkeypatch.setenv("BT_KERNELS", mode)
        monkeypatch.setenv("BT_KERNELS_SHADOW_STEPS", str(steps))
        plugin.load()
        self.version, self.rng = version, np.random.default_rng((55, seed))
        drawn = self.drawn(INTERPRETED._replace(ranks=ranks))
        self.layout = drawn.layout
        self.scheduler = Scheduler(self.rng, drawn, Counter())
        self.batch = self.scheduler.schedule()
        sizes = [self.kernel_size(size) for size in self.layout.block_sizes]
        runner = module("model_runner").GPUModelRunner
        theirs = runner.tables_class().theirs
        self.runners = (
            runner(self.layout, kernel_sizes=sizes),
            runner(self.layout, theirs, kernel_sizes=sizes),
        )
        self.tables = self.runners[0].block_tables

    def drawn(self, limits):
        """Draw a layout that the release has: each option was added by one of them."""
        names = [name for name in LAYOUTS if name != NO_GROUPS]
        while True:
            found = layout_of(self.rng, str(self.rng.choice(names)), limits, Counter())
            layout = found.layout
            if (
                (all(layout.slot_mapping_enabled) or not self.version.startswith(ENABLED_ALWAYS))
                and (all(layout.dcp_sharded) or not self.version.startswith(SHARDED_ALWAYS))
                and (layout.cp_size > 1 or not limits.ranks)
            ):
                return found

    def kernel_size(self, size):
        """Draw the size of a kernel's block."""
        interleave = self.layout.cp_interleave
        splits = [
            split for split in (1, 2, 4) if size % split == 0 and size // split % interleave == 0
        ]
        return size // int(self.rng.choice(splits or [1]))

    def play(self, num_steps, kinds=KINDS, **readers):
        for number in range(num_steps):
            kind = str(self.rng.choice(kinds))
            if kind != "dummy":  # which makes no writes, and has any sizes
                self.batch = self.scheduler.schedule()
            batch = self.batch
            found, expected = (
                runner.play(Step(batch, kind, **readers)) + self.drafts(runner, batch, kind)
                for runner in self.runners
            )
            assert same(found, expected), (number, kind, self.layout)

    @torch.inference_mode()
    def drafts(self, runner, batch, kind):
        """As speculators do after a step: a gather, and slots, also into those of their own."""
        if kind != "step":
            return []
        mapping, at = torch.tensor(batch.rows), torch.tensor(batch.starts)
        starts = torch.arange(len(batch.rows) + 1, dtype=torch.int32)
        tables = runner.block_tables
        tables.gather_block_tables(mapping, batch.num_reqs_padded)
        found = [tables.compute_slot_mappings(mapping, starts, at, len(at)).clone()]
        if not self.version.startswith("0.25"):
            out = torch.full((len(tables.block_sizes), len(at) + 9), -5)
            tables.compute_slot_mappings(mapping, starts, at, len(at), out=out)
            found.append(out)
        return [*found, *runner.buffers()]


def same(found, expected):
    if isinstance(found, torch.Tensor):
        return torch.equal(found, expected)
    if isinstance(found, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == expected


@pytest.mark.parametrize("seed", range(2))
def test_deferred_steps_are_the_same(vllm, monkeypatch, seed):
    pair = Pair(vllm, "on", monkeypatch, seed)
    pair.play(30)
    counts = plugin.counters()
    assert isinstance(pair.tables, DeferringTables)
    assert counts["failures"] == 0
    assert counts["steps"] == counts["deferred"] > counts["fused"] > 5


def test_ranks_have_the_same_slots(vllm, monkeypatch):
    if not vllm[0].startswith(SHARDED_ALWAYS):
        pytest.skip("Triton's interpreter cannot run this kernel with context parallelism")
    pair = Pair(vllm, "on", monkeypatch, 3, ranks=True)
    pair.play(20)
    assert plugin.counters()["failures"] == 0


def test_shadow_mode_finds_no_difference_and_ends(vllm, monkeypatch):
    pair = Pair(vllm, "shadow", monkeypatch, 4, steps=6)
    pair.play(20)
    counts = plugin.counters()
    assert (counts["compared"], counts["differences"], counts["failures"]) == (6, 0, 0)
    assert isinstance(pair.tables, DeferringTables)


@pytest.mark.parametrize("operation", ["prepare_step", "gather_block_tables"])
def test_after_a_failure_vllms_class_goes_on(vllm, monkeypatch, operation):
    pair = Pair(vllm, "on", monkeypatch, 5)
    pair.play(4)
    plant(pair.tables._variant, operation, None)
    pair.play(8)
    assert type(pair.tables) is type(pair.runners[1].block_tables)
    assert plugin.counters()["failures"] == 1


def gathers(tables):
    rows = torch.arange(len(tables.input_block_tables[0]))
    return [view.clone() for view in tables.gather_block_tables(rows, len(rows))]


READERS = {
    "gather_block_tables": gathers,
    "block_tables": lambda tables: [table.gpu.clone() for table in tables.block_tables],
    "num_blocks": lambda tables: tables.num_blocks.gpu.clone(),
    "input_block_tables": lambda tables: [t.clone() for t in tables.input_block_tables],
    "get_dummy_block_tables": lambda tables: [
        view.clone() for view in tables.get_dummy_block_tables(1)
    ],
}


@pytest.mark.parametrize("moment", ["after_apply", "between"])
def test_readers_at_the_worst_moment_see_what_they_should(vllm, monkeypatch, moment):
    pair = Pair(vllm, "on", monkeypatch, 6)
    for name, reader in READERS.items():
        if (name, moment) != ("gather_block_tables", "between"):  # rows that the step returns
            pair.play(2, ("step",), **{moment: reader})
    counts = plugin.counters()
    assert counts["failures"] == 0
    assert counts["settled"]


def test_the_calls_of_a_repro_file_have_kernels_blocks(vllm, monkeypatch, tmp_path):
    """As the tables and the layout in it."""
    monkeypatch.setenv("BT_KERNELS_REPRO", str(tmp_path))
    monkeypatch.setattr(Pair, "kernel_size", lambda _, size: size // 2)
    pair = Pair(vllm, "shadow", monkeypatch, 1)
    tables, splits = pair.tables, RELEASES[pair.version].splits_blocks
    tables.append_block_ids(0, tuple([3] for _ in tables.block_sizes), overwrite=True)
    tables._shadow.ours._variant.block_tables[0][0, 0] = 99
    tables._shadow.ours._variant.apply_staged_writes = lambda: None
    tables.apply_staged_writes()
    (path,) = tmp_path.glob("*repro*")
    (append,) = (one for one in Recording(path).operations() if isinstance(one, Append))
    assert append.ids[0].tolist() == ([6, 7] if splits else [3])


NOT_SHARED = {"fused_writer", "num_blocks", "block_tables"}
"""Attributes whose values are objects; their tensors are compared elsewhere."""


def test_attributes_are_the_same(vllm, monkeypatch):
    pair = Pair(vllm, "on", monkeypatch, 7)
    theirs = pair.runners[1].block_tables
    for name, expected in vars(theirs).items():
        if name.startswith("_") or name in NOT_SHARED:
            continue
        found = getattr(pair.tables, name)
        if name.endswith("_ptrs"):
            assert found.dtype == expected.dtype
            assert found.shape == expected.shape
        else:
            assert type(found) is type(expected), name
            assert same(found, expected), name


def test_another_file_under_its_version_is_refused(vllm):
    version, module = vllm
    assert KNOWN[version] is not RELEASES[version], "the package declares its own files"
    with pytest.raises(RuntimeError, match=f"is not the file of vLLM {version}, "):
        releases.check_file(module("block_table"), KNOWN[version], "")
