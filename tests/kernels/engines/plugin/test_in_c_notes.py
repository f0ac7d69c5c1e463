"""Holds that C notes what Python would in a recording, whatever calls come between."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.in_c import is_possible, plant

from bt_kernels import native
from bt_kernels.engines.plugin import counting, messages, noting, recording, replacing
from bt_kernels.engines.plugin.call_files import CallFile
from bt_kernels.engines.plugin.deferring import DeferringTables
from bt_kernels.engines.plugin.headers import recording_header
from bt_kernels.engines.recordings import Recording
from bt_kernels.engines.vllm import BlockTables

pytestmark = pytest.mark.skipif(
    not is_possible(), reason="no compiler, or this torch does not show tensors to C"
)


@pytest.fixture(autouse=True)
def _fresh(device):
    messages.forget()
    counting.reset()
    yield
    recording.end_all()
    counting.reset()


def batch_of(rows, computed=(3, 4), device="cpu"):
    """A batch of two rows and three tokens, as the runner has it on the host and on the device."""
    starts = np.array([0, 1, 3], dtype=np.int32)
    return SimpleNamespace(
        idx_mapping_np=np.array(rows),
        num_computed_tokens_np=np.array(computed, dtype=np.int32),
        query_start_loc_np=starts,
        idx_mapping=torch.tensor(rows, device=device),
        query_start_loc=torch.from_numpy(starts).to(device),
        positions=torch.tensor([computed[0], computed[1], computed[1] + 1], device=device),
    )


class Runner:
    """A runner that plays functions of itself within its two methods."""

    def __init__(self, tables):
        self.block_tables = tables

    def execute_model(self, script):
        script(self)

    def prepare_attn(self, batch, script):
        script(self, batch)

    def gather(self, batch):
        self.block_tables.gather_block_tables(batch.idx_mapping, 2)

    def map(self, batch):
        tokens = batch.query_start_loc, batch.positions
        self.block_tables.compute_slot_mappings(batch.idx_mapping, *tokens, 4)


class Session:
    """A runner whose tables are recorded, and whose methods the plugin wraps."""

    def __init__(self, tmp_path, device):
        layout = ((4, 4), 6, 32, (5, 5), torch.device(device))
        self.tables = DeferringTables(*layout)
        names = ("block_sizes", "max_num_reqs", "max_num_batched_tokens")
        given = dict(zip((*names, "max_num_blocks_per_group", "device"), layout, strict=True))
        header = recording_header(BlockTables, (), given)
        self.file = CallFile(tmp_path / "calls.bin", header, 10**6)
        self.recorder = recording.Recorder(self.file, self.tables)
        kind = type("Wrapped", (Runner,), {})
        launcher = native.load("launcher")
        for name, wrap in replacing._WRAPPERS.items():
            method = wrapped = vars(Runner)[name]
            wrapped = wrap(method)
            if launcher is not None:
                wrapped = launcher.Around(method, wrapped, name == "prepare_attn")
            setattr(kind, name, wrapped)
        self.runner = kind(self.tables)
        self.tables.append_block_ids(0, [[1, 2], [3, 4]], True)
        self.tables.append_block_ids(1, [[5, 6], [7, 8]], True)

    def operations(self):
        """Return what was noted, and end the recording."""
        recording.end_all()
        return [repr(one) for one in Recording(self.file.path).operations()]


def gathers_alone(session):
    """Slots come after the batch, as a drafter's, with other positions."""
    runner, batch = session.runner, batch_of([0, 1], device=session.tables.device)
    runner.execute_model(
        lambda runner: (
            runner.block_tables.apply_staged_writes(),
            runner.prepare_attn(batch, lambda runner, batch: runner.gather(batch)),
        )
    )
    drafts = SimpleNamespace(**vars(batch))
    drafts.positions = batch.positions + 2
    runner.map(drafts)


def another_mapping(session):
    """A second gather within the batch, by rows of its own, and then slots by the batch's."""
    runner, batch = session.runner, batch_of([0, 1], device=session.tables.device)
    other = SimpleNamespace(**vars(batch))
    other.idx_mapping = torch.tensor([1, 0], device=session.tables.device)

    def attention(runner, batch):
        for one in (batch, other, batch):
            if one is not batch or not session.seen:
                runner.gather(one)
            session.seen = True
            runner.map(one)

    session.seen = False
    runner.execute_model(
        lambda runner: (
            runner.block_tables.apply_staged_writes(),
            runner.prepare_attn(batch, attention),
        )
    )


def an_earlier_mapping(session):
    """A gather by the mapping of the batch before, whose rows on the host are not its own now."""
    runner, device = session.runner, session.tables.device
    earlier, batch = batch_of([0, 1], device=device), batch_of([1, 0], device=device)
    for one in (earlier, batch):
        runner.execute_model(
            lambda runner, one=one: (
                runner.block_tables.apply_staged_writes(),
                runner.prepare_attn(one, lambda runner, _: (runner.gather(one), runner.map(one))),
            )
        )
        if one is earlier:
            runner.map(earlier)  # by Python, which knows its rows then
            earlier.idx_mapping[:] = torch.tensor([1, 0])
    runner.prepare_attn(batch, lambda runner, _: runner.gather(earlier))


def many_calls_after_a_step_without_attention(session):
    """They become frames, so that they take no more and more memory."""
    session.runner.execute_model(lambda runner: runner.block_tables.apply_staged_writes())
    session.tables.apply_staged_writes()
    assert not session.recorder._notes.in_step

    def again(runner):
        for _ in range(2):  # the second one is made by Python
            runner.block_tables.apply_staged_writes()
        assert session.recorder._notes.in_step

    session.runner.execute_model(again)
    assert not session.recorder._notes.in_step


class Stub:
    """Tables of the engine that do nothing."""

    num_blocks = 3

    def append_block_ids(self, req_index, new_block_ids, overwrite): ...
    def apply_staged_writes(self): ...
    def gather_block_tables(self, idx_mapping, num_reqs_padded, out=None, out_ptrs=None):
        return "the engine's"

    def compute_slot_mappings(self, idx_mapping, starts, positions, num, out=None): ...


@pytest.mark.parametrize(
    "script",
    [
        gathers_alone,
        another_mapping,
        an_earlier_mapping,
        many_calls_after_a_step_without_attention,
    ],
)
def test_notes_of_unusual_calls_are_those_of_python(tmp_path, monkeypatch, device, script):
    found = []
    for in_c in (True, False):
        with monkeypatch.context() as patch:
            if not in_c:
                patch.setattr(native, "load", lambda name: None)
            folder = tmp_path / str(in_c)
            folder.mkdir()
            session = Session(folder, device)
            script(session)
            found.append(session.operations())
            noting.forget_batches()
    assert found[0] == found[1]
    assert len(found[0]) > 3


def test_no_batch_is_kept_after_the_recordings(tmp_path, device):
    session = Session(tmp_path, device)
    batch = batch_of([0, 1], device=device)
    session.runner.prepare_attn(batch, lambda runner, batch: None)
    recording.end_all()
    assert noting.BATCHES.latest == ()
    assert not noting.BATCHES.inside


def fail(*_args, **_names):
    raise RuntimeError("the device is lost")


def failing(session):
    """Return the tables of a session, with some of the engine to give back to."""
    tables = session.tables
    counts = SimpleNamespace(np=tables._variant.num_blocks.copy())
    source = SimpleNamespace(stage_write=lambda *_: None)
    tables._theirs = SimpleNamespace(num_blocks=counts, block_tables=[source, source]), Stub
    return tables


def test_a_gather_of_tables_that_are_given_back_meanwhile_is_the_engines(tmp_path, device):
    """By a finaliser that reads them, as the garbage collector may run one in Python code."""
    session = Session(tmp_path, device)
    tables, batch, found = failing(session), batch_of([0, 1], device=device), []

    def views(num_reqs):
        plant(tables._variant, "apply_staged_writes", fail)
        tables.settle("a reader")
        return "views of ours"

    tables._variant._views_of_tables = views

    def attention(runner, batch):
        found.append(runner.block_tables.gather_block_tables(batch.idx_mapping, 2))

    def step(runner):
        runner.block_tables.apply_staged_writes()
        runner.prepare_attn(batch, attention)

    session.runner.execute_model(step)
    assert found == ["the engine's"]


def test_python_goes_on_with_the_notes_of_a_batch_whose_tables_failed(tmp_path, device):
    """Outside of any call that C would hand on."""
    session = Session(tmp_path, device)
    tables, batch = failing(session), batch_of([0, 1], device=device)

    def attention(runner, batch):
        runner.gather(batch)
        plant(tables._variant, "apply_staged_writes", fail)
        tables.settle("a reader")
        assert not isinstance(tables, DeferringTables)
        ((mapping, *_),) = noting.BATCHES.latest
        assert mapping is batch.idx_mapping
        assert noting.BATCHES.inside
        runner.map(batch)

    def step(runner):
        runner.block_tables.apply_staged_writes()
        runner.prepare_attn(batch, attention)
        assert session.recorder._notes.in_step

    session.runner.execute_model(step)
    assert not session.recorder._notes.in_step
    assert not noting.BATCHES.inside
