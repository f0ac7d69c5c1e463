"""Calls that C makes leave everything as those of Python do: results, notes and counts."""

from __future__ import annotations

import gc
import math
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from support import vllm_runner
from support.in_c import is_possible
from support.plugin_steps import KINDS, drawn, play, runners
from support.vllm_readers import READERS
from support.vllm_runner import imported_from, write_package

from bt_kernels import native
from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import counting, messages, recording
from bt_kernels.engines.plugin.deferring import DeferringTables
from bt_kernels.engines.plugin.host_times import HostTimes
from bt_kernels.engines.recordings import Recording

pytestmark = pytest.mark.skipif(
    not is_possible(), reason="no compiler, or this torch does not show tensors to C"
)


@pytest.fixture(autouse=True)
def _fresh():
    messages.forget()
    counting.reset()
    yield
    counting.reset()


class OddBatch(vllm_runner.InputBatch):
    """A batch that in turn is usual, lacks an array, has none in its place, or has a longer one."""

    number = 0

    def __init__(self, *args, **names):
        super().__init__(*args, **names)
        OddBatch.number += 1
        if OddBatch.number % 5 == 1:
            self.query_start_loc_np = np.append(self.query_start_loc_np, 99).astype(np.int32)
        elif OddBatch.number % 5 == 2:
            del self.idx_mapping_np
        elif OddBatch.number % 5 == 3:
            self.num_computed_tokens_np = None


def session(tmp_path, seed, mode, reader):
    """Play a seeded session; return its operations, counts, and how often C made a whole step."""
    tmp_path.mkdir()
    OddBatch.number = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BT_KERNELS_RECORD", str(tmp_path / "calls.bin"))
        patch.setattr(recording, "_FRAME_STEPS", 3)
        patch.setattr(vllm_runner, "InputBatch", OddBatch)
        with imported_from(write_package(tmp_path / "package")) as vllm:
            layout, scheduler, rng = drawn(seed)
            both = runners(vllm, layout, mode, patch, steps=4)
            readers = {} if reader is None else {"between": READERS[reader]}
            play(both, scheduler, rng, 10, KINDS | {"step": 2, "pcp": 0.2}, **readers)
            launcher = native.load("launcher")
            fused = 0 if launcher is None else launcher.counts()[2]
            counts = plugin.counters()
            plugin.remove()
            (path,) = (path for path in tmp_path.iterdir() if path.is_file())
            operations = [repr(one) for one in Recording(path).operations()]
    counting.reset()
    return operations, {name: counts[name] for name in sorted(counts) if name != "pid"}, fused


@pytest.mark.parametrize(
    ("seed", "mode", "reader"),
    [(0, "on", None), (1, "on", "num_blocks"), (2, "shadow", None), (3, "on", None)],
)
def test_a_session_is_noted_and_counted_as_by_python(tmp_path, monkeypatch, seed, mode, reader):
    in_c, counts, fused = session(tmp_path / "c", seed, mode, reader)
    assert fused > 0 or reader
    monkeypatch.setattr(native, "load", lambda name: None)
    by_python, expected, fused = session(tmp_path / "python", seed, mode, reader)
    assert fused == 0
    assert in_c == by_python
    counts["launches"] = expected["launches"]  # Python launches some steps in two
    assert counts == expected


def test_tables_with_methods_in_c_are_freed_at_once(device):
    layout, _, _ = drawn(1)
    options = (layout.block_sizes, layout.max_num_reqs, layout.max_num_batched_tokens)
    tables = DeferringTables(*options, layout.widths, device)
    variant = weakref.ref(tables._variant)
    taken = tables.apply_staged_writes, tables.append_block_ids
    assert all(isinstance(method.__self__, native.load("launcher").Waiting) for method in taken)
    gc.disable()
    try:
        del tables
        with pytest.raises(ReferenceError, match="the tables of this method are gone; keep them"):
            taken[0]()
        del taken
        assert variant() is None
    finally:
        gc.enable()


class Tables:
    """Tables with a waiting in C, which note what their own methods are asked for."""

    def __init__(self):
        launcher = native.load("launcher")
        self.asked = []
        variant = SimpleNamespace(_quick=None, validate=False, _captured_writes=None)
        self._waiting = launcher.Waiting(variant, self.append, self)
        self._waiting.is_short = True

    def append(self, row, ids, overwrite):
        if ids == "refused":
            raise ValueError(ids)
        if ids == "ended":
            raise SystemExit("by a signal")
        self.asked.append(("staged", row, ids, overwrite))

    def append_block_ids(self, *given, **names):
        self.asked.append(("append_block_ids", given, names))

    def apply_staged_writes(self):
        self.asked.append("apply_staged_writes")

    def end_step(self):
        self.asked.append("end_step")
        self._waiting.applies = False

    def end_batch(self):
        self.asked.append("end_batch")
        self._waiting.gather = None


class Runner:
    def __init__(self, tables):
        self.block_tables = tables


def around(method, is_batch=False):
    """Return a function that calls a method of a runner within a step or a batch."""
    launcher = native.load("launcher")
    kind = type("Kind", (Runner,), {"method": launcher.Around(method, "by Python", is_batch)})
    return kind(Tables())


def test_an_apply_waits_until_the_end_of_its_step_at_most():
    runner = around(lambda runner, tell: tell(runner.block_tables._waiting))
    tables, seen = runner.block_tables, []

    def step(waiting):
        seen.append((waiting.in_step, waiting.waits))
        waiting.apply_staged_writes()
        seen.append(waiting.waits)
        waiting.apply_staged_writes()  # a second one is no more left to wait
        return "result"

    assert runner.method(tell=step) == "result"
    assert seen == [(True, False), True]
    assert tables.asked == ["apply_staged_writes", "end_step"]
    waiting = tables._waiting
    assert (waiting.in_step, waiting.waits) == (False, False)
    waiting.apply_staged_writes()
    assert tables.asked[2:] == ["apply_staged_writes"]


def test_an_error_of_the_step_is_passed_on_after_its_end():
    def fail(runner):
        runner.block_tables._waiting.apply_staged_writes()
        raise KeyError("of the engine")

    runner = around(fail)
    with pytest.raises(KeyError, match="of the engine"):
        runner.method()
    assert runner.block_tables.asked == ["end_step"]


def test_an_append_after_an_apply_that_waits_is_left_to_python_and_so_is_what_is_refused():
    tables = Tables()
    waiting = tables._waiting
    waiting.append_block_ids(1, ([2],), overwrite=True)
    waiting.append_block_ids(3, "refused", True)
    waiting.append_block_ids(1, ([2],))
    waiting.applies = True
    waiting.append_block_ids(4, ([5],), False)
    assert tables.asked == [
        ("staged", 1, ([2],), True),
        ("append_block_ids", (3, "refused", True), {}),
        ("append_block_ids", (1, ([2],)), {}),
        ("append_block_ids", (4, ([5],), False), {}),
    ]


def test_an_exit_by_a_signal_is_passed_on_at_once():
    """As by Python, which catches no `BaseException`; vLLM's workers end by `SystemExit`."""
    tables = Tables()
    with pytest.raises(SystemExit, match="by a signal"):
        tables._waiting.append_block_ids(1, "ended", True)
    assert tables.asked == []


@pytest.mark.parametrize("error", [SystemExit("by a signal"), OSError("the disk is full")])
def test_an_exit_within_a_note_is_passed_on_and_ends_no_recording(error):
    def fail(*_):
        raise error

    failed = []
    noted = SimpleNamespace(begin_batch=fail, staged=False, inside=False, append=fail)
    batches, launcher = SimpleNamespace(), native.load("launcher")
    calls = (
        lambda runner: runner.step(lambda: None),
        lambda runner: runner.batch(None, lambda: None),
        lambda runner: runner.block_tables._waiting.append_block_ids(1, "ids", True),
    )
    for call in calls:
        step = launcher.Around(lambda _, given: given(), "by Python", False)
        batch = launcher.Around(lambda _runner, _batch, given: given(), "by Python", True)
        runner = type("Kind", (Runner,), {"step": step, "batch": batch})(Tables())
        runner.block_tables._waiting.noting = launcher.Noting(
            *(noted, noted, batches, [], [], fail, lambda *given: failed.append(given), 1)
        )
        if isinstance(error, SystemExit):
            with pytest.raises(SystemExit, match="by a signal"):
                call(runner)
        else:
            call(runner)
            assert failed.pop()[1] is error
    assert not failed


def test_tables_of_another_class_are_left_to_the_wrapper_in_python():
    launcher = native.load("launcher")
    wrapper = launcher.Around(lambda *_: "short", lambda *given: given[1:], False)
    for tables in (None, SimpleNamespace(), SimpleNamespace(_waiting=3)):
        assert wrapper(Runner(tables), 5) == (5,)
    own = Tables()
    own._waiting.is_short = False
    assert wrapper(Runner(own), 5) == (5,)
    assert wrapper(Runner(Tables()), 5) == "short"


def test_durations_fall_into_the_buckets_of_python():
    launcher, rng = native.load("launcher"), np.random.default_rng(0)
    runner, expected = around(lambda runner: None), HostTimes()
    waiting = runner.block_tables._waiting
    waiting.times = True
    edges = [math.floor(2 ** (part / 16)) + more for part in range(500) for more in (0, 1)]
    drawn_ns = np.exp(rng.uniform(0, 25, 2000)).astype(int).tolist()
    for duration in [0, 1, *edges, *drawn_ns]:
        waiting.spent_ns, waiting.has_applied = duration, True
        runner.method()
        expected.add(duration)
    found = HostTimes()
    found.add_all(*launcher.step_times())
    assert vars(found) == vars(expected)
