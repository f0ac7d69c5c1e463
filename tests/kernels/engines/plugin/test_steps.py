"""A runner with the plugin and one without make the same steps: whole buffers are equal each time.

Of the package `vllm` there is a stand-in, and, where BT_BENCH_VLLM_SOURCE names an unpacked wheel,
vLLM's own class with the text of its runner's methods.
"""

from __future__ import annotations

import logging
import os

import pytest
import torch
from beside.draw import NO_GROUPS
from support.in_c import plant
from support.plugin_steps import WHEELS, drawn, play, runners, same
from support.vllm_readers import READERS, drafts
from support.vllm_runner import RELEASE, Step, imported_from, write_package

from bt_kernels.engines import plugin
from bt_kernels.engines import vllm as engine_tables
from bt_kernels.engines.plugin import counting, shadowing
from bt_kernels.engines.plugin.deferring import DeferringTables
from bt_kernels.variants import fused, one_launch


@pytest.fixture(params=["stand-in", "vLLM's"])
def vllm(request, tmp_path, device, monkeypatch):
    """Function that imports modules of the package, by the last part of their names."""
    monkeypatch.setenv("BT_KERNELS_REPRO", str(tmp_path))
    if request.param == "stand-in":
        root = write_package(tmp_path)
    elif WHEELS:
        root = write_package(tmp_path, WHEELS[0])
    else:
        pytest.skip(f"needs an unpacked wheel of vLLM {RELEASE}: BT_BENCH_VLLM_SOURCE=DIR")
    with imported_from(root) as module:
        yield module
        plugin.remove()
        counting.reset()


@pytest.mark.parametrize("seed", range(2))
def test_deferred_steps_are_the_same(vllm, monkeypatch, seed):
    layout, scheduler, rng = drawn(seed)
    ours, theirs = runners(vllm, layout, "on", monkeypatch)
    assert type(ours.block_tables) is DeferringTables
    play((ours, theirs), scheduler, rng, 40)
    counts = plugin.counters()
    assert counts["failures"] == 0
    assert counts["steps"] == counts["deferred"] > counts["fused"] > 10
    assert counts["steps"] == counts["fused"] + sum(
        counts["settled"].get(name, 0) for name in ("end of execute_model", "gather_block_tables")
    )
    # The other steps return early, or are of context parallelism.
    assert counts["calls"]["prepare_step"] == counts["fused"]


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 34))
def test_many_deferred_steps_are_the_same(vllm, monkeypatch, seed):
    layout, scheduler, rng = drawn(seed)
    play(runners(vllm, layout, "on", monkeypatch), scheduler, rng, 100)
    assert plugin.counters()["failures"] == 0


def test_a_step_is_one_call(vllm, monkeypatch):
    layout, scheduler, _ = drawn(0)
    ours, _ = runners(vllm, layout, "on", monkeypatch)
    for number in range(1, 5):
        ours.play(Step(scheduler.schedule()))
        counts = plugin.counters()
        assert counts["calls"] == {"prepare_step": number}
        assert counts["settled"] == {}


@pytest.mark.parametrize(("variant", "launches"), [(one_launch, 1), (fused, 2)])
def test_launches_are_counted(vllm, monkeypatch, variant, launches):
    """Without the helpers in C a GPU has the variant `fused`, whose steps are two."""
    monkeypatch.setattr(engine_tables, "_cheapest", lambda _: variant.Variant)
    layout, scheduler, _ = drawn(4)
    ours, _ = runners(vllm, layout, "on", monkeypatch)
    ours.play(Step(scheduler.schedule()))
    counts = plugin.counters()
    assert (counts["launches"], counts["calls"]) == (launches, {"prepare_step": 1})


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_host_times_are_of_steps_that_apply(vllm, monkeypatch, mode):
    monkeypatch.setenv("BT_KERNELS_COUNTERS", "1")
    monkeypatch.setattr(counting, "_PRINTING", {os.getpid()})
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, mode, monkeypatch, steps=2)
    play(both, scheduler, rng, 6)
    counts = plugin.counters()
    # The last step ends with the next one; shadow mode is not measured.
    most = counts["steps"] - 1 - counts["compared"]
    assert 0 < counts["host_time_us"]["steps"] <= most
    assert counts["failures"] == counts["differences"] == 0


@pytest.mark.parametrize("moment", ["after_apply", "between"])
@pytest.mark.parametrize("name", READERS)
def test_readers_at_the_worst_moment_see_what_they_should(vllm, monkeypatch, name, moment):
    """Right after the apply that waits, and between a gather that waits and its slots."""
    if (name, moment) == ("gather_block_tables, persistent", "between"):
        pytest.skip("its rows would be those that the step returns")
    layout, scheduler, rng = drawn(3)
    both = runners(vllm, layout, "on", monkeypatch)
    play(both, scheduler, rng, 3, {"step": 1}, **{moment: READERS[name]})
    counts = plugin.counters()
    assert counts["failures"] == 0
    assert counts["settled"], counts


def test_a_table_that_was_taken_before_settles(vllm, monkeypatch):
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "on", monkeypatch)
    held = {id(runner.block_tables): runner.block_tables.block_tables for runner in both}
    play(
        *(both, scheduler, rng, 6, {"step": 1}),
        after_apply=lambda tables: [table.gpu.clone() for table in held[id(tables)]],
    )
    assert plugin.counters()["settled"]["block_tables[g].gpu"] == 6


def test_what_an_exception_leaves_behind_is_settled(vllm, monkeypatch):
    layout, scheduler, _ = drawn(2)
    both = runners(vllm, layout, "on", monkeypatch)

    def fail(_):
        raise KeyError("of the engine")

    batch = scheduler.schedule()
    for runner in both:
        with pytest.raises(KeyError, match="of the engine"):
            runner.play(Step(batch, between=fail))
    assert same(both[0].buffers(), both[1].buffers())


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_tables_may_be_built_in_inference_mode(vllm, monkeypatch, mode):
    """Make what waits at the end of a step outside of inference mode."""
    layout, scheduler, rng = drawn(2)
    with torch.inference_mode():
        both = runners(vllm, layout, mode, monkeypatch, steps=5)
    play(both, scheduler, rng, 20, {"step": 0.6, "no tokens": 0.4})
    counts = plugin.counters()
    assert (counts["failures"], counts["differences"]) == (0, 0)
    assert counts["settled"]["end of execute_model"]


def test_two_instances_do_not_disturb_each_other(vllm, monkeypatch, caplog):
    """A target and a drafter; one of them falls back."""
    pairs = []
    for seed in (1, 2):
        layout, scheduler, rng = drawn(seed)
        pairs.append((runners(vllm, layout, "on", monkeypatch), scheduler, rng))
    for number in range(8):
        for both, scheduler, rng in pairs:
            play(both, scheduler, rng, 2)
        if number == 4:
            plant(pairs[0][0][0].block_tables._variant, "prepare_step", None)
    target, drafter = (both[0].block_tables for both, _, _ in pairs)
    assert type(target) is not DeferringTables
    assert type(drafter) is DeferringTables
    assert plugin.counters()["failures"] == len(caplog.records) == 1


def test_outside_of_execute_model_nothing_waits(vllm, monkeypatch):
    layout, _, _ = drawn(1)
    ours, _ = runners(vllm, layout, "on", monkeypatch)
    ours.block_tables.append_block_ids(0, tuple([3] for _ in layout.widths), overwrite=True)
    ours.block_tables.apply_staged_writes()
    assert not ours.block_tables.waits
    assert plugin.counters()["deferred"] == 0


@pytest.mark.parametrize(
    "operation", ["prepare_step", "apply_staged_writes", "compute_slot_mappings"]
)
def test_after_a_failure_vllms_class_goes_on(vllm, monkeypatch, caplog, operation):
    layout, scheduler, rng = drawn(2)
    both = runners(vllm, layout, "on", monkeypatch)
    play(both, scheduler, rng, 10)
    tables = both[0].block_tables
    addresses = [table.data_ptr() for table in tables.input_block_tables]

    def fail(*_, **__):
        raise ValueError("planted")

    plant(tables._variant, operation, fail)
    with caplog.at_level(logging.WARNING):
        play(both, scheduler, rng, 30)
    assert type(tables) is type(both[1].block_tables)
    assert [table.data_ptr() for table in tables.input_block_tables] == addresses
    (record,) = caplog.records
    assert "planted" in record.message
    assert "The engine goes on with its own" in record.message
    assert plugin.counters()["failures"] == 1


def test_an_invalid_call_raises_as_in_vllm(vllm, monkeypatch):
    layout, _, _ = drawn(2)
    for runner in runners(vllm, layout, "on", monkeypatch):
        with pytest.raises(RuntimeError):
            runner.block_tables.append_block_ids(
                0, tuple([1] * (width + 1) for width in layout.widths), overwrite=True
            )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shadow_mode_finds_no_difference_and_ends(vllm, monkeypatch, seed):
    layout, scheduler, rng = drawn(seed)
    both = runners(vllm, layout, "shadow", monkeypatch, steps=12)
    tables = both[0].block_tables
    addresses = [table.data_ptr() for table in tables.input_block_tables]
    play(both, scheduler, rng, 40)
    assert type(tables) is DeferringTables
    assert [table.data_ptr() for table in tables.input_block_tables] == addresses
    counts = plugin.counters()
    assert (counts["compared"], counts["differences"], counts["failures"]) == (12, 0, 0)
    assert counts["fused"] > 12


def test_shadow_mode_bears_foreign_writes(vllm, monkeypatch):
    """Other kernels write into input tables and slots, and both classes keep some of it."""
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "shadow", monkeypatch, steps=20)

    def write(tables):
        tables.input_block_tables[0][:, :1] = 77
        tables.slot_mappings[:, -1:] = 5

    play(both, scheduler, rng, 20, after_apply=write)
    assert plugin.counters()["differences"] == 0


@pytest.mark.parametrize("buffer", ["slots", "inputs", "source"])
def test_shadow_mode_finds_a_planted_bit_and_results_stay_right(vllm, monkeypatch, caplog, buffer):
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "shadow", monkeypatch, steps=1000)
    play(both, scheduler, rng, 5, {"step": 1})
    tables = both[0].block_tables
    variant = tables._shadow.ours._variant
    correct = variant.prepare_step

    def wrong(*args, **kwargs):
        found = correct(*args, **kwargs)
        target = {
            "slots": variant.slot_mappings,
            "inputs": variant.input_block_tables[0],
            "source": variant.block_tables[0],
        }[buffer]
        target[-1, 1] ^= 4
        return found

    plant(variant, "prepare_step", wrong)
    with caplog.at_level(logging.WARNING):
        play(both, scheduler, rng, 20)
    (record,) = caplog.records
    name = {"slots": "slot_mappings", "inputs": "input_block_tables[0]"}.get(buffer, ".gpu")
    assert name in record.message
    assert "in step 6" in record.message
    assert type(tables) is type(both[1].block_tables)
    assert plugin.counters()["differences"] == 1


def test_a_failure_in_shadow_mode_leaves_vllms_class(vllm, monkeypatch, caplog):
    layout, scheduler, rng = drawn(0)
    both = runners(vllm, layout, "shadow", monkeypatch)
    tables = both[0].block_tables
    plant(tables._shadow.ours._variant, "prepare_step", None)
    with caplog.at_level(logging.WARNING):
        play(both, scheduler, rng, 10)
    assert type(tables) is type(both[1].block_tables)
    assert "failed in shadow mode" in caplog.text


@pytest.mark.parametrize("name", ["_prepare", "_compare"])
@pytest.mark.parametrize("call", [1, 2, 3, 4, 5, 7, 9, 12, 15])
def test_without_memory_for_shadow_mode_vllms_class_goes_on(vllm, monkeypatch, caplog, name, call):
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "shadow", monkeypatch)
    tables = both[0].block_tables
    works, left = getattr(tables._shadow, name), [call]

    def fail(*args):
        left[0] -= 1
        if left[0] == 0:
            raise torch.OutOfMemoryError("planted")
        works(*args)

    monkeypatch.setattr(tables._shadow, name, fail)
    play(both, scheduler, rng, 12)
    assert type(tables) is type(both[1].block_tables)
    assert "planted" in caplog.text


def test_shadow_mode_makes_no_call_of_ours_while_a_graph_is_captured(vllm, monkeypatch):
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "shadow", monkeypatch)
    ours = both[0].block_tables._shadow.ours
    play(both, scheduler, rng, 5)
    before = plugin.counters()["calls"]
    with monkeypatch.context() as patched:
        patched.setattr(shadowing, "is_capturing", lambda: True)
        batch = scheduler.schedule()
        for runner in both:
            drafts(runner.block_tables, batch)
            runner.block_tables.get_dummy_block_tables(1)
            runner.block_tables.get_dummy_slot_mappings(1)
    assert plugin.counters()["calls"] == before
    assert not ours.waits
    play(both, scheduler, rng, 5)
    assert plugin.counters()["differences"] == 0


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_taken_out_in_the_middle_vllms_class_goes_on(vllm, monkeypatch, mode):
    layout, scheduler, rng = drawn(3)
    both = runners(vllm, layout, mode, monkeypatch)
    play(both, scheduler, rng, 10)
    for runner in both:  # staged, and not applied
        runner.block_tables.append_block_ids(0, tuple([5] for _ in layout.widths), overwrite=True)
    plugin.remove()
    assert type(both[0].block_tables) is type(both[1].block_tables)
    play(both, scheduler, rng, 10)
    assert plugin.counters()["failures"] == 0


@pytest.mark.parametrize("later", [-3, 0, 1])
@pytest.mark.parametrize("cause", ["taken out", "a failure"])
def test_vllms_class_goes_on_after_the_end_of_shadow_mode(vllm, monkeypatch, cause, later):
    """Nothing that it was given while it was compared is written again."""
    layout, scheduler, rng = drawn(2)
    both = runners(vllm, layout, "shadow", monkeypatch, steps=5)
    play(both, scheduler, rng, 6 + later)
    ours, theirs = (runner.block_tables for runner in both)
    assert (type(ours) is DeferringTables) is (later >= 0)
    for runner in both:  # other ids than those that were staged when shadow mode ended
        for row in range(layout.max_num_reqs):
            ids = tuple([7] for _ in layout.widths)
            runner.block_tables.append_block_ids(row, ids, overwrite=True)
    play(both, scheduler, rng, 1, {"step": 1})
    if cause == "taken out":
        plugin.remove()
    else:
        tables = ours if later >= 0 else ours._shadow.ours
        plant(tables._variant, "prepare_step", None)
    play(both, scheduler, rng, 8)
    assert type(ours) is type(theirs)


def test_tables_without_groups_are_vllms(vllm, monkeypatch):
    layout, _, _ = drawn(0, NO_GROUPS)
    ours, theirs = runners(vllm, layout, "on", monkeypatch)
    assert type(ours.block_tables) is type(theirs.block_tables)


# Where the engine's object changes its class


def stage(tables, block=5, row=0):
    tables.append_block_ids(row, tuple([block] for _ in tables.block_sizes), overwrite=True)


def test_a_redirect_ends_though_shadow_mode_ends_before_the_next_append(vllm, monkeypatch):
    layout, _, _ = drawn(1)
    both = [r.block_tables for r in runners(vllm, layout, "shadow", monkeypatch, steps=1)]
    for tables in both:
        tables.redirect_writes_to_null_block = True
        stage(tables)
        tables.apply_staged_writes()
        tables.redirect_writes_to_null_block = False
        tables.apply_staged_writes()
        stage(tables)
        tables.apply_staged_writes()
    assert type(both[0]) is DeferringTables
    assert both[0].block_tables[0].gpu[0, 0] == both[1].block_tables[0].gpu[0, 0] == 5


def test_ids_staged_within_a_step_wait_for_the_next_apply(vllm, monkeypatch):
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "on", monkeypatch)
    play(both, scheduler, rng, 4, {"step": 1}, after_apply=stage)
    assert plugin.counters()["failures"] == 0


def test_an_apply_between_gather_and_slots_comes_after_the_gather(vllm, monkeypatch):
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "on", monkeypatch)

    def apply(tables):
        tables.apply_staged_writes()

    play(both, scheduler, rng, 4, {"step": 1}, after_apply=stage, between=apply)
    assert plugin.counters()["failures"] == 0


@pytest.mark.parametrize("name", ["block_tables", "num_blocks", "input_block_tables"])
def test_a_read_whose_settling_fails_gets_vllms(vllm, monkeypatch, name):
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "on", monkeypatch)
    plant(both[0].block_tables._variant, "apply_staged_writes", None)
    play(both, scheduler, rng, 2, {"step": 1}, after_apply=READERS[name])
    assert type(both[0].block_tables) is type(both[1].block_tables)


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_methods_and_tables_taken_before_the_class_changed_still_work(vllm, monkeypatch, mode):
    layout, _, _ = drawn(1)
    both = [r.block_tables for r in runners(vllm, layout, mode, monkeypatch)]
    rows = torch.tensor([0])
    starts = torch.tensor([0, 1], dtype=torch.int32)

    def calls(tables):
        held = tables.block_tables[0]
        taken = [
            (tables.append_block_ids, (0, tuple([6] for _ in layout.widths), True)),
            (tables.apply_staged_writes, ()),
            (tables.gather_block_tables, (rows, 1)),
            (tables.compute_slot_mappings, (rows, starts, torch.tensor([0]), 1)),
            (tables.get_dummy_slot_mappings, (1,)),
            (tables.get_dummy_block_tables, (1,)),
            (tables.init_block_table_layout_tensors, ()),
            (held.apply_write, ()),
        ]
        return [(lambda f=f, args=args: f(*args)) for f, args in taken]

    taken = [calls(tables) for tables in both]
    plugin.remove()
    assert type(both[0]) is type(both[1])
    for own, theirs in zip(*taken, strict=True):
        assert same(own(), theirs())
    assert both[0].block_tables[0].gpu[0, 0] == 6


def test_tables_that_ours_refuses_become_vllms(vllm, monkeypatch, caplog):
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "on", monkeypatch)
    play(both, scheduler, rng, 3)
    for runner in both:
        tables = runner.block_tables
        stage(tables)
        tables.slot_mappings = torch.zeros(
            (len(layout.widths), layout.max_num_batched_tokens + 3), dtype=torch.int64
        )
        tables.init_block_table_layout_tensors()
    assert "init_block_table_layout_tensors failed" in caplog.text
    assert type(both[0].block_tables) is type(both[1].block_tables)
    for runner in both:
        runner.block_tables.apply_staged_writes()
    assert same(both[0].buffers(), both[1].buffers())


def test_nothing_of_a_recording_stays_after_shadow_mode(vllm, monkeypatch, tmp_path):
    monkeypatch.setenv("BT_KERNELS_RECORD", str(tmp_path / "calls.bin"))
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "shadow", monkeypatch, steps=2)
    play(both, scheduler, rng, 5)
    plugin.remove()
    assert not {"_recorder", "_shadow"} & vars(both[0].block_tables).keys()


def test_anything_may_be_asked_whether_it_is_of_the_class(vllm, monkeypatch):
    layout, _, _ = drawn(1)
    ours, theirs = runners(vllm, layout, "on", monkeypatch)
    kind = vllm("model_runner").GPUModelRunner.tables_class()
    assert isinstance(ours.block_tables, kind)
    assert isinstance(theirs.block_tables, kind)
    assert not isinstance({1}, kind)
