"""Batches that are prepared in one call of C: as by Python, or left to Python."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from support.batches import CORNERS, Counting, play
from torch.multiprocessing.reductions import StorageWeakRef

from bt_bench.suites.batch_preparation.workloads.conformance import workload_of
from bt_kernels import native
from bt_kernels.batch_inputs.buffers import RequestTensors
from bt_kernels.batch_inputs.fused import FusedInputs, OneLaunchInputs
from bt_kernels.batch_inputs.interface import NEW
from bt_kernels.batch_inputs.layout import InputLayout
from bt_kernels.layout import TableLayout
from bt_kernels.one_launch.carrying import IN_HOST_MEMORY
from bt_kernels.one_launch.native_step import make_step

CPU_IN_DLPACK = 1

pytestmark = pytest.mark.skipif(
    native.load("launcher") is None or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="no compiler, or this torch does not show tensors to C",
)


def in_c(base):
    """A class whose operations are in C, but for the launch: that is the interpreter's."""

    class InC(base):
        def __init__(self, *args):
            super().__init__(*args)
            launcher = native.load("launcher")
            tables, carried = self.tables, self._carried
            tables._quick = make_step(tables, tables._carrying, launcher, CPU_IN_DLPACK, None)
            self.by_python = 0
            self.launched = []
            self._call_in_c(launcher, CPU_IN_DLPACK, None)
            for binary in carried.binaries(aligned=tables.rows_are_aligned):
                carried._add(binary, launch_of(tables, carried, binary, self.launched))

        def _take(self, *args):
            self.by_python += 1
            return super()._take(*args)

    return InC


def launch_of(tables, carried, binary, launched):
    def launch(num_programs, leading):
        memory = tables._ring.current if binary.kind in IN_HOST_MEMORY else None
        if memory is not None:
            assert leading[-1] == memory.data_ptr()
        launched.append((binary, num_programs, leading))
        carried._launch(binary, (num_programs, 1, 1), leading[4:-1], memory)

    return launch


@pytest.mark.parametrize("name", ["drafts, lookahead, two groups", "decodes and prefills"])
def test_a_whole_step_in_c_is_as_the_references(name):
    workload = workload_of(replace(CORNERS[name], num_steps=2), np.random.default_rng(5))
    variant = play(in_c(OneLaunchInputs), workload, ("prepare",), "cpu")
    assert (len(variant.launched), variant.by_python) == (2, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CORNERS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("base", "path"), [(FusedInputs, ("inputs",)), (OneLaunchInputs, ("prepare",))]
)
def test_random_batches_in_c(base, path, seed, name):
    engine = CORNERS[name]
    most = min(engine.prompt, engine.max_model_len // 2)
    engine = replace(engine, prompt=most, shortest=min(engine.shortest, most))
    workload = workload_of(engine, np.random.default_rng(seed))
    variant = play(in_c(base), workload, path, "cpu")
    assert variant.launched
    assert variant.by_python == 0


def test_c_launches_what_python_does():
    """In random batches of any size, with any writes: programs, numbers, and words."""
    rng = np.random.default_rng(0)
    sizes = {"num_reqs": 40, "num_tokens": 400, "num_speculative_steps": 3, "num_lookahead": 2}
    by_c = Counting(in_c(OneLaunchInputs), **sizes)
    by_python = Counting(OneLaunchInputs, **sizes)
    noted = {"c": [], "python": []}

    def note(carried, kept):
        def launch(binary, grid, numbers, _staging):
            words = carried.words[carried._words_of(binary)].tolist()
            first = binary.room + 1
            new = [word != 0 for word in words[first : first + 5]]  # addresses differ
            # Those of requests that the batch has not are of earlier ones.
            mine = words[: numbers[5] + 1], new, words[first + 5 : first + 7]
            kept.append((binary, grid, tuple(numbers), mine, words[first + 23 :]))

        carried._launch = launch

    note(by_c.variant._carried, noted["c"])
    note(by_python.variant._carried, noted["python"])
    for _ in range(300):
        num_reqs = int(rng.integers(1, 41))
        lengths = rng.choice((1, 4, 9), num_reqs)
        drafts = None if rng.random() < 0.4 else rng.integers(0, 4, num_reqs).astype(np.int32)
        if drafts is None and rng.random() < 0.5:
            lengths[:] = 1
        else:
            lengths = np.maximum(lengths, 4)
        lengths = lengths.astype(np.int32)
        padded = int(rng.integers(num_reqs, 41))
        tokens = int(lengths.sum()) + int(rng.integers(0, 9))
        rows = rng.permutation(40)[:num_reqs]
        most = int(rng.choice((2, 4, 15)))
        writes = [(int(row), [[3] * int(rng.integers(0, most))]) for row in rng.permutation(40)]
        writes = writes[: int(rng.choice((0, 1, 2, 9)))]
        given = (rows, lengths, lengths * 0, bool(rng.random() < 0.5), drafts, padded, tokens)
        inputs_alone = rng.random() < 0.2
        results = []
        for each in (by_c.variant, by_python.variant):
            for row, ids in writes:
                each.append_block_ids(row, ids, True)
            call = each.prepare_inputs if inputs_alone else each.prepare
            results.append(call(*given))
        mine, others = results
        assert noted["c"] == noted["python"]
        noted["c"].clear()
        noted["python"].clear()
        assert np.array_equal(mine.query_start_loc_np, others.query_start_loc_np)
        assert np.array_equal(mine.cu_num_logits_np, others.cu_num_logits_np)
        assert mine.num_draft_tokens == others.num_draft_tokens
        shapes = [[getattr(t, "shape", t) for t in batch[:10]] for batch in results]
        assert shapes[0] == shapes[1]
        assert by_c.variant.tables.num_dirty_rows == by_python.variant.tables.num_dirty_rows
    assert by_c.variant.by_python == 0


USUAL = {
    "rows": np.arange(3),
    "query_lens": np.ones(3, np.int32),
    "prefill_lens": np.zeros(3, np.int32),
    "has_prefill": False,
    "num_drafts": None,
    "num_reqs_padded": 3,
    "num_tokens_padded": 3,
}


@pytest.mark.parametrize(
    ("changed", "in_c_too"),
    [
        ({"rows": np.arange(6)[::2]}, False),
        ({"rows": np.arange(3, dtype=">i8")}, False),
        ({"rows": np.arange(3, dtype=np.longlong)}, False),
        ({"rows": np.arange(3, dtype=np.int32)}, False),
        ({"query_lens": np.ones((3, 2), np.int32)[:, 0]}, False),
        ({"query_lens": np.frombuffer(bytes(1) + 3 * b"\1\0\0\0", np.int32, 3, 1)}, False),
        ({"query_lens": np.frombuffer(3 * b"\1\0\0\0", np.int32)}, True),
        ({"rows": np.arange(9)[3:6]}, True),
        ({"num_reqs_padded": np.int64(4), "num_tokens_padded": np.int32(5)}, False),
    ],
)
def test_arrays_that_are_not_plain_are_left_to_python(changed, in_c_too):
    by_c, by_python = Counting(in_c(OneLaunchInputs)).variant, Counting().variant
    mine, others = (each.prepare(**USUAL | changed) for each in (by_c, by_python))
    assert by_c.by_python == (not in_c_too)
    for name in (*NEW, "query_start_loc_np", "cu_num_logits_np"):
        assert np.array_equal(getattr(mine, name), getattr(others, name))
        assert getattr(mine, name).dtype == getattr(others, name).dtype


class Allocator:
    """Allocates slabs as a tensor does, and notes them without keeping them."""

    def __init__(self, tensor):
        self._tensor, self.ranges, self.storages = tensor, [], []

    def new_empty(self, size):
        slab = self._tensor.new_empty(size)
        self.ranges.append((slab.data_ptr(), 8 * size))
        self.storages.append(StorageWeakRef(slab.untyped_storage()))
        return slab


class Quiet(OneLaunchInputs):
    """One whose launches in C launch nothing, and whose allocations are seen."""

    def __init__(self, *args):
        super().__init__(*args)
        tables, launcher = self.tables, native.load("launcher")
        self._outputs.tokens = self.allocator = Allocator(self._outputs.tokens)
        tables._quick = make_step(tables, tables._carrying, launcher, CPU_IN_DLPACK, None)
        self._call_in_c(launcher, CPU_IN_DLPACK, None)
        for binary in self._carried.binaries(aligned=tables.rows_are_aligned):
            self._carried._add(binary, lambda num_programs, leading: None)


def quiet():
    return Counting(Quiet, num_reqs=40, num_tokens=400, num_speculative_steps=3).variant


def drafts_of(num_reqs):
    four = np.full(num_reqs, 4, np.int32)
    return np.arange(num_reqs), four, 0 * four, False, four - 1, num_reqs, 4 * num_reqs


def test_no_memory_is_given_twice_while_a_reader_may_have_it():
    """Over four slabs: tensors of every second step are kept, in any size of batch."""
    variant, rng = quiet(), np.random.default_rng(3)
    kept, taken = [], []
    while len(variant.allocator.ranges) < 4:
        batch = variant.prepare(*drafts_of(int(rng.integers(1, 41))))
        tensors = [getattr(batch, name) for name in NEW]
        for tensor in tensors:
            assert tensor.is_contiguous()
            assert tensor.data_ptr() % 16 == 0
        taken += [(each.data_ptr(), each.numel() * each.itemsize) for each in tensors]
        if len(taken) % 10:
            kept.append((tensors, [each.fill_(len(kept)) for each in tensors]))
    for number, (tensors, _) in enumerate(kept):
        assert all(bool((each == number).all()) for each in tensors)
    ends = sorted(taken)
    assert all(begin + size <= after for (begin, size), (after, _) in pairwise(ends))
    for begin, size in taken:
        assert any(
            at <= begin and begin + size <= at + most for at, most in variant.allocator.ranges
        )


def test_a_slab_is_freed_with_its_last_tensor_in_any_thread():
    """Also after the object that made it, and while other slabs are in use."""
    variant = quiet()
    storages = variant.allocator.storages
    kept = variant.prepare(*drafts_of(40)).expanded_local_pos[3:5]
    while len(storages) < 4:
        variant.prepare(*drafts_of(40))
    gc.collect()
    # The first has a view of a reader; the last two are kept for readers on other streams.
    assert [each.expired() for each in storages] == [False, True, False, False]
    held = [kept]
    del kept
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert storages[0].expired()
    del variant
    gc.collect()
    assert all(each.expired() for each in storages)


def test_a_batch_that_exceeds_a_slab_has_one_of_its_own():
    layout = InputLayout(1024, 1 << 20, 1 << 20, num_speculative_steps=1023)
    tables = TableLayout.for_length((4,), 64, 1024, 1 << 20)
    variant = Quiet(
        tables, layout, RequestTensors.zeros(replace(layout, max_model_len=8), "cpu"), "cpu"
    )
    many = np.full(1024, 1024, np.int32)
    given = (np.arange(1024), many, 0 * many, False, many - 1, 1024, 1 << 20)
    batch = variant.prepare(*given)
    assert batch.logits_indices.numel() == 1 << 20
    assert variant.allocator.ranges[-1][1] > 20 << 20


def test_calls_in_c_keep_and_lose_no_reference():
    variant = quiet()
    given = [drafts_of(number) for number in range(1, 41)]
    given += [(*each[:4], None, *each[5:]) for each in given]

    def references():
        gc.collect()
        objects = [variant, variant.tables, *(each for batch in given for each in batch[:3])]
        return [sys.getrefcount(each) for each in objects], len(gc.get_objects())

    for each in given:
        variant.prepare(*each)
    before, _ = references()
    _, objects = references()
    for _ in range(20):
        for each in given:
            variant.prepare(*each)
    after, more = references()
    assert after == before
    assert more - objects < 50


REFUSED = {
    "a row that does not exist": ({"rows": np.array([0, 6, 1])}, r"rows\[1\] is 6"),
    "a row below 0": ({"rows": np.array([0, -1, 1])}, r"rows\[1\] is -1"),
    "few rows": ({"num_reqs_padded": 2}, "num_reqs_padded is 2"),
    "many rows": ({"num_reqs_padded": 7}, "num_reqs_padded is 7"),
    "few tokens": ({"num_tokens_padded": 2}, "num_tokens_padded is 2"),
    "many tokens": ({"num_tokens_padded": 25}, "num_tokens_padded is 25"),
    "drafts below 0": ({"num_drafts": np.array([0, -1, 0], np.int32)}, r"num_drafts\[1\] is -1"),
    "many drafts": ({"num_drafts": np.array([0, 0, 1], np.int32)}, r"num_drafts\[2\] is 1"),
    "another number of drafts": ({"num_drafts": np.zeros(1, np.int32)}, "num_drafts has 1 entries"),
    "a length below 0": ({"query_lens": np.array([-1, 3, 1], np.int32)}, r"query_lens\[0\] is -1"),
    "another number of lengths": ({"query_lens": np.ones(2, np.int32)}, "query_lens has 2 entries"),
    "no requests": (
        {name: USUAL[name][:0] for name in ("rows", "query_lens", "prefill_lens")},
        "rows is empty",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_python_code_refuses(name):
    changed, message = REFUSED[name]
    variant = Counting(in_c(OneLaunchInputs)).variant
    variant.append_block_ids(1, [[5]], True)
    for method in (variant.prepare, variant.prepare_inputs):
        with pytest.raises(ValueError, match=message):
            method(**USUAL | changed)
    assert not variant.launched
    assert variant.tables._staged


@pytest.mark.parametrize("base", [OneLaunchInputs, in_c(OneLaunchInputs)])
def test_lengths_of_prompts_may_move_to_another_tensor(base):
    """Kernels of a launch, and those of a batch that takes several."""
    counting = Counting(base)
    variant, requests = counting.variant, counting.requests
    requests.all_token_ids[:] = 8
    requests.last_sampled_tokens[:] = 9
    for length, token in ((0, 9), (5, 8)):
        for unfit in (False, True):
            variant._why_not = "planted" if unfit else None
            if unfit:
                vars(variant).pop("prepare", None)
            variant.use_prefill_len(torch.full((6,), length, dtype=torch.int32))
            batch = variant.prepare(**USUAL | {"has_prefill": True})
            assert batch.input_ids.tolist() == [token] * 3
    assert variant.fallbacks["planted"]


@pytest.mark.parametrize("method", ["prepare", "prepare_inputs"])
def test_captures_are_refused(monkeypatch, method):
    """The code in C leaves them to Python."""
    variant = Counting(OneLaunchInputs).variant
    monkeypatch.setattr(variant.tables.place, "is_capturing", lambda: True)
    with pytest.raises(ValueError, match=f"{method} was called while a CUDA graph is captured"):
        getattr(variant, method)(**USUAL)


def test_arrays_are_looked_at_behind_all_python_code():
    """One that is shortened while the call begins is not read where it was."""
    variant = Counting(in_c(OneLaunchInputs)).variant
    rows = np.arange(3)

    class Shortening:
        def __bool__(self):
            rows.resize(2, refcheck=False)
            return False

    with pytest.raises(ValueError, match="query_lens has 3 entries; expected 2"):
        variant.prepare(**USUAL | {"rows": rows, "has_prefill": Shortening()})
    assert variant.by_python == 1
    assert not variant.launched


def test_a_signal_that_ends_the_process_is_not_swallowed():
    variant = Counting(in_c(OneLaunchInputs)).variant

    class Captured:
        @property
        def is_pending(self):
            raise KeyboardInterrupt

    variant.tables._captured_writes = Captured()
    with pytest.raises(KeyboardInterrupt):
        variant.prepare(**USUAL)
    assert (variant.launched, variant.by_python) == ([], 0)
    variant.tables._captured_writes = None
    assert variant.prepare(**USUAL)


HELPERS = [
    ("_outputs", "constants"),
    ("", "_views_of_tokens"),
    ("", "_views_of_requests"),
    ("tables", "_views_of_tables"),
    ("tables", "_views_of_slots"),
]


@pytest.mark.parametrize(("of", "name"), HELPERS)
def test_an_error_of_a_helper_is_that_of_the_call(of, name):
    """Nothing else is called meanwhile; the next batch is as any other."""

    class Planted(Quiet):
        fails = False

        def __init__(self, *args):
            super().__init__(*args)
            self.calls = []
            for holder, helper in HELPERS:
                owner = getattr(self, holder) if holder else self
                made = getattr(owner, helper)
                setattr(owner, helper, self.note((holder, helper), made))
            self._call_in_c(native.load("launcher"), CPU_IN_DLPACK, None)
            for binary in self._carried.binaries(aligned=self.tables.rows_are_aligned):
                self._carried._add(binary, lambda num_programs, leading: None)

        def note(self, helper, made):
            def call(size):
                self.calls.append(helper)
                if self.fails and helper == (of, name):
                    raise RuntimeError("planted")
                return made(size)

            return call

    variant = Counting(Planted).variant
    variant.fails = True
    with pytest.raises(RuntimeError, match="planted"):
        variant.prepare(**USUAL)
    assert variant.calls == HELPERS[: HELPERS.index((of, name)) + 1]
    variant.fails = False
    batch = variant.prepare(**USUAL)
    assert [each is None for each in batch] == [False] * 15


def test_a_batch_that_python_code_prepares_meanwhile_is_noticed():
    """It is carried by the same words; here it begins as the first one allocates."""
    variant = Counting(in_c(OneLaunchInputs)).variant
    inner, tokens = [], variant._outputs.tokens

    class Nested:
        def new_empty(self, size):
            if not inner:
                inner.append(None)
                inner[0] = variant.prepare(**USUAL | {"rows": np.arange(6)[::-2]})
            return tokens.new_empty(size)

    variant._outputs.tokens = Nested()
    variant._call_in_c(native.load("launcher"), CPU_IN_DLPACK, None)
    for binary in variant._carried.binaries(aligned=variant.tables.rows_are_aligned):
        variant._carried._add(
            binary, launch_of(variant.tables, variant._carried, binary, variant.launched)
        )
    variant._outputs.tokens = tokens
    outer = variant.prepare(**USUAL)
    assert inner[0].idx_mapping.tolist() == [5, 3, 1]
    assert outer.idx_mapping.tolist() == [0, 1, 2]


def test_names_and_places_of_arguments_are_those_of_the_interface():
    variant = Counting(in_c(OneLaunchInputs)).variant
    variant.prepare(**USUAL)
    variant.prepare(*USUAL.values())
    assert (len(variant.launched), variant.by_python) == (2, 0)
    with pytest.raises(TypeError):
        variant.prepare(**USUAL, tokens=3)


def test_what_validate_finds_is_python_codes():
    variant = Counting(in_c(OneLaunchInputs)).variant
    variant.validate = True
    with pytest.raises(ValueError, match=r"prefill_lens\[0\] is 5"):
        variant.prepare(**USUAL | {"prefill_lens": np.full(3, 5, np.int32)})


def test_tables_that_are_replaced_are_left_to_python():
    variant = Counting(in_c(OneLaunchInputs)).variant
    variant.tables.init_block_table_layout_tensors()
    variant.prepare(**USUAL)
    assert variant.by_python == 1


def test_an_object_does_not_outlive_its_last_user():
    variant = Counting(in_c(OneLaunchInputs)).variant
    batch = variant.prepare(**USUAL)
    gone, method = weakref.ref(variant), variant.prepare
    del variant
    gc.collect()
    assert gone() is None
    assert len(batch.idx_mapping) == 3
    with pytest.raises(ReferenceError):
        method(**USUAL)
