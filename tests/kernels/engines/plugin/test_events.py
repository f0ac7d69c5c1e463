"""Anything happens to the plugin at any moment of a step, and vLLM's results stay as they are.

Sequences are drawn: modes, recording, counters, failures of operations, a wrong bit, removing,
loading again, another object, and calls of the engine between those of a step. Without files of
vLLM (BT_BENCH_VLLM_RELEASES, BT_BENCH_VLLM_SOURCE) the class is the stand-in.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from beside.draw import INTERPRETED, LAYOUTS, NO_GROUPS, Scheduler, layout_of
from support.in_c import plant
from support.plugin_steps import WHEELS, same
from support.vllm_readers import PERSISTENT, READERS, REPLACES, drafts
from support.vllm_releases import is_fetched
from support.vllm_runner import RELEASE, Step, imported_from, write_package

from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import counting, messages, recording, settings
from bt_kernels.engines.plugin.deferring import DeferringTables

VERSIONS = ("0.25.1", "0.30.0", "0.32.0", "0.33.0")
OPERATIONS = (
    *("append_block_ids", "apply_staged_writes", "gather_block_tables", "compute_slot_mappings"),
    *("prepare_step", "gather_and_compute_slot_mappings"),
    *("get_dummy_block_tables", "get_dummy_slot_mappings", "replace_tables"),
)
OUT = ("gather_block_tables", "compute_slot_mappings, out")
KINDS = ("step", "step", "step", "step", "no tokens", "no rank has tokens", "dummy", "pcp")


class Events:
    """Steps of a runner with the plugin and of one without, and what happens in between."""

    def __init__(self, module, version, seed, monkeypatch, folder):
        self.rng, self.module, self.version = np.random.default_rng((56, seed)), module, version
        self.patch, self.folder, self.seen = monkeypatch, folder, []
        monkeypatch.setenv("BT_KERNELS_REPRO", str(folder))
        monkeypatch.setattr(counting, "_PRINTING", {os.getpid()})
        monkeypatch.setattr(recording, "_FRAME_STEPS", int(self.rng.choice((1, 2, 5, 32))))
        size = int(self.rng.choice((1, 3000, 10**6)))
        monkeypatch.setattr(settings, "record_bytes", lambda: size)
        self.pairs, self.place, self.staged = [], 0, False
        self.load()
        self.add()

    def chance(self, share):
        return self.rng.random() < share

    def load(self):
        mode = str(self.rng.choice(("on", "on", "shadow", "shadow", "shadow", "off")))
        records = self.chance(0.5) or mode == "off"
        steps = int(self.rng.choice((1, 2, 3, 5, 100)))
        counts = self.chance(0.3)
        self.seen.append(f"load {mode} steps={steps} records={records} counts={counts}")
        self.patch.setenv("BT_KERNELS", mode)
        self.patch.setenv("BT_KERNELS_SHADOW_STEPS", str(steps))
        self.patch.setenv("BT_KERNELS_COUNTERS", "1" if counts else "0")
        self.patch.setenv("BT_KERNELS_RECORD", str(self.folder / "calls.bin") if records else "")
        plugin.load()

    def add(self):
        """Add two runners, such as those of a drafter."""
        names = [name for name in LAYOUTS if name != NO_GROUPS]
        while True:
            drawn = layout_of(
                self.rng, str(self.rng.choice(names)), INTERPRETED._replace(ranks=False), Counter()
            )
            layout = drawn.layout
            if (all(layout.slot_mapping_enabled) or self.version >= "0.29") and (
                all(layout.dcp_sharded) or self.version >= "0.31"
            ):
                break
        split = 2 if self.version < "0.32" and self.chance(0.5) else 1
        sizes = [size // split if size % split == 0 else size for size in layout.block_sizes]
        runner = self.module("model_runner").GPUModelRunner
        kind = runner.tables_class()
        theirs = getattr(kind, "theirs", kind)
        pair = runner(layout, kernel_sizes=sizes), runner(layout, theirs, kernel_sizes=sizes)
        scheduler = Scheduler(self.rng, drawn, Counter())
        self.pairs.append((pair, scheduler))

    # What happens on one object alone

    def event(self, tables):
        """Return an event, or `None`, for the object with the plugin."""
        if not self.chance(0.12):
            return None
        name = str(self.rng.choice(("fail", "fail", "fail", "plant", "remove", "reload")))
        if name == "fail":
            return self.fail(tables)
        if name == "plant":
            return self.plant(tables)
        self.seen.append(name)
        plugin.remove()
        if name == "reload":
            self.load()
        return None

    def variant(self, tables):
        shadow = vars(tables).get("_shadow")
        ours = tables if shadow is None else shadow.ours
        return shadow, getattr(ours, "_variant", None)

    def fail(self, tables):
        _, variant = self.variant(tables)
        name = str(self.rng.choice(OPERATIONS))
        self.seen.append(f"fail {name} {variant is not None}")
        if variant is None:
            return

        def failing(*_, **__):
            raise ValueError("planted")

        plant(variant, name, failing)

    def plant(self, tables):
        shadow, variant = self.variant(tables)
        if shadow is None or variant is None:
            return
        self.seen.append("plant")
        where = [variant.slot_mappings, *variant.input_block_tables, *variant.block_tables]
        target = where[int(self.rng.integers(len(where)))]
        target[-1, -1] ^= 4

    # What the engine does on both

    def act(self, theirs, layout, moment):
        """Return functions of tables: calls of the engine at a moment, for both objects."""
        actions = []
        for _ in range(int(self.rng.integers(0, 3))):
            name = str(
                self.rng.choice(
                    ("append", "redirect", "apply", "read", "write", "held", "dummy rows")
                )
            )
            row = int(self.rng.integers(layout.max_num_reqs))
            block = int(self.rng.integers(1, 5))
            readers = [
                each
                for each in READERS
                # vLLM's `apply_write` writes one group alone; the other overwrites with fewer ids.
                if each not in ("apply_write", "append_block_ids")
                and (each != PERSISTENT or moment != "between")
            ]
            if self.version < "0.26":  # no `out`
                readers = [each for each in readers if each not in OUT]
            reader = str(self.rng.choice(readers))
            if name == "read":
                actions.append((reader, READERS[reader]))
                if reader == REPLACES:
                    actions.append(("forget", lambda t: self.held.pop(id(t), None) and None))
            elif name == "append":
                actions.append((name, lambda t, row=row, ids=block: overwrite(t, theirs, row, ids)))
            elif name == "redirect" and hasattr(theirs, "redirect_writes_to_null_block"):
                flag = self.chance(0.4)
                actions.append(
                    (
                        f"redirect {flag}",
                        lambda t, f=flag: setattr(t, "redirect_writes_to_null_block", f),
                    )
                )
            elif name == "apply":
                actions.append((name, lambda t: t.apply_staged_writes()))
            elif name == "write":
                actions.append((name, write))
            elif name == "held":
                actions.append((name, self.use_held))
            elif name == "dummy rows":
                actions.append((name, lambda t: t.get_dummy_block_tables(1)))
        self.staged |= any(name in ("append", "append_block_ids") for name, _ in actions)
        if moment == "before" and self.staged:
            # Of ids that are overwritten before they are applied, vLLM's also writes those behind.
            actions.append(("apply", lambda t: t.apply_staged_writes()))
            self.staged = False
        if actions:
            self.seen.append((moment, [name for name, _ in actions]))
        return [action for _, action in actions]

    def use_held(self, tables):
        """Use source tables that were taken earlier."""
        held = self.held.setdefault(id(tables), list(tables.block_tables))
        return [table.gpu.clone() for table in held]

    def play(self, num_steps):
        """Make steps; raise where results differ, or the plugin raises."""
        self.held = {}
        try:
            self.make_steps(num_steps)
        except Exception as error:
            error.add_note(str(self.seen))
            raise

    def make_steps(self, num_steps):
        with torch.inference_mode():
            for number in range(num_steps):
                if len(self.pairs) < 2 and self.chance(0.1):
                    self.add()
                    self.seen.append("add")
                self.step(number)

    def step(self, number):
        if not self.staged:
            self.place = int(self.rng.integers(len(self.pairs)))
        pair, scheduler = self.pairs[self.place]
        layout, ours, theirs = pair[0].layout, pair[0].block_tables, pair[1].block_tables
        kind = str(self.rng.choice(KINDS[:-1] if self.version < "0.26" else KINDS))
        batch = scheduler.schedule()
        self.seen.append((number, kind, type(ours).__mro__[1].__name__))
        self.event(ours)
        before = self.act(theirs, layout, "before")
        hooks, results = {}, [[], []]
        for moment in ("after_apply", "between"):
            actions, happens = self.act(theirs, layout, moment), self.chance(0.4)

            def hook(tables, actions=actions, happens=happens, results=results):
                if tables is ours and happens:
                    self.event(ours)
                return [action(tables) for action in actions]

            hooks[moment] = hook
        for place, runner in enumerate(pair):
            results[place] += [action(runner.block_tables) for action in before]
            results[place] += runner.play(Step(batch, kind, **hooks))
            if kind == "step" and number % 3 == 0 and self.version == "0.33.0":
                results[place] += drafts(runner.block_tables, batch)
                results[place] += runner.buffers()
        if not same(*results):
            names = [name for name, _ in pair[1].named_buffers()]
            wrong = [
                (place, found, expected)
                for place, (found, expected) in enumerate(zip(*results, strict=True))
                if not same(found, expected)
            ]
            raise AssertionError(f"{wrong[:2]} of {len(results[0])}, {names}")


def overwrite(tables, theirs, row, block):
    """Overwrite a row with as many blocks as it has."""
    variant = getattr(tables, "_variant", None)  # whose counts can be read without settling
    held = tables.num_blocks.np if variant is None else variant.num_blocks
    split = getattr(theirs, "blocks_per_kv_block", [1] * len(theirs.block_sizes))
    counts = held[:, row] // split
    tables.append_block_ids(row, tuple([block] * int(count) for count in counts), overwrite=True)
    if not hasattr(type(theirs), "redirect_writes_to_null_block"):
        tables.apply_staged_writes()  # older releases stage only as many writes as there are rows


def write(tables):
    tables.input_block_tables[0][:, :1] = 77
    tables.slot_mappings[:, -1:] = 5


def source_of(version, seed):
    """Return the folder with a release's files, and the version; or `None` for the stand-in."""
    if version == RELEASE and WHEELS and seed % 2:
        return WHEELS[0], version
    folders = os.environ["TEST_VLLM_RELEASES"]
    if folders and is_fetched(Path(folders) / version):
        return Path(folders) / version, version
    return None, RELEASE


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_results_are_vllms(device, tmp_path, monkeypatch, seed):
    monkeypatch.setattr(DeferringTables, "warmup", lambda _: 0.0)  # kernels compile when needed
    if seed % 5 == 2:
        monkeypatch.setenv("BT_KERNELS_NATIVE", "0")
    source, version = source_of(VERSIONS[seed % len(VERSIONS)], seed // len(VERSIONS))
    messages.forget()
    with imported_from(write_package(tmp_path / "package", source, version)) as module:
        try:
            Events(module, version, seed, monkeypatch, tmp_path).play(14)
        finally:
            plugin.remove()
            counting.reset()
