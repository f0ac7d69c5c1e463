"""Steps with the plugin beside vLLM's class: what is drawn, found, written and timed."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial

import numpy as np
import plugin_steps
import pytest
from beside.draw import INTERPRETED, NO_GROUPS, layout_of
from engine_steps import batch_times, times
from engine_steps import session as sessions
from engine_steps.package import engine_package
from engine_steps.session import FAILS, PLANTED, REMOVED, EngineSession
from support.vllm_runner import imported_from, write_package

from bt_bench.report import render_document
from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import counting


@pytest.fixture(scope="module")
def runner(device):
    with engine_package(None) as module:
        yield module("model_runner").GPUModelRunner
    counting.reset()


def played(runner, device, monkeypatch, mode, event, name="qwen3-32b", steps=5):
    monkeypatch.setattr(sessions, "_MODES", {mode: 1.0})
    monkeypatch.setattr(EngineSession, "_draw_event", lambda _: event)
    rng = np.random.default_rng(3)
    drawn = layout_of(rng, name, INTERPRETED, Counter())
    session = EngineSession(runner, drawn, device, rng, steps, captures=False)
    session.event_at = 1
    return session, list(session.play())


@pytest.mark.parametrize(
    ("mode", "event"),
    [("on", ""), ("on", FAILS), ("on", REMOVED), ("shadow", PLANTED), ("shadow", FAILS)],
)
def test_steps_are_equal_whatever_happens(runner, device, monkeypatch, mode, event):
    session, found = played(runner, device, monkeypatch, mode, event)
    assert found == []
    assert sum(count for name, count in session.seen.items() if name.startswith("step: ")) == 5
    if event:
        assert session.seen[sessions.EVENTS[event]] == 1
    assert session.seen["planted bits that shadow mode found"] == (event == PLANTED)


def test_tables_without_groups_stay_vllms(runner, device, monkeypatch):
    _, found = played(runner, device, monkeypatch, "on", "", NO_GROUPS)
    assert found == []


def test_a_difference_is_found(runner, device, monkeypatch):
    """A wrong bit without shadow mode."""
    load = plugin.load

    def wrongly():
        load()
        from bt_kernels.engines.plugin.deferring import DeferringTables

        correct = DeferringTables.compute_slot_mappings

        def wrong(tables, *args, **kwargs):
            found = correct(tables, *args, **kwargs)
            tables.slot_mappings[-1, -1] ^= 1
            return found

        monkeypatch.setattr(DeferringTables, "compute_slot_mappings", wrong)

    monkeypatch.setattr(sessions.plugin, "load", wrongly)
    _, found = played(runner, device, monkeypatch, "on", "")
    assert any(difference.buffer == "slot_mappings" for difference in found)


def test_a_plugin_that_does_not_act_is_an_error(runner, device, monkeypatch):
    monkeypatch.setattr(sessions.plugin, "load", lambda: None)
    with pytest.raises(RuntimeError, match="did not replace the tables"):
        played(runner, device, monkeypatch, "on", "")


ARGUMENTS = ("--device", "cpu", "--steps", "200", "--steps-of-a-sequence", "10")


def fake_play_all(steps, *, differences=(), seen=(), failures=()):
    def play_all(play, batches, args, *, keep, **_):
        summary = {
            "steps": steps,
            "num_differences": len(differences),
            "device": "cpu",
            "of_these": dict(seen),
            "differences": list(differences),
            "failures": list(failures),
        }
        keep(summary)
        return summary

    return play_all


@pytest.mark.parametrize(
    ("played", "code"),
    [
        (partial(fake_play_all, 200), 0),
        (partial(fake_play_all, 190), 1),
        (partial(fake_play_all, 200, differences=[{"session": 7}]), 1),
        (partial(fake_play_all, 200, failures=["interrupted"]), 1),
        (partial(fake_play_all, 200, seen={"planted bits": 2}), 1),
    ],
    ids=["complete", "too few", "different", "interrupted", "planted and not found"],
)
def test_the_outcome_is_written_and_is_the_exit_code(monkeypatch, tmp_path, capsys, played, code):
    monkeypatch.setattr(plugin_steps, "play_all", played())
    args = plugin_steps.parse([*ARGUMENTS, "--out", str(tmp_path)])
    assert plugin_steps.compare(args) == code
    (path,) = tmp_path.iterdir()
    written = json.loads(path.read_text())
    assert {"asked", "steps", "vllm", "torch", "triton", "python", "gpus", "commit"} <= set(written)
    assert ("--session 7" in capsys.readouterr().out) == bool(written["differences"])


def test_sequences_of_all_layouts_come_first(monkeypatch):
    found = []

    def play_all(play, batches, args, **_):
        found.extend(batches)
        return fake_play_all(2000)(play, batches, args, keep=lambda _: None)

    monkeypatch.setattr(plugin_steps, "play_all", play_all)
    plugin_steps.compare(plugin_steps.parse([*ARGUMENTS, "--steps", "2000"]))
    assert sorted(number for batch in found for number in batch) == list(range(200))
    assert [batch[0] for batch in found[:20]] == list(range(20))
    assert all(len({number % 20 for number in batch}) == 1 for batch in found)


def test_medians_are_of_repetitions_and_worst_of_steps():
    one_call = np.array([[1.0, 2, 3], [1, 2, 3], [1, 2, 90]])
    deferred = one_call + np.array([1, 2, 5])
    found = times.summarize({times.ONE_CALL: one_call, times.DEFERRED: deferred})
    assert found["median"] == {times.ONE_CALL: 2, times.DEFERRED: 4}
    assert found["worst"] == {times.ONE_CALL: 3, times.DEFERRED: 8}
    assert found["spread"][times.ONE_CALL] == [2, 2]
    assert found["differences"] == {"deferred - prepare_step": {"median": 2, "worst": 5}}


def test_all_ways_are_timed_and_shown(device, monkeypatch):
    args = plugin_steps.parse(
        ["--device", "cpu", "--times", "--configs", "quick", "--window", "1", "--repeats", "1"]
    )
    monkeypatch.setattr(counting, "_PRINTING", {plugin.counters()["pid"]})
    found = {**plugin_steps.facts(args), "failures": [], "cases": {}}
    found["cases"] = dict(times.measure(args, found))
    counting.reset()
    assert found["failures"] == []
    (case,) = found["cases"].values()
    assert set(case["median"]) == set(times.MEANINGS)
    text = render_document(times.page(found))
    assert all(way in text for way in times.MEANINGS)
    assert "deferred - prepare_step" in text


def test_batches_are_timed_in_all_ways(device):
    if device.type == "cuda":
        pytest.skip("the stand-in prepares batches on the CPU alone")
    options = ["--select", "decode_1req_1grp", "--window", "1", "--repeats", "1"]
    args = plugin_steps.parse(["--device", "cpu", "--inputs", "--times", *options])
    found = {**plugin_steps.facts(args), "failures": [], "cases": {}}
    found["cases"] = dict(batch_times.measure(args, found))
    counting.reset()
    assert (found["failures"], found["left_out"]) == ([], {})
    (case,) = found["cases"].values()
    assert set(case["median"]) == set(times.MEANINGS_OF_INPUTS)
    text = render_document(times.page(found))
    assert all(meaning in text for meaning in times.MEANINGS_OF_INPUTS.values())


def test_sequences_of_batches_are_played_and_written(monkeypatch, tmp_path):
    args = plugin_steps.parse([*ARGUMENTS, "--inputs", "--out", str(tmp_path)])
    args.steps_of_a_sequence = 2
    _, seen, found = plugin_steps.play_batch(args, [0])
    counting.reset()
    assert found == []
    assert seen["sequences"] == 1
    assert seen["step: step"]
    monkeypatch.setattr(plugin_steps, "play_all", fake_play_all(200))
    plugin_steps.compare(args)
    assert [path.name for path in tmp_path.iterdir()] == ["plugin-inputs.json"]


def test_the_package_is_gone_afterwards(tmp_path):
    with imported_from(write_package(tmp_path)) as outer:
        module = outer("block_table")
        with engine_package(None) as inner:
            assert inner("block_table") is not module
        assert outer("block_table") is module
