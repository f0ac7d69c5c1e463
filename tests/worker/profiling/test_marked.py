"""The process that marks calls for a profiler, on the CPU: what its ranges have, and failures."""

from __future__ import annotations

import json
import pickle
import sys

import pytest
from support.fake_gpus import environment_of

from bt_bench.base import claims
from bt_bench.base.errors import UsageError
from bt_bench.config.load import load_config
from bt_bench.results import Plan, ReasonCode
from bt_bench.suites.block_tables import operations as ops
from bt_bench.variants.catalogue import find_variants
from bt_bench.worker import leased
from bt_bench.worker.profiling import marked as process
from bt_bench.worker.profiling.marking import (
    ANSWER_NAME,
    PROGRESS_NAME,
    REQUEST_NAME,
    MarkRequest,
    accepted,
    read_answer,
)
from bt_bench.worker.tasks.messages import WorkerSetup, arms_of

CONFIG = """
name: tiny
variants: [mine]
operations: [step, apply]
defaults: {max_num_reqs: 4, max_num_batched_tokens: 16, max_model_len: 64}
cases: [{name: one, groups: 1, requests: 2, tokens: 4}]
"""
MINE = '''
"""Writes down what is called."""

import os
from bt_kernels.fusions import FusedGatherSlots


class Variant(FusedGatherSlots):
    def append_block_ids(self, *given, **named):
        note("stage")
        super().append_block_ids(*given, **named)

    def prepare_step(self, *given):
        note("step")
        print("a variant that prints")
        return super().prepare_step(*given)


def note(text):
    with open(os.environ["NOTES"], "a") as file:
        file.write(text + " ")
'''
BROKEN = MINE.replace('note("step")', 'raise ValueError("a broken step")')


@pytest.fixture
def notes(tmp_path, monkeypatch, tell_ranges):
    """The file in which the variant, and the range around it, write down what happens."""
    path = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(path))

    def write(text):
        with path.open("a") as file:
            file.write(f"{text} ")

    tell_ranges(write)
    return path


@pytest.fixture
def request_of(tmp_path):
    """Makes a request for variants by name, from their sources."""

    def made(operation=ops.STEP, step=None, **sources):
        folder = tmp_path / "kernels"
        folder.mkdir(exist_ok=True)
        for name, text in sources.items():
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
        config = tmp_path / "tiny.yaml"
        config.write_text(CONFIG, encoding="utf-8")
        (case,) = load_config(str(config)).cases
        found = find_variants([folder])
        arms = arms_of([found[name] for name in sources])
        setup = WorkerSetup(device="cpu", arms=arms, plan=Plan())
        return MarkRequest(setup, case, operation, step, 2, 1, command=("profile", "tiny"))

    return made


def test_only_the_operation_lies_in_the_range(request_of, notes):
    request = request_of(mine=MINE)
    told = []
    marked = process.run(request, told.append, {})
    assert marked.ranges == {"mine": "mine.step.one"}
    assert not marked.failures
    assert told == ["profiling mine, 1 of 1"]
    text = notes.read_text()
    last = marked.num_steps - 1
    assert text.count(f"<mine.step.one:{last} step >") == 2
    # Steps before the last one, and the warm-up, are called outside.
    assert text.count("step ") == 3 * marked.num_steps
    assert text.index("step") < text.index("<")
    assert marked.read_bytes > 0
    assert marked.written_bytes > 0


def test_a_variant_that_raises_does_not_stop_the_others(request_of, notes):
    request = request_of(broken=BROKEN, mine=MINE)
    seen = {}
    marked = process.run(request, lambda _: None, seen)
    assert list(marked.ranges) == ["mine"]
    reason = marked.failures["broken"]
    assert reason.code is ReasonCode.RAISED
    assert reason.message.startswith("while profiled: ValueError: a broken step")
    assert any("a broken step" in text for text in seen)
    text = notes.read_text()
    assert text.count("<") == text.count(">") == 2


def test_a_step_that_the_window_lacks_is_refused(request_of, notes):
    with pytest.raises(UsageError, match=r"step 99: the window of case 'one' has no such step"):
        process.run(request_of(step=99, mine=MINE), lambda _: None, {})


def test_a_gpu_that_another_process_has_is_not_profiled(request_of, notes, tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "FOLDERS", (tmp_path,))
    environment = environment_of("aaaa-1")
    read = "bt_bench.worker.machine.environment.read_environment"
    monkeypatch.setattr(read, lambda *_: environment)
    with (
        leased([environment], print),
        pytest.raises(UsageError, match="GPU-aaaa-1 is in use by process"),
    ):
        process.run(request_of(mine=MINE), print, {})
    assert not notes.exists()
    assert process.run(request_of(mine=MINE), print, {}).ranges


def test_the_answer_is_left_in_the_folder(request_of, notes, tmp_path, capfd, monkeypatch):
    folder = tmp_path / "asked"
    folder.mkdir()
    (folder / REQUEST_NAME).write_bytes(pickle.dumps(request_of(mine=MINE)))
    assert read_answer(folder) is None
    monkeypatch.setattr(sys, "argv", ["marked.py", str(folder)])
    process.main(folder)
    assert sys.argv[1:] == ["profile", "tiny"]  # by which others know who has the GPU
    out, err = capfd.readouterr()
    assert out == ""
    assert "a variant that prints" in err
    assert accepted(read_answer(folder)).ranges == {"mine": "mine.step.one"}
    assert (folder / PROGRESS_NAME).read_text() == "profiling mine, 1 of 1\n"
    (folder / REQUEST_NAME).write_bytes(pickle.dumps(request_of(step=99, mine=MINE)))
    process.main(folder)
    with pytest.raises(UsageError, match="has no such step"):
        accepted(read_answer(folder))
    assert json.loads((folder / ANSWER_NAME).read_text())["marked"] is None
