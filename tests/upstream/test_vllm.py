"""The patches of vLLM 0.33.0, against its unpacked wheel and source distribution.

`support.vllm_patches` finds the two, or skips. Kernels run in Triton's interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from beside.draw import INTERPRETED, LAYOUTS, NO_GROUPS, Scheduler, layout_of
from junitparser import JUnitXml
from support import vllm_runner
from support.commands import run
from support.vllm_patches import RELEASE, apply, patched, patches, sdist
from support.vllm_runner import Step, write_package
from support.vllm_tree import ROOT, SamplingParams, copy_tree, imported_from

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/vllm.md"
OWN = "tests/v1/worker"
OWN_TESTS = {
    "test_gpu_block_table.py": "test_one_launch_equals_gather_and_slot_mappings",
    "test_gpu_sampler_flags.py": "test_staged_writes_are_flushed_only_after_add_request",
}
RUNNER_TEST = (
    "test_gpu_model_runner_v2.py",
    "test_prepare_inputs_maps_logits_and_marks_padding",
)
"""Only the added one runs: others of that file need all of vLLM."""

pytestmark = pytest.mark.timeout(1800)


def test_git_applies_all_to_the_wheel_and_the_source_distribution(tmp_path, source):
    first, found = patches(source, tmp_path / "first")
    again, _ = patches(source, tmp_path / "again")
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
    sampler, one_launch, inputs = found
    assert sampler["added"] < 50
    assert one_launch["added"] <= 250
    assert inputs["added"] <= 50
    has_tests = (source / "tests").is_dir()
    for patch, path in zip(found, first, strict=True):
        assert bool(patch["added_to_tests"]) == has_tests
        assert len(patch["left_out"]) == (not has_tests)
        sizes = f"| `{path.stem}` | {patch['added']} ({patch['added_to_tests']}) |"
        assert not has_tests or sizes in PAGE.read_text("utf-8")
        # Together, and alone without its tests.
        for name, options in {"all": (), "alone": ("--include=vllm/*",)}.items():
            folder = tmp_path / name / ("" if name == "all" else patch["name"])
            if not folder.exists():
                copy_tree(source, folder)
            apply(folder, path, *options)
    before = copy_tree(source, tmp_path / "before")
    for path in first:  # not in the opposite order, so that each is independent of the others
        apply(tmp_path / "all", path, "-R")
    for path in before.rglob("*.py"):
        assert (tmp_path / "all" / path.relative_to(before)).read_bytes() == path.read_bytes()


def test_a_patched_copy_is_refused(tmp_path, source):
    root = patched(source, tmp_path)
    outcome = run(
        *("patch", "--for", f"vllm=={RELEASE}", "--source", root, "--out", tmp_path / "again")
    )
    assert outcome.code == 2
    assert "sampler.py has _has_staged_writes already, so it is patched" in outcome.err
    assert not (tmp_path / "again").exists()


def test_vllm_s_own_tests_and_the_added_ones_pass(tmp_path):
    root = patched(sdist(), tmp_path)
    report = tmp_path / "report.xml"
    options = ("-p", "no:cacheprovider", "-p", "no:xdist", "--noconftest", "-q")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *options, "-p", "support.vllm_tree"),
            *("-c", os.devnull, f"--rootdir={root}", f"--junitxml={report}"),
            *(str(root / OWN / name) for name in (*OWN_TESTS, "::".join(RUNNER_TEST))),
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), ROOT: str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = [case for suite in JUnitXml.fromfile(str(report)) for case in suite]
    passed = {case.name.partition("[")[0] for case in cases if not case.result}
    assert {*OWN_TESTS.values(), RUNNER_TEST[1]} <= passed
    assert sum(not case.result for case in cases) >= 35


def test_the_patched_class_passes_the_state_machine(tmp_path, source):
    root = patched(source, tmp_path)
    outcome = run(
        *("check", "quick", "--variants", "vllm", "--vllm-source", root, "--explore", 8),
        checks=["corners", "unequal", "edges", "window", "disabled"],
    )
    assert outcome.code == 0, outcome
    assert " 0 failed" in outcome.out


def test_the_patched_class_is_called_in_one_launch(tmp_path, monkeypatch, source):
    from bt_bench.suites.block_tables.vllm.adapter import adapt
    from bt_bench.suites.block_tables.vllm.source import find_sources
    from bt_kernels.layout import TableLayout

    kind = adapt(find_sources([patched(source, tmp_path)]).found[0])
    tables = kind(TableLayout((4, 8), (5, 6), 3, 16), "cpu")
    for name in ("gather_block_tables", "compute_slot_mappings"):
        monkeypatch.setattr(type(tables._tables), name, pytest.fail)
    tables.append_block_ids(1, ([3, 1], [2]), overwrite=True)
    starts, at = torch.tensor([0, 2], dtype=torch.int32), torch.tensor([4, 5])
    rows, slots = tables.prepare_step(torch.tensor([1]), starts, at, 1, 3)
    assert rows[0].tolist() == [[3, 1, 0, 0, 0]]
    assert slots.tolist() == [[4, 5, -1], [20, 21, -1]]


@pytest.mark.parametrize("seed", range(3))
def test_the_patched_runner_makes_the_same_steps(tmp_path, source, seed):
    """The text of `execute_model` and `prepare_attn`, before and after, drives the two classes."""
    runners = []
    layouts = [layout for layout in LAYOUTS if layout != NO_GROUPS]
    rng = np.random.default_rng((55, seed))
    drawn = layout_of(rng, layouts[seed], INTERPRETED, Counter())
    for name, root in {"old": source, "new": patched(source, tmp_path)}.items():
        with vllm_runner.imported_from(write_package(tmp_path / name, root)) as module:
            runners.append(module("model_runner").GPUModelRunner(drawn.layout))
    counts = Counter()
    both = runners[1].block_tables.gather_and_compute_slot_mappings

    def counted(*arguments, **options):
        counts["one launch"] += 1
        return both(*arguments, **options)

    runners[1].block_tables.gather_and_compute_slot_mappings = counted
    scheduler = Scheduler(rng, drawn, Counter())
    for number in range(30):
        batch = scheduler.schedule()
        kind = "step" if number % 5 else str(rng.choice(["no tokens", "dummy", "pcp"]))
        old, new = (runner.play(Step(batch, kind)) for runner in runners)
        assert len(old) == len(new)
        for mine, other in zip(old, new, strict=True):
            same = torch.equal(mine, other) if isinstance(mine, torch.Tensor) else mine == other
            assert same, (number, kind)
    assert counts["one launch"] == 24


def make_sampler(device):
    from vllm.v1.worker.gpu.sample.sampler import Sampler
    from vllm.v1.worker.gpu.states import RequestState

    states = RequestState(4, 32, 16, 1, 64, device)
    config = SimpleNamespace(reasoning_config=None)
    return Sampler(config, 4, 64, device, states, enable_trace_replay=True)


def pools(sampler):
    """Return the sampler's tensors on the device, by state and name."""
    states = [
        *sampler.logits_processors,
        sampler.sampling_states,
        sampler.logprob_token_ids_state,
        sampler.trace_replay_state,
    ]
    return {
        (type(state).__name__, name): value.gpu
        for state in states
        for name, value in vars(state).items()
        if hasattr(value, "gpu")
    }


def test_the_patched_sampler_flushes_the_same(device, tmp_path, source):
    with imported_from(patched(source, tmp_path)):
        new = make_sampler(device)
    with imported_from(source):
        skipped = flush_both(make_sampler(device), new, np.random.default_rng(55))
    assert skipped > 15


def flush_both(old, new, rng):
    """Add the same requests in both, and compare after each step; return the steps skipped."""
    skipped = 0
    for _ in range(60):
        before = pools(new)["SamplingStates", "temperature"]
        added = rng.choice(4, size=rng.choice([0, 0, 1, 2]), replace=False)
        for row in map(int, added):
            parameters = SamplingParams(
                seed=int(rng.integers(1 << 40)),
                temperature=float(rng.random()),
                top_p=float(rng.random()),
                top_k=int(rng.integers(9)),
                min_tokens=int(rng.integers(4)),
                repetition_penalty=float(1 + rng.random()),
                logit_bias={3: 0.5} if rng.random() < 0.5 else None,
                allowed_token_ids=[1, 5] if rng.random() < 0.5 else None,
                _bad_words_token_ids=[[2], [3, 4]] if rng.random() < 0.5 else None,
                logprob_token_ids=[7] if rng.random() < 0.5 else None,
                trace_decode_token_ids=[5, 6] if rng.random() < 0.5 else None,
            )
            for sampler in (old, new):
                sampler.add_request(row, parameters)
        for sampler in (old, new):
            sampler.apply_staged_writes()
        found, expected = pools(new), pools(old)
        assert len(expected) >= 20
        for name, value in expected.items():
            assert torch.equal(found[name], value), name
        skipped += found["SamplingStates", "temperature"] is before
    return skipped
