"""At a difference in shadow mode, a file has the contents before it, the calls, and both values."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from support.in_c import plant
from support.plugin_steps import drawn, play, runners
from support.recorded_calls import replay, tables_for
from support.vllm_runner import imported_from, write_package

from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import counting, messages
from bt_kernels.engines.plugin.noting import Notes
from bt_kernels.engines.recordings import Apply, BeginStep, Difference, Recording, Snapshot

PLACES = {
    "slot_mappings": lambda variant: variant.slot_mappings,
    "input_block_tables[0]": lambda variant: variant.input_block_tables[0],
    "block_tables[0].gpu": lambda variant: variant.block_tables[0],
}


@pytest.fixture
def vllm(tmp_path, device, monkeypatch):
    """Function that imports modules of a stand-in for vLLM."""
    messages.forget()
    monkeypatch.setenv("BT_KERNELS_REPRO", str(tmp_path / "repros"))
    (tmp_path / "repros").mkdir()
    with imported_from(write_package(tmp_path / "package")) as module:
        yield module
        plugin.remove()
        counting.reset()


def find_difference(vllm, monkeypatch, caplog, operation, buffer="slot_mappings", kinds=None):
    """Let an operation flip a bit in step 4; return the warning, and the class of vLLM."""
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "shadow", monkeypatch, steps=100)
    play(both, scheduler, rng, 3)
    step = plugin.counters()["compared"] + 1
    variant = both[0].block_tables._shadow.ours._variant
    correct = getattr(variant, operation)

    def wrong(*args, **kwargs):
        found = correct(*args, **kwargs)
        PLACES[buffer](variant)[-1, 1] ^= 4
        return found

    plant(variant, operation, wrong)
    with caplog.at_level(logging.WARNING):
        play(both, scheduler, rng, 6, kinds or {"step": 1})
    (record,) = caplog.records
    return record.message, step, type(both[1].block_tables)


@pytest.mark.parametrize("buffer", PLACES)
def test_the_calls_lead_to_vllms_value(vllm, tmp_path, monkeypatch, caplog, buffer):
    message, step, theirs = find_difference(vllm, monkeypatch, caplog, "prepare_step", buffer)
    (path,) = (tmp_path / "repros").iterdir()
    assert f"`bt-bench replay {path}` makes the calls of this step again" in message
    recording = Recording(path)
    assert recording.header.kind == "repro"
    assert str(tmp_path) not in recording.header.to_line().decode()
    tables = tables_for(recording, theirs)
    done = replay(recording, tables)
    assert isinstance(done[0], Snapshot)
    assert sum(isinstance(one, BeginStep) for one in done) == 1
    difference = done[-1]
    assert isinstance(difference, Difference)
    assert (difference.step, difference.buffer) == (step, buffer)
    assert difference.ours == difference.theirs ^ 4
    name, group = re.fullmatch(r"(\w+)(?:\[(\d)\])?(?:\.gpu)?", buffer).groups()
    target = getattr(tables, name)
    target = target if group is None else target[int(group)]
    assert getattr(target, "gpu", target)[difference.place].item() == difference.theirs


def test_the_snapshot_is_from_before_the_step(vllm, tmp_path, monkeypatch, caplog):
    """A difference that shows when the step ends is in the same file as the calls of the step."""
    _, step, _ = find_difference(
        *(vllm, monkeypatch, caplog, "apply_staged_writes", "block_tables[0].gpu"),
        {"no tokens": 1},
    )
    (path,) = (tmp_path / "repros").iterdir()
    snapshot, begin, *calls, difference = Recording(path).operations()
    assert isinstance(snapshot, Snapshot)
    assert isinstance(begin, BeginStep)
    assert sum(isinstance(one, Apply) for one in calls) == 1
    assert (difference.after, difference.step) == ("execute_model", step)


@pytest.mark.parametrize("fault", ["folder", "notes"])
def test_without_a_file_the_warning_gives_the_reason(vllm, tmp_path, monkeypatch, caplog, fault):
    if fault == "folder":
        monkeypatch.setenv("BT_KERNELS_REPRO", str(tmp_path / "missing"))
    else:
        monkeypatch.setattr(Notes, "slots", None)
    message, *_ = find_difference(vllm, monkeypatch, caplog, "prepare_step")
    expected = "FileNotFoundError" if fault == "folder" else "TypeError"
    assert f"No repro file was written ({expected}: " in message
    assert "slot_mappings[" in message


def test_without_the_variable_it_is_in_the_temporary_folder(vllm, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("BT_KERNELS_REPRO", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    find_difference(vllm, monkeypatch, caplog, "prepare_step")
    (path,) = tmp_path.glob("bt-kernels-repro.*.bin")
    assert Recording(path).header.kind == "repro"
    assert not list(Path(tmp_path / "repros").iterdir())


def test_without_a_difference_nothing_is_written(vllm, tmp_path, monkeypatch):
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "shadow", monkeypatch, steps=3)
    play(both, scheduler, rng, 6)
    assert not list((tmp_path / "repros").iterdir())
    assert "_shadow" not in vars(both[0].block_tables)
