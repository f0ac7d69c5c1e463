"""Recorded calls of a running engine give the same tables when they are made again."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support import vllm_runner
from support.in_c import plant
from support.plugin_steps import KINDS, WHEELS, drawn, play, runners
from support.recorded_calls import replay, tables_for
from support.vllm_runner import RELEASE, InputBatch, Step, imported_from, write_package

from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import counting, loading, messages, recording, settings
from bt_kernels.engines.plugin.deferring import DeferringTables
from bt_kernels.engines.plugin.noting import Notes
from bt_kernels.engines.recordings import (
    Append,
    Apply,
    BeginStep,
    EndStep,
    Gather,
    Header,
    Recording,
    Slots,
    Snapshot,
)


@pytest.fixture
def vllm(tmp_path, device, monkeypatch):
    """Function that imports modules of a stand-in for vLLM; calls are recorded in `tmp_path`."""
    messages.forget()
    monkeypatch.setenv("BT_KERNELS_RECORD", str(tmp_path / "calls.bin"))
    with imported_from(write_package(tmp_path / "package")) as module:
        yield module
        plugin.remove()
        counting.reset()


@pytest.fixture
def wheel_vllm(tmp_path, device, monkeypatch):
    """The same with vLLM's own class and methods."""
    if not WHEELS:
        pytest.skip(f"needs an unpacked wheel of vLLM {RELEASE}: BT_BENCH_VLLM_SOURCE=DIR")
    messages.forget()
    monkeypatch.setenv("BT_KERNELS_RECORD", str(tmp_path / "calls.bin"))
    with imported_from(write_package(tmp_path / "package", WHEELS[0])) as module:
        yield module
        plugin.remove()
        counting.reset()


def files(tmp_path):
    return sorted(path for path in tmp_path.iterdir() if path.is_file())


def check_replay(path, tables, theirs, *, inputs=True):
    """Replay a file on vLLM's class; whole buffers are those of the engine. Return the calls.

    Without `inputs`, columns of input tables that no call writes may differ.
    """
    found = Recording(path)
    again = tables_for(found, theirs)
    done = replay(found, again)
    assert found.note is None
    for group, table in enumerate(again.block_tables):
        assert torch.equal(table.gpu, tables.block_tables[group].gpu)
        if inputs:
            assert torch.equal(again.input_block_tables[group], tables.input_block_tables[group])
    assert torch.equal(again.slot_mappings, tables.slot_mappings)
    assert (again.num_blocks.np == tables.num_blocks.np).all()
    return done


@pytest.mark.parametrize(
    ("mode", "seed", "num_steps"), [("off", 0, 40), ("off", 1, 40), ("on", 1, 6), ("shadow", 2, 6)]
)
def test_recorded_calls_give_the_same_tables(vllm, tmp_path, monkeypatch, mode, seed, num_steps):
    layout, scheduler, rng = drawn(seed)
    both = runners(vllm, layout, mode, monkeypatch, steps=3)
    play(both, scheduler, rng, num_steps, KINDS | {"pcp": 0.15})
    tables, theirs = (runner.block_tables for runner in both)
    plugin.remove()
    assert type(tables) is type(theirs)
    (path,) = files(tmp_path)
    assert path.name == f"calls.{os.getpid()}-1.bin"
    done = check_replay(path, tables, type(theirs))
    for kind in (BeginStep, EndStep):
        assert sum(isinstance(one, kind) for one in done) == num_steps
    assert plugin.counters()["failures"] == 0


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_calls_of_vllms_own_class_give_the_same_tables(wheel_vllm, tmp_path, monkeypatch, mode):
    layout, scheduler, rng = drawn(1)
    both = runners(wheel_vllm, layout, mode, monkeypatch, steps=3)
    play(both, scheduler, rng, 10)
    tables, theirs = (runner.block_tables for runner in both)
    plugin.remove()
    assert check_replay(*files(tmp_path), tables, type(theirs))


def test_with_off_the_class_is_vllms_and_no_kernel_is_ours(vllm, monkeypatch):
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "off", monkeypatch)
    play(both, scheduler, rng, 3)
    assert isinstance(both[0].block_tables, type(both[1].block_tables))
    assert not isinstance(both[0].block_tables, DeferringTables)
    assert plugin.counters()["tables"] == sum(plugin.counters()["calls"].values()) == 0


def test_the_header_has_what_the_engine_gave(vllm, tmp_path, monkeypatch):
    layout, _, _ = drawn(1)
    runners(vllm, layout, "off", monkeypatch)
    (path,) = files(tmp_path)
    header = Recording(path).header
    assert (header.kind, header.vllm, header.device) == ("recording", "0.33.0", "cpu")
    assert header.max_num_blocks_per_group == layout.widths
    assert (header.cp_size, header.sliding_window_reach) == (
        1,
        layout.sliding_window_reach or None,
    )
    assert str(tmp_path) not in header.to_line().decode()


@pytest.mark.parametrize("operation", ["prepare_step", "apply_staged_writes"])
def test_after_a_failure_calls_are_recorded_once(vllm, tmp_path, monkeypatch, operation):
    layout, scheduler, rng = drawn(2)
    both = runners(vllm, layout, "on", monkeypatch)
    play(both, scheduler, rng, 3, {"step": 1})
    tables = both[0].block_tables
    plant(tables._variant, operation, None)
    play(both, scheduler, rng, 2, {"no tokens": 1})
    play(both, scheduler, rng, 4, {"step": 1})
    assert plugin.counters()["failures"] == 1
    plugin.remove()
    done = check_replay(*files(tmp_path), tables, type(both[1].block_tables))
    assert sum(isinstance(one, Apply) for one in done) == 9


def test_a_full_file_is_replaced_by_one_that_replays_alone(vllm, tmp_path, monkeypatch):
    layout, scheduler, rng = drawn(1)
    monkeypatch.setattr(settings, "record_bytes", lambda: 3000)
    monkeypatch.setattr(recording, "_FRAME_STEPS", 3)
    both = runners(vllm, layout, "off", monkeypatch)
    theirs = type(both[1].block_tables)
    for _ in range(12):
        play(both, scheduler, rng, 5)
        assert all(path.stat().st_size < 9000 for path in files(tmp_path))
    plugin.remove()
    path, before = files(tmp_path)
    assert before.name == f"{path.name}.1"
    done = check_replay(path, both[0].block_tables, theirs, inputs=False)
    assert isinstance(done[0], Snapshot)
    assert isinstance(replays(before)[0], Snapshot)  # so files were replaced more than once
    # The full one ends where the next begins.
    again = tables_for(Recording(before), theirs)
    replay(Recording(before), again)
    assert (again.num_blocks.np == done[0].num_blocks).all()
    for table, content in zip(again.block_tables, done[0].tables, strict=True):
        assert (table.gpu.numpy() == content).all()


def test_frames_wait_until_the_gpu_has_copied_the_tables(vllm, tmp_path, monkeypatch):
    layout, scheduler, rng = drawn(1)
    monkeypatch.setattr(settings, "record_bytes", lambda: 1)
    monkeypatch.setattr(recording, "_FRAME_STEPS", 1)
    both = runners(vllm, layout, "off", monkeypatch)
    copies = both[0].block_tables._recorder._copies
    with monkeypatch.context() as patched:
        patched.setattr(copies, "_copied", SimpleNamespace(record=int, query=lambda: False))
        play(both, scheduler, rng, 5, {"step": 1})
        assert [path.name[-2:] for path in files(tmp_path)] == ["in", ".1"]
        assert list(Recording(files(tmp_path)[0]).operations()) == []
    both[0].block_tables._recorder._file._max_bytes = 10**9
    play(both, scheduler, rng, 3, {"step": 1})
    plugin.remove()
    tables, theirs = both[0].block_tables, type(both[1].block_tables)
    done = check_replay(files(tmp_path)[0], tables, theirs, inputs=False)
    assert sum(isinstance(one, BeginStep) for one in done) > 3


def test_no_token_is_read_or_recorded(vllm, tmp_path, monkeypatch):
    """Of the batch only rows, lengths and computed tokens are read."""
    read = set()

    class Batch(InputBatch):
        def __getattribute__(self, name):
            read.add(name)
            return super().__getattribute__(name)

        input_ids = torch.full((64,), 1_234_567_891, dtype=torch.int32)
        req_ids = ("secret-request",)

    monkeypatch.setattr(vllm_runner, "InputBatch", Batch)
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, "off", monkeypatch)
    play(both, scheduler, rng, 10)
    plugin.remove()
    (path,) = files(tmp_path)
    content = path.read_bytes()
    assert {"idx_mapping", "idx_mapping_np", "num_computed_tokens_np"} <= read
    assert not {name for name in read if "ids" in name or "token_id" in name or "prompt" in name}
    assert (1_234_567_891).to_bytes(4, "little") not in content
    assert b"secret" not in content
    # Nor is there room: every number is one of the fields that operations have.
    largest = max(int(np.max(one.positions)) for one in replays(path) if isinstance(one, Slots))
    assert largest < 10**6


def replays(path):
    return list(Recording(path).operations())


class OnGpu:
    """A tensor of which nothing but its shape is known without waiting."""

    def __init__(self, *shape):
        self.shape, self.device = shape, SimpleNamespace(type="cuda")

    def __getattr__(self, name):
        raise AssertionError(f"{name} waits for the GPU")


def read_notes(notes, tmp_path):
    path = tmp_path / "notes"
    header = Header("recording", "", "cuda", "", (16, 8), 9, 99, (3, 5))
    path.write_bytes(header.to_line() + notes.frame.take())
    return replays(path)


def test_nothing_waits_for_the_gpu(tmp_path):
    """Rows and lengths are those that the runner has on the host; of drafts, only the rows are."""
    mapping, starts, positions, computed = OnGpu(2), OnGpu(5), OnGpu(32), OnGpu(9)
    batch = SimpleNamespace(
        idx_mapping=mapping,
        idx_mapping_np=np.array([4, 1]),
        num_computed_tokens_np=np.array([7, 0], dtype=np.int32),
        query_start_loc_np=np.array([0, 1, 4, 4, 4], dtype=np.int32),
    )
    notes = Notes()
    notes.begin_batch(SimpleNamespace(), batch)
    notes.gather(mapping, 4, None, computed)
    notes.slots(mapping, starts, positions, 8, None)
    notes.end_batch()
    notes.gather(mapping, 2, (OnGpu(8, 3),), None)
    notes.slots(mapping, starts, positions, 8, OnGpu(2, 40))
    notes.slots(OnGpu(3), starts, positions, 8, None)
    first, second, out, drafts, others = read_notes(notes, tmp_path)
    assert isinstance(first, Gather)
    assert (first.rows.tolist(), first.computed.tolist()) == ([4, 1], [7, 0])
    assert (first.masks, first.num_reqs, first.num_reqs_padded) == (True, 2, 4)
    assert second.rows.tolist() == [4, 1]
    assert second.starts.tolist() == [0, 1, 4]
    assert second.positions.tolist() == [7, 0, 1, 2]
    assert (out.rows.tolist(), out.masks, out.out_rows) == ([4, 1], False, 8)
    assert (drafts.rows.tolist(), drafts.starts, drafts.out_columns) == ([4, 1], None, 40)
    assert (others.rows, others.starts, others.positions, others.num_reqs) == (None,) * 3 + (3,)


@pytest.mark.parametrize(
    "batch",
    [None, SimpleNamespace(), SimpleNamespace(idx_mapping_np=None, query_start_loc_np=None)],
)
def test_a_batch_without_host_arrays_leaves_lengths_out(tmp_path, batch):
    notes = Notes()
    notes.begin_batch(SimpleNamespace(), batch)
    notes.slots(OnGpu(3), OnGpu(4), OnGpu(8), 8, None)
    notes.end_batch()
    (slots,) = read_notes(notes, tmp_path)
    assert (slots.rows, slots.starts, slots.num_reqs) == (None, None, 3)


def test_prefill_parallelism_has_two_batches(tmp_path):
    local, whole = (
        SimpleNamespace(
            idx_mapping=OnGpu(1),
            idx_mapping_np=np.array([row]),
            num_computed_tokens_np=np.array([row], dtype=np.int32),
            query_start_loc_np=np.array([0, 2], dtype=np.int32),
        )
        for row in (3, 5)
    )
    notes = Notes()
    notes.begin_batch(SimpleNamespace(pcp_manager=SimpleNamespace(_global_batch=whole)), local)
    notes.gather(local.idx_mapping, 1, (OnGpu(8, 3),), None)
    notes.slots(whole.idx_mapping, OnGpu(2), OnGpu(2), 2, OnGpu(2, 40))
    notes.end_batch()
    gather, slots = read_notes(notes, tmp_path)
    assert gather.rows.tolist() == [3]
    assert (slots.rows.tolist(), slots.positions.tolist()) == ([5], [5, 6])


def test_each_object_has_a_file_and_none_is_overwritten(vllm, tmp_path, monkeypatch):
    (tmp_path / f"calls.{os.getpid()}-1.bin").write_bytes(b"of somebody")
    layout, _, _ = drawn(1)
    monkeypatch.setenv("BT_KERNELS", "off")
    plugin.load()
    kind = vllm("model_runner").GPUModelRunner
    kept = kind(layout), kind(layout)
    names = [path.name for path in files(tmp_path)]
    assert names == [f"calls.{os.getpid()}-{number}.bin" for number in (1, 2, 3)]
    assert files(tmp_path)[0].read_bytes() == b"of somebody"
    del kept


FAULTS = {
    "full disk": ("No space left on device", lambda file: file.__setattr__("_file", full_disk())),
    "fork": ("was forked", lambda file: file.__setattr__("_pid", -1)),
}


def full_disk():
    return Path("/dev/full").open("wb", buffering=0)


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_recording_stops_with_one_warning(
    vllm, tmp_path, monkeypatch, caplog, fault, mode
):
    expected, break_file = FAULTS[fault]
    monkeypatch.setattr(recording, "_FRAME_STEPS", 1)
    layout, scheduler, rng = drawn(1)
    both = runners(vllm, layout, mode, monkeypatch)
    play(both, scheduler, rng, 2)
    break_file(both[0].block_tables._recorder._file)
    with caplog.at_level(logging.WARNING):
        play(both, scheduler, rng, 4)
    (record,) = caplog.records
    assert f"recording of calls in {files(tmp_path)[0]} stopped" in record.message
    assert expected in record.message
    tables, theirs = (type(runner.block_tables) for runner in both)
    assert tables is (theirs if mode == "off" else DeferringTables)


@pytest.mark.parametrize("path", ["no/folder/calls", "read-only/calls"])
def test_a_file_that_cannot_be_created_is_warned_of(vllm, tmp_path, monkeypatch, caplog, path):
    (tmp_path / "read-only").mkdir()
    monkeypatch.setenv("BT_KERNELS_RECORD", str(tmp_path / path))
    if path.startswith("read-only"):

        def refuse(*_, **__):
            raise PermissionError(13, "Permission denied")  # root may write everywhere

        monkeypatch.setattr(Path, "open", refuse)
    layout, _, _ = drawn(1)
    tables, theirs = runners(vllm, layout, "off", monkeypatch)
    assert type(tables.block_tables) is type(theirs.block_tables)
    (record,) = caplog.records
    assert f"calls are not recorded in {tmp_path / path}" in record.message


def test_arguments_of_other_releases_are_refused_by_name(vllm, monkeypatch, caplog):
    monkeypatch.setenv("BT_KERNELS", "off")
    own = vllm("block_table").BlockTables
    built = own.__init__

    def init(self, block_sizes, max_num_reqs, tokens, blocks, device, kernel_block_sizes):
        built(self, block_sizes, max_num_reqs, tokens, blocks, device)

    monkeypatch.setattr(own, "__init__", init)
    plugin.load()
    kind = vllm("block_table").BlockTables
    tables = kind([16], 4, 32, [3], torch.device("cpu"), kernel_block_sizes=[16])
    assert type(tables) is own
    assert "kernel_block_sizes" in caplog.text


def test_a_call_that_cannot_be_noted_ends_the_recording(vllm, monkeypatch, caplog):
    layout, scheduler, rng = drawn(1)
    monkeypatch.setattr(Notes, "gather", None)
    both = runners(vllm, layout, "off", monkeypatch)
    play(both, scheduler, rng, 3, {"step": 1})
    assert type(both[0].block_tables) is type(both[1].block_tables)
    assert len(caplog.records) == 1


def test_an_invalid_call_is_not_noted(vllm, tmp_path, monkeypatch):
    layout, _, _ = drawn(1)
    ours, _ = runners(vllm, layout, "off", monkeypatch)
    with pytest.raises(RuntimeError, match="too wide"):
        ours.block_tables.append_block_ids(
            0, tuple([1] * (width + 1) for width in layout.widths), overwrite=True
        )
    plugin.remove()
    assert replays(*files(tmp_path)) == []


def test_calls_outside_of_steps_are_frames_when_there_are_many(vllm, tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_FRAME_STEPS", 1)
    layout, _, _ = drawn(1)
    ours, _ = runners(vllm, layout, "off", monkeypatch)
    ids = tuple([3] for _ in layout.widths)
    for _ in range(2000):
        ours.block_tables.append_block_ids(1, ids, overwrite=True)
        ours.block_tables.apply_staged_writes()
    assert sum(isinstance(one, Append) for one in replays(*files(tmp_path))) > 500


def test_nothing_is_recorded_without_the_variable(vllm, tmp_path, monkeypatch):
    monkeypatch.setenv("BT_KERNELS_RECORD", "")
    monkeypatch.setenv("BT_KERNELS", "off")
    finders = list(sys.meta_path)
    loading.load()
    assert sys.meta_path == finders
    assert files(tmp_path) == []


@pytest.mark.parametrize("value", ["0", "x"])
def test_a_bad_size_is_the_default(monkeypatch, caplog, value):
    messages.forget()
    monkeypatch.setenv("BT_KERNELS_RECORD_MB", value)
    assert settings.record_bytes() == 256_000_000
    assert f"BT_KERNELS_RECORD_MB={value!r} is not a positive integer" in caplog.text


def test_at_exit_the_rest_is_written(vllm, tmp_path, monkeypatch):
    layout, scheduler, _ = drawn(1)
    ours, _ = runners(vllm, layout, "off", monkeypatch)
    ours.play(Step(scheduler.schedule()))
    assert replays(*files(tmp_path)) == []
    ours.block_tables._recorder._at_exit()  # as `multiprocessing` does
    assert isinstance(replays(*files(tmp_path))[-1], EndStep)
    ours.play(Step(scheduler.schedule()))  # goes on, and is not recorded


def test_taken_out_files_are_whole(vllm, tmp_path, monkeypatch):
    layout, scheduler, _ = drawn(1)
    ours, _ = runners(vllm, layout, "off", monkeypatch)
    tables = ours.block_tables
    ours.play(Step(scheduler.schedule()))
    plugin.remove()
    assert "_recorder" not in vars(tables)
    done = replays(*files(tmp_path))
    assert isinstance(done[0], BeginStep)
    assert isinstance(done[-1], EndStep)
    ours.play(Step(scheduler.schedule()))
    assert len(replays(*files(tmp_path))) == len(done)
