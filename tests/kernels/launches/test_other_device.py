"""Tables on one GPU while another is current: every entry is exact, and what was current stays so.

Needs two CUDA devices. `test_place` and `test_launcher` show the same by devices that are scripted.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support.playing import EngineTables, chosen, compare, first_of, scenario, watched
from support.variants import SHIPPED, assert_equal, classes, variant_of

from bt_bench.suites.block_tables.exploring.calls import CAPTURED_STEPS
from bt_bench.variants.catalogue import load_reference
from bt_kernels.layout import TableLayout

HOLD_CYCLES = 60_000_000  # about 30 ms at 2 GHz
MAX_REQS, MAX_TOKENS = 6, 32
LAYOUT = TableLayout((16, 4), (8, 32), max_num_reqs=MAX_REQS, max_num_batched_tokens=MAX_TOKENS)
SUBJECTS = {**classes(SHIPPED), "BlockTables": EngineTables}
THEMES = ("mixed", "several tables", "refusals", "snapshots and dummies")
PATHS = ["jit", "compiled", "direct", "jit without C"]

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("error:launches cannot carry writes")]
natives = pytest.mark.parametrize("native", [True, False], ids=["C", "Python"])
every_variant = pytest.mark.parametrize("name", SHIPPED)


@pytest.fixture(params=[(1, 0), (0, 1)], ids=["on 1, 0 current", "on 0, 1 current"])
def devices(request, device):
    """Where the tables live, and the device that is current."""
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two CUDA devices; torch sees {torch.cuda.device_count()}")
    before = torch.cuda.current_device()
    home, other = (torch.device("cuda", index) for index in request.param)
    for each in (home, other):  # both have a context, as in a process that uses both
        torch.zeros(1, device=each)
    torch.cuda.set_device(other)
    yield home, other
    torch.cuda.set_device(before)


def driver():
    return ctypes.CDLL("libcuda.so.1")


def current():
    """What is current in this thread: torch's device, and the driver's context."""
    context = ctypes.c_void_p()
    assert driver().cuCtxGetCurrent(ctypes.byref(context)) == 0
    return torch.cuda.current_device(), context.value


unchanged = watched(current)


class Pair:
    """Tables on a device and the reference, which are called alike.

    Args:
        variant: class of the tables.
        home: where they live.
        layout: of both.
        path: how the tables launch, if they can.
    """

    def __init__(self, variant, home, layout=LAYOUT, path="jit"):
        self.home, self.layout = home, layout
        with unchanged():
            self.tables = variant(layout, home)
        if path in self.tables.launch_paths:
            self.tables.launch_path = path
        self.reference = load_reference()(layout, "cpu")

    def append(self, row, block_ids, overwrite):
        for tables in (self.tables, self.reference):
            tables.append_block_ids(row, block_ids, overwrite)

    def stage(self, rng, longest):
        """A few block ids for some rows: with one for each, a launch may carry them."""
        for row in rng.sample(range(self.layout.max_num_reqs), rng.randrange(4)):
            overwrite = rng.random() < 0.3
            ids = []
            for group, width in enumerate(self.layout.widths):
                owned = 0 if overwrite else int(self.reference.num_blocks[group, row])
                count = min(longest, width - owned)
                ids.append([rng.randrange(1, 2**31) for _ in range(count)])
            self.append(row, ids, overwrite)

    def step(self, batch, num_reqs_padded, num_tokens_padded):
        """A whole step of both; the tables' own is the call that is looked at."""
        on_home = [tensor.to(self.home) for tensor in batch]
        with unchanged():
            self.tables.prepare_step(*on_home, num_reqs_padded, num_tokens_padded)
        self.reference.prepare_step(*batch, num_reqs_padded, num_tokens_padded)

    def assert_equal(self):
        assert_equal(self.tables, self.reference)


def draw_batch(rng, layout=LAYOUT, dtype=torch.int64):
    """A batch on the CPU, and the rows that its caller reads."""
    num_reqs = rng.randint(1, layout.max_num_reqs)
    starts = [0]
    for _ in range(num_reqs):
        starts.append(starts[-1] + rng.randint(0, MAX_TOKENS // MAX_REQS))
    rows = rng.sample(range(layout.max_num_reqs), num_reqs)
    batch = (
        torch.tensor(rows, dtype=dtype),
        torch.tensor(starts, dtype=torch.int32),
        torch.tensor([rng.randrange(140) for _ in range(starts[-1])], dtype=torch.int64),
    )
    return batch, rng.randint(num_reqs, layout.max_num_reqs)


# Every entry


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_scenarios_are_exact_and_leave_what_is_current(name, path, theme, devices):
    """Half of them with a current device that changes between the calls."""
    path, _, without = path.partition(" ")
    number = first_of(theme)
    # Not captured, which `torch.cuda.graph` does in a stream of the device that was current first;
    # nor warmed up, which compiles for a minute.
    made = scenario(SUBJECTS[name], number, without=frozenset({CAPTURED_STEPS, "warmup"}))
    tables = chosen(SUBJECTS[name], native=not without, path=path)
    turns = random.Random(number)
    flips = watched(current, before=lambda: torch.cuda.set_device(turns.choice(devices)))
    compare(tables, made, devices[0], flips if THEMES.index(theme) % 2 else unchanged)


def few_wide(pair):
    """Rows of thousands of columns: their steps are cut into chunks."""
    pair.append(1, [list(range(5, 2505)), [7]], True)
    yield torch.tensor([1]), torch.tensor([0, 3]), torch.tensor([5, 39_999, 1])
    pair.append(1, [[9], []], False)
    yield torch.tensor([1, -1]), torch.tensor([0, 600, 600]), torch.arange(600)


def many(pair):
    """More rows than are made for a program each."""
    for row in range(600):
        pair.append(row, [[row], [row + 1]], True)
    batch = torch.arange(600).flip(0), torch.arange(601), torch.arange(600) % 40
    yield batch
    pair.append(3, [[9], [8]], False)
    yield batch


SHAPES = {
    few_wide: TableLayout((16, 16), (3000, 4), max_num_reqs=2, max_num_batched_tokens=600),
    many: TableLayout((16, 16), (4, 4), max_num_reqs=600, max_num_batched_tokens=600),
}


@pytest.mark.parametrize("steps", SHAPES, ids=[steps.__name__ for steps in SHAPES])
@pytest.mark.parametrize("name", ["one_launch", "one_launch_graph"])
def test_steps_of_every_shape_are_exact(name, steps, devices):
    layout = SHAPES[steps]
    pair = Pair(variant_of(name), devices[0], layout, path="direct")
    for idx_mapping, starts, positions in steps(pair):
        batch = idx_mapping, starts.to(torch.int32), positions
        pair.step(batch, layout.max_num_reqs, layout.max_num_batched_tokens)
        pair.assert_equal()
    if name == "one_launch":
        # None of it was left to slower ways.
        assert len(pair.tables._carrying._kept) == 2  # with many ids, and with few
        assert pair.tables._quick is not None


def test_a_snapshot_may_be_of_tables_on_another_device(devices):
    rng = random.Random(2)
    pairs = [Pair(variant_of("one_launch"), device) for device in devices]
    pairs[1].append(2, [[3, 4], [5]], True)
    pairs[1].step(*draw_batch(rng), MAX_TOKENS)
    for restored, original in zip(
        (pairs[0].tables, pairs[0].reference), (pairs[1].tables, pairs[1].reference), strict=True
    ):
        with unchanged():
            restored.restore(original.snapshot())
    pairs[0].step(*draw_batch(rng), MAX_TOKENS)
    pairs[0].assert_equal()


# Graphs


@pytest.mark.parametrize("path", ["jit", "direct", "jit without C"])
@every_variant
def test_captured_steps_are_exact(name, path, devices):
    home, other = devices
    path, _, without = path.partition(" ")
    pair = Pair(variant_of(name, not without), home, path=path)
    tables, reference = pair.tables, pair.reference
    rng = random.Random(3)
    batch = (
        torch.full((MAX_REQS,), -1, device=home),
        torch.zeros(MAX_REQS + 1, dtype=torch.int32, device=home),
        torch.zeros(MAX_TOKENS, dtype=torch.int64, device=home),
    )
    sizes = MAX_REQS, MAX_TOKENS
    with unchanged():
        tables.capture_step(*batch, *sizes)
    reference.prepare_step(*(tensor.cpu() for tensor in batch), *sizes)
    torch.cuda.synchronize(home)
    # Not by `torch.cuda.graph`, whose stream for all captures is one of the first's device.
    with torch.cuda.stream(torch.cuda.Stream(home)):
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        with torch.cuda.device(other):  # the device of the capture need not be current in it
            with unchanged():
                step = tables.capture_step(*batch, *sizes)
            with unchanged(), pytest.raises(ValueError, match="while a CUDA graph is captured"):
                tables.prepare_step(*batch, *sizes)
        graph.capture_end()
    assert torch.cuda.current_device() == other.index
    for number in range(12):
        torch.cuda.set_device(devices[number % 3 == 0])
        pair.stage(rng, rng.choice((1, 1, 3)))
        drawn_batch, _ = draw_batch(rng)
        num_reqs = drawn_batch[0].numel()
        for tensor, values, rest in zip(batch, drawn_batch, (-1, None, 0), strict=True):
            tensor.fill_(int(values[-1]) if rest is None else rest)
            tensor[: values.numel()] = values.to(home)
        if number % 4 == 3:
            pair.step(drawn_batch, num_reqs, MAX_TOKENS)
        else:
            with unchanged():
                step.publish()
                graph.replay()
            reference.prepare_step(*(tensor.cpu() for tensor in batch), *sizes)
        pair.assert_equal()


# Streams and events


@natives
@every_variant
def test_a_buffer_is_kept_until_the_tables_device_has_read_it(name, native, devices):
    """The events that say so belong to that device, whichever is current."""
    home, _ = devices
    pair = Pair(variant_of(name, native), home)
    rng = random.Random(4)
    batches = [draw_batch(rng) for _ in range(pair.tables._ring.num_buffers + 3)]
    on_home = [([tensor.to(home) for tensor in batch], padded) for batch, padded in batches]
    for turn in range(2):  # the first loads what the second needs
        torch.cuda.synchronize(home)
        if turn:
            with torch.cuda.device(home):
                torch.cuda._sleep(HOLD_CYCLES)
        found, wanted = [], []
        for number, ((batch, padded), (on_cpu, _)) in enumerate(zip(on_home, batches, strict=True)):
            ids = [[10 * number + turn + 1] * 2] * 2
            pair.append(number % MAX_REQS, ids, True)
            with unchanged():
                pair.tables.prepare_step(*batch, padded, MAX_TOKENS)
            found.append(pair.tables.slot_mappings.clone())
            pair.reference.prepare_step(*on_cpu, padded, MAX_TOKENS)
            wanted.append(pair.reference.slot_mappings.clone())
        for one, another in zip(found, wanted, strict=True):
            assert torch.equal(one.cpu(), another)
        pair.assert_equal()


@pytest.mark.parametrize("path", ["jit", "compiled", "direct"])
@every_variant
def test_steps_are_on_the_current_stream_of_the_tables_device(name, path, devices):
    """Behind what that stream has to do first, which is to bring the positions."""
    home, other = devices
    pair = Pair(variant_of(name), home, path=path)
    pair.append(1, [[3, 4], [5, 6]], True)
    batch = torch.tensor([1]), torch.tensor([0, 2], dtype=torch.int32), torch.tensor([17, 5])
    pair.step(batch, 1, MAX_TOKENS)
    pair.step(batch, 1, MAX_TOKENS)  # without writes, by another kernel
    later = torch.tensor([30, 1])
    idx_mapping, starts, positions = (tensor.to(home) for tensor in batch)
    brought = later.to(home)
    torch.cuda.synchronize(home)
    with torch.cuda.stream(torch.cuda.Stream(home)):
        torch.cuda._sleep(HOLD_CYCLES)
        positions.copy_(brought)
        with torch.cuda.device(other), unchanged():
            _, slots = pair.tables.prepare_step(idx_mapping, starts, positions, 1, MAX_TOKENS)
            slots = slots.clone()
    torch.cuda.synchronize(home)
    pair.reference.prepare_step(batch[0], batch[1], later, 1, MAX_TOKENS)
    assert torch.equal(slots.cpu(), pair.reference.slot_mappings)


# What is current


@pytest.mark.parametrize("path", PATHS)
@every_variant
def test_a_fresh_thread_is_left_as_it_was(name, path, devices):
    path, _, without = path.partition(" ")
    pair = Pair(variant_of(name, not without), devices[0], path=path)
    rng = random.Random(5)
    pair.append(1, [[3], [5]], True)
    pair.step(*draw_batch(rng), MAX_TOKENS)  # loads kernels
    batches = [draw_batch(rng) for _ in range(4)]
    on_home = [([tensor.to(devices[0]) for tensor in batch], padded) for batch, padded in batches]
    torch.cuda.synchronize(devices[0])

    def run():
        for number, ((batch, padded), (on_cpu, _)) in enumerate(zip(on_home, batches, strict=True)):
            pair.append(number, [[number + 7], [8]], True)
            before = torch.cuda.current_device()
            pair.tables.prepare_step(*batch, padded, MAX_TOKENS)
            assert torch.cuda.current_device() == before == 0
            pair.reference.prepare_step(*on_cpu, padded, MAX_TOKENS)
        torch.cuda.synchronize(devices[0])

    with ThreadPoolExecutor(1) as threads:
        threads.submit(run).result()
    pair.assert_equal()


def test_a_carried_step_leaves_a_thread_without_a_context(devices):
    """All of it is one call of C, which makes a context current as long as it takes."""
    home, _ = devices
    pair = Pair(variant_of("one_launch"), home)
    batch, padded = draw_batch(random.Random(6))
    on_home = [tensor.to(home) for tensor in batch]
    pair.append(1, [[3], [5]], True)
    pair.step(batch, padded, MAX_TOKENS)
    torch.cuda.synchronize(home)

    def run():
        context = ctypes.c_void_p()
        for _ in range(2):
            assert driver().cuCtxGetCurrent(ctypes.byref(context)) == 0
            assert context.value is None
            pair.tables.prepare_step(*on_home, padded, MAX_TOKENS)

    pair.append(1, [[4], [6]], False)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(run).result()
    pair.reference.prepare_step(*batch, padded, MAX_TOKENS)
    pair.reference.prepare_step(*batch, padded, MAX_TOKENS)
    pair.assert_equal()


@pytest.mark.parametrize("path", ["jit", "compiled", "direct"])
@every_variant
def test_a_context_that_torch_does_not_know_stays_current(name, path, devices):
    home, other = devices
    pair = Pair(variant_of(name), home, path=path)
    rng = random.Random(8)
    pair.append(1, [[3], [5]], True)
    batch, padded = draw_batch(rng)
    on_home = [tensor.to(home) for tensor in batch]
    for _ in range(2):  # loads kernels, with writes and without
        pair.step(batch, padded, MAX_TOKENS)
    torch.cuda.synchronize(home)
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    assert driver().cuDeviceGet(ctypes.byref(handle), other.index) == 0
    assert driver().cuCtxCreate_v2(ctypes.byref(context), 0, handle) == 0
    try:
        # Nothing else of torch in between: it would make its own context current.
        for block_id in (7, 8):
            pair.append(2, [[block_id], [9]], True)
            with unchanged():
                assert current()[1] == context.value
                pair.tables.prepare_step(*on_home, padded, MAX_TOKENS)
            pair.reference.prepare_step(*batch, padded, MAX_TOKENS)
    finally:
        assert driver().cuCtxDestroy_v2(context) == 0  # and so it is current no more
    torch.cuda.set_device(other)
    pair.assert_equal()


@every_variant
def test_inputs_on_the_current_device_are_refused(name, devices):
    home, other = devices
    pair = Pair(variant_of(name), home)
    batch, padded = draw_batch(random.Random(9))
    pair.append(1, [[3], [5]], True)
    names = ("idx_mapping", "query_start_loc", "positions")
    for place, argument in enumerate(names):
        given_ = [tensor.to(other if one == place else home) for one, tensor in enumerate(batch)]
        wrong = rf"{argument} is on {other}; expected {home}, where the tables are"
        with unchanged(), pytest.raises(ValueError, match=wrong):
            pair.tables.prepare_step(*given_, padded, MAX_TOKENS)
    pair.step(batch, padded, MAX_TOKENS)
    pair.assert_equal()


IN_A_PROCESS = """
import torch
from bt_kernels import BlockTables

assert torch.cuda.current_device() == 0
tables = BlockTables([16], 4, 8, [4], "cuda:1")
batch = (
    torch.tensor([2, 0], device="cuda:1"),
    torch.tensor([0, 1, 3], dtype=torch.int32, device="cuda:1"),
    torch.tensor([17, 3, 4], device="cuda:1"),
)
for path in ("jit", "compiled", "direct", "direct"):
    tables.launch_path = path
    tables.append_block_ids(2, [[5, 6]], True)
    tables.append_block_ids(0, [[7]], True)
    for _ in range(2):
        _, slots = tables.prepare_step(*batch, 2, 4)
        assert slots.tolist() == [[97, 115, 116, -1]], slots
    assert tables.compute_slot_mappings(*batch, 4).tolist() == [[97, 115, 116, -1]]
    assert torch.cuda.current_device() == 0
"""


def test_a_process_may_use_the_second_device_alone(devices):
    """Device 0 is current by torch's word, and has no context at all."""
    if devices[0].index != 1:
        pytest.skip("the other way round a process has nothing to switch")
    ended = subprocess.run(
        [sys.executable, "-W", "error:launches cannot carry writes", "-c", IN_A_PROCESS],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "not carried" not in ended.stderr
