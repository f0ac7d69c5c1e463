"""Launch paths: what is offered where, and which handle a launch takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from support.scripted_devices import ScriptedDevices
from support.variants import SHIPPED, classes, variant_of

from bt_bench.suites.block_tables.workloads.conformance.plain import CORNERS
from bt_bench.variants.catalogue import load_reference
from bt_kernels.interface import BlockTableOperations
from bt_kernels.launches import (
    NUM_WARPS,
    CompiledLaunches,
    DirectLaunches,
    Place,
    direct_replay,
    find_launcher,
    launch_jit,
)

CAPTURED = {
    "gather_block_tables",
    "compute_slot_mappings",
    "gather_and_compute_slot_mappings",
}


def shipped(name):
    return classes([name])[name]


# What is offered


@pytest.mark.parametrize("name", SHIPPED)
def test_kernels_that_are_interpreted_have_no_handles(name, device):
    tables = shipped(name)(CORNERS, device)
    assert (tables.launch_path, tables.launch_paths) == ("jit", ("jit",))
    with pytest.raises(ValueError, match="launch_path is 'compiled'; expected 'jit' on cpu"):
        tables.launch_path = "compiled"
    assert tables.launch_path == "jit"


def paths_of(name, native=True):
    """Launch paths that a variant has on a GPU."""
    if name == "one_launch_graph":
        return ["jit"]  # its own graphs, whatever else is launched
    return ["jit", "compiled", "direct"] if native else ["jit", "compiled"]


@pytest.mark.gpu
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", SHIPPED)
def test_compiled_kernels_have_handles(name, native, device):
    tables = variant_of(name, native)(CORNERS, device)
    assert (tables.launch_path, list(tables.launch_paths)) == ("jit", paths_of(name, native))
    for path in tables.launch_paths:
        tables.launch_path = path
        assert tables.launch_path == path
        with pytest.raises(ValueError, match="launch_path is 'graph'; expected 'jit'"):
            tables.launch_path = "graph"
        assert tables.launch_path == path


def test_without_a_driver_nothing_is_launched_by_it(monkeypatch):
    monkeypatch.setattr("bt_kernels.native.load", lambda _: SimpleNamespace(lacking=lambda: "all"))
    assert find_launcher() is None
    monkeypatch.setattr("bt_kernels.native.load", lambda _: None)
    assert find_launcher() is None


def test_variants_that_say_nothing_offer_tritons_call_only():
    tables = load_reference()(CORNERS, "cpu")
    assert (tables.launch_path, tables.launch_paths, tables.capturable) == ("jit", ("jit",), set())


@pytest.mark.parametrize("name", SHIPPED)
def test_what_may_be_captured_are_methods_that_publish_nothing(name):
    assert shipped(name).capturable == CAPTURED
    assert all(hasattr(BlockTableOperations, method) for method in CAPTURED)


# Which handle a launch takes


class FakeKernel:
    """Notes its launches; the call of `kernel[grid]` returns a handle that notes them too."""

    num_constants = 0
    scratch = 0
    attributes: ClassVar = {}  # of the launch
    signature = None

    def __init__(self, log, name="kernel"):
        self.log = log
        self.name = name
        self.handles = 0
        self.warps = []

    def __getitem__(self, grid):
        def call(*values, **options):
            if self.name != "kernel":
                assert options == {}  # a binary has its warps
                self.log.append((self.name, grid, values))
                return None
            self.log.append((self.name, grid, values))
            self.warps.append(options["num_warps"])
            self.handles += 1
            handle = FakeKernel(self.log, f"handle {self.handles}")
            handle.function = 1000 + self.handles
            # Of the arguments that are not `None`, and those that became constants.
            size = len([value for value in values if value is not None]) - self.num_constants
            signature = dict.fromkeys(map(str, range(size)), "i64") | {"PAD": "constexpr"}
            handle.src = SimpleNamespace(signature=self.signature or signature)
            handle.metadata = SimpleNamespace(
                num_warps=options["num_warps"],
                shared=48,
                global_scratch_size=0,
                profile_scratch_size=self.scratch,
                **self.attributes,
            )
            return handle

        return call


class FakeLauncher:
    """The compiled module, and a device of it: notes what is launched by the driver."""

    def __init__(self, log):
        self.log = log
        self.made = []

    def Device(self, index):  # noqa: N802 - classes of the compiled module
        self.index = index
        return self

    def push(self):
        """Nothing is current by a driver that is not there."""

    pop = push

    def is_current(self):
        return torch._C._cuda_getDevice() == self.index

    def is_captured(self, _stream):
        return False

    def replay(self, *arguments):
        self.log.append(arguments)

    def Launch(self, **options):  # noqa: N802
        self.made.append(options)
        name = options["owner"].name.replace("handle", "direct")
        return lambda stream, grid, arguments: self.log.append((name, grid, arguments, stream))


@pytest.fixture
def stream_17(monkeypatch):
    ScriptedDevices(monkeypatch, ("primary", 0))


def gpu(launcher=None, index=0):
    return Place(torch.device("cuda", index), launcher)


def by_handles(log):
    return CompiledLaunches(gpu()), "handle"


def by_the_driver(log):
    return DirectLaunches(gpu(FakeLauncher(log))), "direct"


@pytest.fixture(params=[by_handles, by_the_driver])
def launched(request, stream_17):
    """What was called for launches `(arguments, constants, inputs, num_warps)` of one kernel."""

    def run(*launches):
        log = []
        kernel = FakeKernel(log)
        ways, kept = request.param(log)
        for arguments, constants, inputs, *num_warps in launches:
            kernel.num_constants = len(constants)
            ways(kernel, (2, 1, 1), arguments, constants, inputs, *num_warps)
        for (name, grid, values, *stream), (arguments, constants, *_) in zip(
            log, launches, strict=True
        ):
            wanted = arguments if stream else (*arguments, *constants)
            assert (grid, values, stream) == ((2, 1, 1), wanted, [17] * name.startswith("direct"))
        return [name.replace(kept, "kept") for name, *_ in log]

    return run


def test_tritons_call_gets_arguments_and_constants_in_order():
    log = []
    kernel = FakeKernel(log)
    launch_jit(kernel, (2, 3, 1), (5, 6), (-1, 7), ())
    launch_jit(kernel, (2, 3, 1), (5, 6), (-1, 7), (), 1)
    assert log == [("kernel", (2, 3, 1), (5, 6, -1, 7))] * 2
    assert kernel.warps == [NUM_WARPS, 1]


def test_later_launches_take_the_handle_of_the_first(launched):
    aligned = torch.zeros(8, dtype=torch.int64)
    calls = [((aligned, size), (4,), (aligned,)) for size in (1, 16, 3)]
    assert launched(*calls) == ["kernel", "kept 1", "kept 1"]


def test_another_number_of_warps_is_another_binary(launched):
    calls = [((1,), (4,), (), warps) for warps in (4, 1)]
    assert launched(*calls, *calls) == ["kernel", "kernel", "kept 1", "kept 2"]


def test_what_is_absent_is_another_binary(launched):
    given = torch.zeros(8, dtype=torch.int64)
    calls = [((one, 5), (4,), (one,)) for one in (None, given)]
    assert launched(*calls, *calls) == ["kernel", "kernel", "kept 1", "kept 2"]


def test_each_binary_has_its_own_handle(launched):
    buffer = torch.zeros(9, dtype=torch.int64)
    aligned, unaligned = buffer[:8], buffer[1:]
    narrow = torch.zeros(8, dtype=torch.int32)
    assert [t.data_ptr() % 16 for t in (aligned, unaligned, narrow)] == [0, 8, 0]
    calls = [((1,), (4,), inputs) for inputs in ((aligned,), (unaligned,), (narrow,))]
    calls.append(((1,), (8,), (aligned,)))
    first = ["kernel"] * 4
    assert launched(*calls, *calls) == [*first, *(f"kept {n}" for n in (1, 2, 3, 4))]


def test_alignment_is_that_of_each_input(launched):
    buffer = torch.zeros(9, dtype=torch.int64)
    one, other = buffer[:8], buffer[1:]
    calls = [((1,), (4,), inputs) for inputs in ((one, other), (other, one))]
    assert launched(*calls, *calls) == ["kernel", "kernel", "kept 1", "kept 2"]


@pytest.mark.parametrize("ways_to", [by_handles, by_the_driver])
def test_kernels_do_not_share_handles(ways_to, stream_17):
    log = []
    launch, _ = ways_to(log)
    one, other = FakeKernel(log), FakeKernel(log)
    for kernel in (one, other):
        launch(kernel, (1, 1, 1), (), (), ())
    assert (one.handles, other.handles) == (1, 1)


def test_the_driver_is_told_of_a_binary_what_its_handle_says(stream_17):
    launcher = FakeLauncher([])
    launch = DirectLaunches(gpu(launcher, 3))
    kernel = FakeKernel([])
    kernel.num_constants = 1
    launch(kernel, (1, 1, 1), (7, None, 8), (-1,), (), 2)
    (made,) = launcher.made
    assert made.pop("owner").name == "handle 1"
    wanted = {"function": 1001, "device": launcher, "threads": 64, "shared": 48, "num_arguments": 2}
    assert made == wanted
    assert launcher.index == 3


@pytest.mark.parametrize(
    "unusual",
    [
        {"scratch": 16},
        {"attributes": {"num_ctas": 2}},
        {"attributes": {"launch_pdl": True}},
        {"attributes": {"launch_cooperative_grid": True}},
        {"signature": {"x": "i64"}},
        {"signature": {"x": ("i64", ("i32", "i32"))}},
    ],
    ids=[
        *("instrumented", "cluster", "dependent", "cooperative"),
        *("an argument became a constant", "more parameters"),
    ],
)
def test_what_the_driver_cannot_launch_is_launched_by_its_handle(unusual, stream_17):
    log = []
    launcher = FakeLauncher(log)
    launch = DirectLaunches(gpu(launcher))
    kernel = FakeKernel(log)
    vars(kernel).update(num_constants=1, **unusual)
    for _ in range(2):
        launch(kernel, (2, 1, 1), (5, 6), (-1,), ())
    assert log == [(name, (2, 1, 1), (5, 6, -1)) for name in ("kernel", "handle 1")]
    assert launcher.made == []


def test_parts_of_a_tuple_are_parameters_each(stream_17):
    launcher = FakeLauncher([])
    kernel = FakeKernel([])
    vars(kernel).update(num_constants=1, signature={"x": ("i64", ("i32", "constexpr"))})
    DirectLaunches(gpu(launcher))(kernel, (2, 1, 1), (5, 6), (-1,), ())
    assert launcher.made[0]["num_arguments"] == 2


def test_a_graph_is_replayed_by_torch_where_the_driver_cannot(stream_17):
    replays = []
    graph = SimpleNamespace(replay=lambda: replays.append("torch"))
    launcher = FakeLauncher(replays)
    direct_replay(gpu(), graph)()
    direct_replay(gpu(launcher), graph)()  # an older torch
    graph.raw_cuda_graph_exec = lambda: 99
    direct_replay(gpu(launcher, 2), graph)()
    assert replays == ["torch", "torch", (99, 19)]
    assert launcher.index == 2
