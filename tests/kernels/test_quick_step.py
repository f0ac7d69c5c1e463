"""`launcher.Step`: a step that is checked, packed and launched by C as it would be by Python."""

from __future__ import annotations

import random

import pytest
import torch

from bt_kernels import native, one_launch
from bt_kernels.layout import TableLayout
from bt_kernels.variants.one_launch import Variant

launcher = native.load("launcher")
pytestmark = [
    pytest.mark.skipif(launcher is None, reason=f"no C helper: {native.why_not('launcher')}"),
    pytest.mark.skipif(
        not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
        reason="this torch does not show tensors to C",
    ),
]

LAYOUT = TableLayout((16, 4), (64, 5000), max_num_reqs=700, max_num_batched_tokens=9000)
DLPACK_CPU = 1


class Recorder:
    """Stands in for the driver: keeps what would have been launched."""

    def __init__(self):
        self.launched = []

    def by_c(self, shape, wide):
        """What `Step.add` takes for a shape and a dtype of the mapping."""

        def launch(num_programs, leading):
            self.launched.append((shape, wide, num_programs, leading))

        return launch


def make_step(tables, recorder, **changes):
    arguments = {
        "tensor_type": torch.Tensor,
        "pack": tables._staged.pack_words,
        "words": tables._carrying.words,
        "slots": tables._carrying.slots,
        "descriptors": tables.descriptors.data_ptr(),
        "device_type": DLPACK_CPU,
        "device": 0,
        "num_groups": LAYOUT.num_groups,
        "max_num_reqs": LAYOUT.max_num_reqs,
        "max_num_tokens": LAYOUT.max_num_batched_tokens,
        "num_pads": tables._num_pads,
        "widest": tables._widest,
        "requests": tuple(shape.requests for shape in one_launch.SHAPES),
        "many_rows": one_launch.MANY_ROWS,
        "long_tokens": one_launch.LONG_TOKENS,
        "long_columns": one_launch.LONG_COLUMNS,
        "chunk": one_launch.CHUNK,
        "max_chunks": one_launch.MAX_CHUNKS,
    }
    step = launcher.Step(**(arguments | changes))
    for shape in range(len(one_launch.SHAPES)):
        for wide in (False, True):
            step.add(shape, wide, recorder.by_c(shape, wide))
    return step


@pytest.fixture
def tables():
    return Variant(LAYOUT, "cpu")


@pytest.fixture
def recorder():
    return Recorder()


def batch(num_reqs=2, num_tokens=2, dtype=torch.int32):
    return [
        torch.zeros(num_reqs, dtype=dtype),
        torch.zeros(num_reqs + 1, dtype=torch.int32),
        torch.zeros(num_tokens, dtype=torch.int64),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_launches_what_python_would(tables, recorder, seed, monkeypatch):
    step = make_step(tables, recorder)
    expected = []

    def launch(self, grid, arguments, shape, index_dtype):
        wide = index_dtype is torch.int64
        leading = tuple(a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments)
        expected.append((one_launch.SHAPES.index(shape), wide, grid[0], leading))
        return True

    monkeypatch.setattr(one_launch.CarryingLaunch, "launch", launch)
    rng = random.Random(seed)
    for _ in range(150):
        num_reqs = rng.choice([0, 1, 2, 5, 300, 512, 513, 700])
        num_tokens = rng.choice([0, 1, num_reqs, 256, 257, 3000, 256 * num_reqs + 1, 9000])
        padded = rng.choice([num_reqs, min(num_reqs + 3, 700), 700])
        tables.num_dirty_rows = dirty = rng.choice([0, num_reqs, 600])
        tables._staged.longest = longest = rng.choice([0, 10, 2048, 2049, 5000])
        of_batch = batch(num_reqs, num_tokens, rng.choice([torch.int32, torch.int64]))
        found = step(*of_batch, padded, min(num_tokens, 9000), dirty, longest)
        tables.prepare_step(*of_batch, padded, min(num_tokens, 9000))
        assert found == num_reqs == tables.num_dirty_rows
        assert recorder.launched.pop() == expected.pop()
    assert not recorder.launched
    assert not expected


def test_shapes_are_all_met(tables, recorder):
    step = make_step(tables, recorder)
    step(*batch(), 2, 2, 0, 0)
    step(*batch(600, 600), 600, 600, 0, 0)
    step(*batch(1, 9000), 1, 9000, 0, 0)
    assert [launched[0] for launched in recorder.launched] == [0, 1, 2]


def test_packs_what_is_staged(tables, recorder):
    step = make_step(tables, recorder)
    tables.append_block_ids(3, [[7], [9]], overwrite=True)
    assert step(*batch(), 2, 2, 0, 1) == 2
    words = tables._carrying.words
    slots = tables._carrying.slots
    assert [words[0] & 0xFFFF, words[slots] & 0xFFFF] == [7, 9]
    assert words[1] == words[slots + 1] == one_launch.NO_WRITE


def test_leaves_what_does_not_fit_to_python(tables, recorder):
    step = make_step(tables, recorder)
    tables.append_block_ids(3, [[7, 8], [9]], overwrite=True)
    assert step(*batch(), 2, 2, 0, 2) is None
    assert not recorder.launched
    assert tables._staged.num_records == 2


def spoiled(index, tensor):
    made = batch()
    made[index] = tensor
    return made


@pytest.mark.parametrize(
    "arguments",
    [
        [*spoiled(0, torch.zeros(2)), 2, 2, 0, 0],
        [*spoiled(0, torch.zeros(2, dtype=torch.int16)), 2, 2, 0, 0],
        [*spoiled(0, torch.zeros(2, 1, dtype=torch.int32)), 2, 2, 0, 0],
        [*spoiled(0, torch.zeros(4, dtype=torch.int32)[::2]), 2, 2, 0, 0],
        [*spoiled(0, torch.zeros(2, dtype=torch.int32, device="meta")), 2, 2, 0, 0],
        [*spoiled(0, [0, 1]), 2, 2, 0, 0],
        [*spoiled(1, torch.zeros(2, dtype=torch.int32)), 2, 2, 0, 0],
        [*spoiled(1, torch.zeros(3, dtype=torch.int64)), 2, 2, 0, 0],
        [*spoiled(1, None), 2, 2, 0, 0],
        [*spoiled(2, torch.zeros(2, dtype=torch.int32)), 2, 2, 0, 0],
        [*spoiled(2, torch.zeros(4, dtype=torch.int64)[::2]), 2, 2, 0, 0],
        [*batch(), 1, 2, 0, 0],
        [*batch(), 701, 2, 0, 0],
        [*batch(), -1, 2, 0, 0],
        [*batch(), 2**70, 2, 0, 0],
        [*batch(), 2.0, 2, 0, 0],
        [*batch(), True, 2, 0, 0],
        [*batch(), 2, 9001, 0, 0],
        [*batch(), 2, None, 0, 0],
        [*batch(), 2, 2, "0", 0],
        [*batch(701), 701, 2, 0, 0],
    ],
)
def test_leaves_what_is_refused_or_unusual_to_python(tables, recorder, arguments):
    step = make_step(tables, recorder)
    assert step(*arguments) is None
    assert not recorder.launched


def test_vectors_of_one_element_may_have_any_stride(tables, recorder):
    step = make_step(tables, recorder)
    of_batch = batch(1, 1)
    of_batch[0] = torch.zeros(4, dtype=torch.int32)[::4]
    of_batch[2] = torch.zeros(4, dtype=torch.int64)[::4]
    assert step(*of_batch, 1, 1, 0, 0) == 1


def test_a_kernel_that_is_not_loaded_is_left_to_python(tables):
    step = make_step(tables, Recorder())
    empty = launcher.Step(
        **{
            "tensor_type": torch.Tensor,
            "pack": tables._staged.pack_words,
            "words": tables._carrying.words,
            "slots": tables._carrying.slots,
            "descriptors": 0,
            "device_type": DLPACK_CPU,
            "device": 0,
            "num_groups": 2,
            "max_num_reqs": 700,
            "max_num_tokens": 9000,
            "num_pads": 1,
            "widest": 1,
            "requests": (1, 1, 1),
            "many_rows": 1,
            "long_tokens": 1,
            "long_columns": 1,
            "chunk": 1,
            "max_chunks": 1,
        }
    )
    assert empty(*batch(), 2, 2, 0, 0) is None
    assert step(*batch(), 2, 2, 0, 0) == 2


def test_what_the_launch_raises_is_raised(tables):
    step = make_step(tables, Recorder())

    def fail(num_programs, leading):
        raise OSError("no device")

    step.add(0, False, fail)
    tables.append_block_ids(3, [[7], [9]], overwrite=True)
    with pytest.raises(OSError, match="no device"):
        step(*batch(), 2, 2, 0, 0)
    assert tables._staged.num_records == 2


@pytest.mark.parametrize("changes", [{"chunk": 0}, {"requests": (1, 0, 1)}])
def test_sizes_that_would_divide_by_zero_are_refused(tables, changes):
    with pytest.raises(ValueError, match="below 1"):
        make_step(tables, Recorder(), **changes)


def test_a_type_that_shows_nothing_to_c_is_refused(tables):
    with pytest.raises(AttributeError):
        make_step(tables, Recorder(), tensor_type=int)
    broken = type("Broken", (), {"__dlpack_c_exchange_api__": 5})
    with pytest.raises(ValueError, match="PyCapsule"):
        make_step(tables, Recorder(), tensor_type=broken)
