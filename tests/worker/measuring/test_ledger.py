"""The compile ledger, with the hooks called as Triton calls them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from support.variants import classes
from triton import knobs

from bt_bench.results.run.case import CompiledKernel
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.calls import bind
from bt_bench.suites.block_tables.inputs import inputs_on
from bt_bench.suites.block_tables.workloads.conformance.plain import CORNERS
from bt_bench.suites.block_tables.workloads.conformance.random_calls import random_workload
from bt_bench.worker.measuring.compile_ledger import CompileLedger
from bt_bench.worker.tasks.arm import Arm
from bt_kernels.device_code import gather_slots_kernel

HOOKS = ("jit_post_compile_hook", "kernel_load_end_hook", "launch_enter_hook")


@pytest.fixture(autouse=True)
def hooks(monkeypatch):
    """Hooks of the test's own, put back after it."""
    for name in HOOKS:
        empty = None if name == "jit_post_compile_hook" else knobs.HookChain()
        monkeypatch.setattr(knobs.runtime, name, empty)


@pytest.fixture
def ledger(hooks):
    made = CompileLedger()
    made.install()
    return made


def jit_function(*kernels):
    return SimpleNamespace(device_caches={0: (dict(enumerate(kernels)), {}, "target")})


def compiles(function):
    return knobs.runtime.jit_post_compile_hook(
        key="key",
        repr="kernel[]()",
        fn=SimpleNamespace(module="m", name="kernel", jit_function=function),
        compile={},
        is_manual_warmup=False,
        already_compiled=False,
    )


def loads(handle, name, digest):
    knobs.runtime.kernel_load_end_hook("module", handle, name, {"kernel.json": "path"}, digest)


def launches(handle, name):
    metadata = {"name": name, "function": handle, "stream": 0}
    knobs.runtime.launch_enter_hook(SimpleNamespace(get=lambda: metadata))


def test_compilations_and_loads_are_counted(ledger):
    assert ledger.loads == 0
    compiles(jit_function())
    assert ledger.loads == 1
    loads(7, "gather", "aa")
    assert ledger.loads == 2
    with ledger.recording():
        launches(7, "gather")
    assert ledger.loads == 2


def test_launched_binaries_are_listed_by_name_and_hash(ledger):
    binaries = [
        SimpleNamespace(function=1, n_regs=32, n_spills=0),
        SimpleNamespace(function=2, n_regs=40, n_spills=2),
    ]
    compiles(jit_function(*binaries))
    loads(1, "slots", "bb")
    loads(2, "slots", "aa")
    loads(3, "gather", "cc")
    loads(4, "apply", "dd")
    with ledger.recording() as recording:
        for handle, name in [(1, "slots"), (2, "slots"), (1, "slots"), (3, "gather")]:
            launches(handle, name)
    assert recording.kernels() == [
        CompiledKernel(name="gather", hashes=["cc"], registers=[None], spills=[None]),
        CompiledKernel(name="slots", hashes=["aa", "bb"], registers=[40, 32], spills=[2, 0]),
    ]


def test_a_binary_that_is_loaded_while_recording_is_known(ledger):
    with ledger.recording() as recording:
        loads(1, "gather", "aa")
        launches(1, "gather")
    (kernel,) = recording.kernels()
    assert kernel.hashes == ["aa"]


def test_a_binary_of_before_has_a_name_only():
    loads(1, "gather", "aa")
    with CompileLedger().recording() as recording:
        launches(1, "gather")
    assert recording.kernels() == [
        CompiledKernel(name="gather", hashes=[], registers=[], spills=[])
    ]


def test_a_handle_that_is_used_again_is_the_binary_loaded_last(ledger):
    loads(1, "gather", "aa")
    loads(1, "slots", "bb")
    with ledger.recording() as recording:
        launches(1, "slots")
    (kernel,) = recording.kernels()
    assert (kernel.name, kernel.hashes) == ("slots", ["bb"])


def test_launches_cost_nothing_unless_recorded(ledger):
    assert knobs.runtime.launch_enter_hook.calls == []
    with ledger.recording() as recording:
        assert len(knobs.runtime.launch_enter_hook.calls) == 1
    assert knobs.runtime.launch_enter_hook.calls == []
    launches(1, "gather")
    assert recording.kernels() == []


def test_recordings_are_apart(ledger):
    with ledger.recording() as outer:
        launches(1, "gather")
        with ledger.recording() as inner:
            launches(2, "slots")
    assert [kernel.name for kernel in outer.kernels()] == ["gather", "slots"]
    assert [kernel.name for kernel in inner.kernels()] == ["slots"]


def test_recording_ends_when_a_launch_raises(ledger):
    with pytest.raises(RuntimeError, match="launch"), ledger.recording():
        raise RuntimeError("launch")
    assert knobs.runtime.launch_enter_hook.calls == []


def test_hooks_of_others_are_called_too():
    calls = []

    def post_compile(**kwargs):
        calls.append(kwargs["key"])
        return "theirs"

    def load_end(*args):
        calls.append(args[3])

    knobs.runtime.jit_post_compile_hook = post_compile
    knobs.runtime.kernel_load_end_hook = load_end  # in place of the chain
    ledger = CompileLedger()
    ledger.install()
    assert compiles(jit_function()) == "theirs"
    loads(1, "gather", "aa")
    assert calls == ["key", {"kernel.json": "path"}]
    assert ledger.loads == 2


@pytest.mark.parametrize("before", [None, lambda metadata: None])
def test_after_a_recording_the_hook_of_others_is_all_that_is_left(ledger, before):
    knobs.runtime.launch_enter_hook = before
    with ledger.recording() as recording:
        launches(1, "gather")
    assert [kernel.name for kernel in recording.kernels()] == ["gather"]
    assert knobs.runtime.launch_enter_hook is before


def test_a_hook_that_was_put_around_ours_stays(ledger):
    knobs.runtime.launch_enter_hook = None
    with ledger.recording():
        ours = knobs.runtime.launch_enter_hook

        def around(metadata):
            return ours(metadata)

        knobs.runtime.launch_enter_hook = around
    assert knobs.runtime.launch_enter_hook is around


def launched_by(tables, workload, device, ledger):
    (step,) = inputs_on(device, workload)
    with ledger.recording() as recording:
        bind(tables, ops.GATHER_SLOTS, step)()
    return recording.kernels()


def test_nothing_is_compiled_under_the_interpreter(ledger, device):
    workload = random_workload(2, CORNERS, num_steps=1)
    arm = Arm("fused", classes(["fused"])["fused"], workload, device)
    assert launched_by(arm.variant, workload, device, ledger) == []
    assert ledger.loads == 0


@pytest.mark.gpu
@pytest.mark.parametrize("path", ["jit", "compiled"])
def test_binaries_of_a_call_on_the_gpu(path, ledger, device):
    torch.cuda.synchronize()
    gather_slots_kernel.device_caches.clear()  # other tests may have loaded it already
    workload = random_workload(2, CORNERS, num_steps=1)
    arm = Arm("fused", classes(["fused"])["fused"], workload, device)
    arm.variant.launch_path = path
    first = launched_by(arm.variant, workload, device, ledger)
    loads = ledger.loads
    assert loads >= 2  # compiled (or found in Triton's cache), and loaded
    assert launched_by(arm.variant, workload, device, ledger) == first
    assert ledger.loads == loads
    (kernel,) = first
    assert kernel.name == "gather_slots_kernel"
    (digest,), (registers,), (spills,) = kernel.hashes, kernel.registers, kernel.spills
    assert len(digest) == 64
    assert 0 < registers < 256
    assert spills == 0
