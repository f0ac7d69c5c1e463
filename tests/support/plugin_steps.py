"""Steps of a runner with the plugin, and of one without."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from beside.draw import INTERPRETED, LAYOUTS, NO_GROUPS, Scheduler, layout_of

from bt_kernels.engines import plugin
from support.vllm_readers import drafts
from support.vllm_runner import RELEASE, Step

FOLDERS = [Path(folder) for folder in os.environ["TEST_VLLM_SOURCE"].split(os.pathsep) if folder]
WHEELS = [folder for folder in FOLDERS if (folder / f"vllm-{RELEASE}.dist-info").is_dir()]
"""Unpacked wheels of vLLM's own class and runner."""

KINDS = {"step": 0.7, "no tokens": 0.1, "no rank has tokens": 0.06, "dummy": 0.08, "pcp": 0.06}


def runners(vllm, layout, mode, monkeypatch, steps=None):
    """A runner with the plugin, and one whose tables are vLLM's."""
    monkeypatch.setenv("BT_KERNELS", mode)
    if steps is not None:
        monkeypatch.setenv("BT_KERNELS_SHADOW_STEPS", str(steps))
    plugin.load()
    runner = vllm("model_runner").GPUModelRunner
    return runner(layout), runner(layout, runner.tables_class().theirs)


def drawn(seed, name=None):
    """A layout with windows and more, and the scheduler of its steps."""
    rng = np.random.default_rng((55, seed))
    layouts = [layout for layout in LAYOUTS if layout != NO_GROUPS]
    found = layout_of(rng, name or layouts[seed % len(layouts)], INTERPRETED, Counter())
    return found.layout, Scheduler(rng, found, Counter()), rng


def same(found, expected):
    if isinstance(found, torch.Tensor):
        return torch.equal(found, expected)
    if isinstance(found, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == expected


def play(both, scheduler, rng, num_steps, kinds=KINDS, **readers):
    names, chances = list(kinds), np.array(list(kinds.values()))
    batch = None
    for number in range(num_steps):
        kind = str(rng.choice(names, p=chances / chances.sum()))
        if kind != "dummy" or batch is None:  # a dummy run has no new blocks
            batch = scheduler.schedule()
        redirects = kind == "step" and rng.random() < 0.05
        results = []
        for runner in both:
            runner.block_tables.redirect_writes_to_null_block = redirects
            results.append(runner.play(Step(batch, kind, **readers)))
            if kind == "step" and number % 3 == 0:
                results[-1] += [*drafts(runner.block_tables, batch), *runner.buffers()]
        assert same(*results), (number, kind)
