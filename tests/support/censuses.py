"""Censuses of the shipped kernels and of trees in which one thing was changed: fixtures."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bt_bench.config.load import load_config
from bt_bench.config.spec import SweepSpec
from bt_bench.protocol import default_suite
from bt_bench.results.gate.census import (
    CensusCase,
    Kernel,
    OperationCensus,
    StaticCensus,
    StepLaunches,
    Toolchain,
    VariantCensus,
    read_census,
    write_census,
)
from bt_bench.variants.catalogue import VariantEntry, find_variants
from bt_bench.worker.compiling.census import take_census

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
GATHER = "        launches.gather_slots(\n            self,"
LAUNCH = "num_warps=num_warps)\n\n\nclass"
OTHER = "mask=mask, other=0)\n        inside"
TUNED = "@triton.jit(do_not_specialize=STEP_SIZES)\ndef apply"
EDITS = {
    "original": [],
    "comments": [
        Edit(
            "device_code/kernels.py", '"""The Triton code', '"""Something else.\n\nThe Triton code'
        ),
        Edit("device_code/parts.py", "    width = tl", "    # Why not?\n\n    width = tl"),
        Edit("launches/paths.py", '"""Launch once; arguments', '"""Arguments'),
        Edit("launches/kernels.py", "(num_records, 1, 1),", "(num_records, 1, 1),  # programs"),
    ],
    "constant": [Edit("device_code/parts.py", OTHER, OTHER.replace("other=0", "other=1"))],
    "block": [Edit("launches/kernels.py", "ROW_BLOCK = 1024", "ROW_BLOCK = 2048")],
    "specialised": [Edit("device_code/fields.py", "STEP_SIZES = [", "STEP_SIZES = []\n_ = [")],
    "extra_launch": [Edit("fusions.py", APPLY, f"{APPLY} 1)\n{APPLY}")],
    "torch": [Edit("fusions.py", GATHER, f"        self.slot_mappings.fill_(-1)\n{GATHER}")],
    "grid": [Edit("launches/kernels.py", "(num_records, 1, 1)", "(num_records, 1, 2)")],
    # Staging is in C where that can be compiled.
    "data": [
        Edit("staging/writes.py", "row, start, length, place)", "row, start, length, place + 1)"),
        Edit("native/staged_packs.h", "(first + (ids - start));", "(first + (ids - start) + 1);"),
    ],
    "few_registers": [
        Edit("launches/paths.py", LAUNCH, LAUNCH.replace("warps)", "warps, maxnreg=24)"))
    ],
    "broken": [
        Edit("device_code/kernels.py", "program = tl.program_id(1)", "program = not_there(1)")
    ],
    "tuned": [
        Edit(
            "device_code/kernels.py",
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
    """The census of `fused` in each of the trees of `EDITS`, by name; all from one process.

    Compiling takes half a minute, so the processes of one test run share what one has compiled.
    """
    whole = shared("censuses", tmp_path_factory, lambda folder: compiled(folder, spec))
    return {
        variant.name: whole.model_copy(update={"variants": [renamed(variant)]})
        for variant in whole.variants
    }.__getitem__


def shared(
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
    take: Callable[[Path], StaticCensus],
) -> StaticCensus:
    """A census that the first process that needs it takes, in a folder of its own."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    stored = folder / f"{name}.json"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stored.exists():
            write_census(stored, take(tmp_path_factory.mktemp(name)))
    return read_census(stored)


def compiled(folder: Path, spec: SweepSpec) -> StaticCensus:
    """A census with a variant for each of the trees, by the name of the tree."""
    trees = {name: edited_tree(folder / name, edits) for name, edits in EDITS.items()}
    entries = [find_variants(kernels=tree)["fused"] for tree in trees.values()]
    whole = take_census(spec, entries, ["sm_90"])
    named = [
        variant.model_copy(update={"name": name})
        for name, variant in zip(trees, whole.variants, strict=True)
    ]
    return whole.model_copy(update={"variants": named})


def renamed(variant: VariantCensus) -> VariantCensus:
    """A census of a tree under the name that its variant has."""
    return variant.model_copy(update={"name": "fused"})


@pytest.fixture(scope="session")
def again(tmp_path_factory, spec):
    """A second process: `fused` with other comments in another folder, and the baseline."""

    def take(folder: Path) -> StaticCensus:
        tree = edited_tree(folder / "deep" / "kernels", EDITS["comments"])
        entries = [find_variants(kernels=tree)["fused"], find_variants()["baseline"]]
        return take_census(spec, entries, ["sm_90"])

    return shared("again", tmp_path_factory, take)


# Censuses with made-up figures


def made_up(
    registers: Sequence[tuple[str, int]] = (("sm_80", 32), ("sm_90", 30)),
    launches: Sequence[int] = (2,),
    name: str = "fused",
    case_names: Sequence[str] = ("case",),
    **changed: object,
) -> StaticCensus:
    """One kernel in each case, with so many registers by target and so many launches by step."""
    kernels = [
        Kernel(
            id=f"{number:016x}",
            name="kernel",
            target=target,
            signature="BLOCK = 1",
            binary=f"{number:016x}",
            registers=count,
            spill_bytes=0,
            stack_bytes=0,
            shared_bytes=0,
        )
        for number, (target, count) in enumerate(registers)
    ]
    operations = [
        OperationCensus(
            operation=default_suite().by_name["step"],
            case=case,
            target=kernel.target,
            steps=[
                StepLaunches(steps=1, launches={"kernel": count} if count else {})
                for count in launches
            ],
            kernels=[kernel.id],
            sequence="0" * 16,
        )
        for case in case_names
        for kernel in kernels
    ]
    variant = VariantCensus(name=name, host_code="0" * 16, operations=operations, kernels=kernels)
    fields = {
        "config": "made_up",
        "toolchain": toolchain(),
        "cases": [CensusCase(name=case, workload="abc") for case in case_names],
        "variants": [variant],
    }
    return StaticCensus(**(fields | changed))


def toolchain(triton: str = "3.9.0", ptxas: str = "13.4.59", **settings: str) -> Toolchain:
    return Toolchain(triton=triton, ptxas={"sm_90": ptxas}, settings=settings)


FAILS = "raise RuntimeError('no step')"


def take_made_up(
    spec: SweepSpec, entries: Sequence[VariantEntry], **_options: object
) -> StaticCensus:
    """In place of `take_census`: nothing is compiled; a variant whose file has `FAILS` fails."""
    cases = [case.name for case in spec.cases]
    taken = [made_up(name=entry.name, case_names=cases) for entry in entries]
    variants = [
        census.variants[0] if FAILS not in entry.path.read_text() else failing(census.variants[0])
        for entry, census in zip(entries, taken, strict=True)
    ]
    return taken[0].model_copy(update={"config": spec.name, "variants": variants})


def failing(variant: VariantCensus) -> VariantCensus:
    """A census of a variant that fails in every operation."""
    operations = [
        OperationCensus(
            operation=of.operation, case=of.case, target=of.target, failure="RuntimeError: no step"
        )
        for of in variant.operations
    ]
    return variant.model_copy(update={"operations": operations, "kernels": []})
