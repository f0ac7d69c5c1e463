"""Censuses of the shipped kernels and of trees in which one thing was changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bt_bench.catalogue import find_variants
from bt_bench.config.load import load_config
from bt_bench.static.census import take_census

KERNELS = Path(__file__).parents[2] / "kernels"
CONFIG = """
name: tiny
variants: [fused]
operations: [apply, step]
defaults: {max_num_reqs: 32, max_num_batched_tokens: 256, max_model_len: 1024}
cases:
  - {name: uniform, groups: 2, requests: 8, tokens: 64}
  # The sizes of these steps are 1, multiples of 16, and others.
  - name: trace
    workload: trace
    trace: azure_conv
    rate: 30
    block_size: [16, 64]
    max_model_len: 16384
    window: {at: start, steps: 48}
"""


@dataclass(frozen=True)
class Edit:
    """One change of a file of `bt_kernels`."""

    file: str
    old: str
    new: str


APPLY = "        launches.apply_writes(self, self._ring.current, 0,"
GATHER = "        launches.gather_slots"
LAUNCH = "num_warps=num_warps)\n\n\ndef"
OTHER = "mask=mask, other=0)\n        inside"
TUNED = "@triton.jit(do_not_specialize=STEP_SIZES)\ndef apply"
EDITS = {
    "original": [],
    "comments": [
        Edit("device_code.py", '"""The Triton code', '"""Something else.\n\nThe Triton code'),
        Edit("device_code.py", "    width = tl", "    # Why not?\n\n    width = tl"),
        Edit("launches.py", '"""Launches once; arguments', '"""Arguments'),
        Edit("launches.py", "(num_records, 1, 1),", "(num_records, 1, 1),  # programs"),
    ],
    "constant": [Edit("device_code.py", OTHER, OTHER.replace("other=0", "other=1"))],
    "block": [Edit("launches.py", "ROW_BLOCK = 1024", "ROW_BLOCK = 2048")],
    "specialised": [Edit("device_code.py", "STEP_SIZES = [", "STEP_SIZES = []\n_ = [")],
    "extra_launch": [Edit("fusions.py", APPLY, f"{APPLY} 1)\n{APPLY}")],
    "torch": [Edit("fusions.py", GATHER, f"        self.slot_mappings.fill_(-1)\n{GATHER}")],
    "grid": [Edit("launches.py", "(num_records, 1, 1)", "(num_records, 1, 2)")],
    # Staging is in C where that can be compiled.
    "data": [
        Edit("staging.py", "row, start, length, place)", "row, start, length, place + 1)"),
        Edit("staged.c", "(first + (ids - start));", "(first + (ids - start) + 1);"),
    ],
    "few_registers": [Edit("launches.py", LAUNCH, LAUNCH.replace("warps)", "warps, maxnreg=24)"))],
    "broken": [Edit("device_code.py", "program = tl.program_id(1)", "program = not_there(1)")],
    "tuned": [
        Edit(
            "device_code.py",
            TUNED,
            "@triton.autotune([triton.Config({}, num_warps=n) for n in (2, 4)], [])\n" + TUNED,
        )
    ],
}


def edited_tree(folder: Path, edits: list[Edit]) -> Path:
    """A copy of the kernels' tree with changes, each of which must hit something."""
    shutil.copytree(KERNELS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in edits:
        path = folder / "bt_kernels" / edit.file
        text = path.read_text(encoding="utf-8")
        assert edit.old in text, edit
        path.write_text(text.replace(edit.old, edit.new, 1), encoding="utf-8")
    return folder


def write_config(folder: Path):
    path = folder / "tiny.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return load_config(path)


@pytest.fixture(scope="session")
def spec(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="session")
def censuses(tmp_path_factory, spec) -> Callable:
    """The census of `fused` in each of the trees of `EDITS`, by name; all from one process."""
    folder = tmp_path_factory.mktemp("trees")
    trees = {name: edited_tree(folder / name, edits) for name, edits in EDITS.items()}
    entries = [find_variants(kernels=tree)["fused"] for tree in trees.values()]
    whole = take_census(spec, entries, ["sm_90"])
    return {
        name: whole.model_copy(update={"variants": [variant]})
        for name, variant in zip(trees, whole.variants, strict=True)
    }.__getitem__


@pytest.fixture(scope="session")
def again(tmp_path_factory, spec):
    """A second process: `fused` with other comments in another folder, and the baseline."""
    tree = edited_tree(tmp_path_factory.mktemp("again") / "deep" / "kernels", EDITS["comments"])
    entries = [find_variants(kernels=tree)["fused"], find_variants()["baseline"]]
    return take_census(spec, entries, ["sm_90"])
