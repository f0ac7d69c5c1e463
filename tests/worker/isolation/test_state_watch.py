"""Whatever one revision could change for the other in the same process is noticed and named."""

from __future__ import annotations

import builtins
import copy
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import contextmanager
from types import FunctionType, SimpleNamespace

import numpy as np
import pytest
import torch
import triton

from bt_bench.worker.isolation.global_state import GlobalState
from bt_bench.worker.isolation.state_watch import StateWatch, Stopwatch, TamperedError, ToolWatch
from bt_bench.worker.measuring import regions
from bt_bench.worker.measuring.ports import SystemClock


@pytest.fixture(scope="module")
def first():
    """A reading of all modules, which takes most of the time of these tests."""
    return GlobalState.now()


@pytest.fixture(autouse=True)
def _modules_are_read_once(first, monkeypatch):
    """Readings rest on that one, as in a process those after the first; see `read_modules`."""
    now = GlobalState.now

    def from_the_first(*ignored, known=None, **options):
        return now(*ignored, known=known or first, **options)

    monkeypatch.setattr(GlobalState, "now", from_the_first)


class Helper:
    """What the base uses."""

    def work(self): ...


class Base:
    """What a head would like to slow."""

    def stage(self, more=1):
        return Helper and more

    @property
    def rows(self):
        return 1


def slow(*_arguments, **_options):
    time.sleep(0.001)


def quick(*_arguments):
    """For what is called at every turn while the state is read."""


def put(owner, name, value):
    """Sets an attribute for the length of a `with`."""

    @contextmanager
    def way():
        there = name in vars(owner) or isinstance(owner, FunctionType)
        before = getattr(owner, name, None)
        setattr(owner, name, value)
        try:
            yield
        finally:
            if there:
                setattr(owner, name, before)
            else:
                delattr(owner, name)

    return way


def call(change, undo):
    """Calls something, and something else at the end of the `with`."""

    @contextmanager
    def way():
        before = change()
        try:
            yield
        finally:
            undo(before)

    return way


@contextmanager
def a_thread():
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="spinner", daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


@contextmanager
def a_child():
    with subprocess.Popen(["sleep", "60"]) as child:
        yield
        child.kill()


@contextmanager
def an_environment():
    os.environ["TRITON_DEBUG"] = "1"
    yield
    del os.environ["TRITON_DEBUG"]


@contextmanager
def a_timer():
    before = signal.signal(signal.SIGVTALRM, slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, 60, 60)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    return before


WAYS = {
    "a patched method of torch": (put(torch.Tensor, "copy_", slow), "torch"),
    "a patched function of torch": (put(torch, "empty", slow), "torch.empty"),
    "torch.cuda.synchronize": (put(torch.cuda, "synchronize", slow), "torch.cuda.synchronize"),
    "torch.cuda.Event": (put(torch.cuda, "Event", Base), "torch.cuda.Event"),
    "the launch of a kernel": (
        put(triton.runtime.jit.JITFunction, "run", slow),
        "triton.runtime.jit.JITFunction.run",
    ),
    "a clock": (put(time, "perf_counter_ns", slow), "time.perf_counter_ns"),
    "the harness's clock": (put(SystemClock, "now_ns", staticmethod(slow)), "now_ns"),
    "the harness's regions": (put(regions, "host_times", slow), "regions.host_times"),
    "a builtin": (put(builtins, "len", builtins.len.__call__), "builtins.len"),
    "a builtin hidden in a module": (put(regions, "len", slow), "regions.len"),
    "a profiler": (call(lambda: sys.setprofile(quick), lambda _: sys.setprofile(None)), "setprof"),
    "gc's thresholds": (
        call(lambda: (gc.get_threshold(), gc.set_threshold(7))[0], lambda b: gc.set_threshold(*b)),
        "gc.set_threshold",
    ),
    "gc's callbacks": (
        call(lambda: gc.callbacks.append(quick), lambda _: gc.callbacks.remove(quick)),
        "gc.callbacks",
    ),
    "the switch interval": (
        call(
            lambda: (sys.getswitchinterval(), sys.setswitchinterval(1e-6))[0],
            sys.setswitchinterval,
        ),
        "sys.setswitchinterval",
    ),
    "a thread": (a_thread, "threads (spinner)"),
    "a timer": (a_timer, "Python"),
    "the environment": (an_environment, "the environment (TRITON_DEBUG)"),
    "torch's threads": (call(threads, torch.set_num_threads), "torch (num_threads)"),
    "grad mode": (
        call(lambda: torch.set_grad_enabled(False), lambda _: torch.set_grad_enabled(True)),
        "torch (grad mode)",
    ),
    "deterministic algorithms": (
        call(
            lambda: torch.use_deterministic_algorithms(True),
            lambda _: torch.use_deterministic_algorithms(False),
        ),
        "torch (deterministic algorithms)",
    ),
    "a hook of Triton": (
        call(
            lambda: triton.knobs.runtime.launch_enter_hook.add(slow),
            lambda _: triton.knobs.runtime.launch_enter_hook.remove(slow),
        ),
        "Triton's knobs (runtime.launch_enter_hook)",
    ),
    "a knob of Triton": (
        put(triton.knobs.runtime, "debug", True),
        "Triton's knobs (runtime.debug",
    ),
    "tracing of memory": (
        call(tracemalloc.start, lambda _: tracemalloc.stop()),
        "Python (tracemalloc)",
    ),
    "the collector": (call(gc.disable, lambda _: gc.enable()), "Python (gc.enable)"),
    "errors of numpy": (
        call(lambda: np.seterr(all="ignore"), lambda before: np.seterr(**before)),
        "Python (numpy.seterr)",
    ),
    "a function of the standard library": (put(copy, "copy", slow), "modules (copy.copy)"),
    "a child process": (a_child, "child processes (sleep)"),
    "a class that the base uses": (put(Helper, "work", slow), "test_state_watch.Helper.work"),
    "a method of the base": (put(Base, "stage", slow), "base: Base.stage"),
    "the code of a method of the base": (
        put(Base.stage, "__code__", (lambda self, more=1: (slow(), more)[1]).__code__),
        "base: Base.stage",
    ),
    "a default of a method of the base": (
        put(Base.stage, "__defaults__", (1000,)),
        "base: Base.stage",
    ),
    "a property of the base": (put(Base, "rows", property(slow)), "base: Base.rows"),
    "a method more of the base": (put(Base, "__getattribute__", object.__getattribute__), "base"),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_change_is_noticed_and_named(name):
    way, told = WAYS[name]
    watch = StateWatch()
    watch.imported("base", [Base])
    assert watch.changes() == {}
    with way():
        (changes,) = watch.changes().values()
    assert told in ", ".join(changes)
    assert watch.changes() == {}


def test_a_change_in_any_copy_of_a_variant_is_noticed():
    class Copy(Base):
        def step(self): ...

    watch = StateWatch()
    watch.imported("base", [Base, Copy])
    Copy.step = lambda self: None
    assert "base (copy 2): Copy.step" in str(watch.changes())


def test_what_importing_an_arm_changes_is_told_of_that_arm():
    watch = StateWatch()
    watch.imported("one", [Base])
    with WAYS["torch's threads"][0]():
        watch.imported("two", [Base])
    assert watch.changes()["two"] == ("torch (num_threads)",)


def test_what_belongs_to_a_side_may_differ():
    watch = StateWatch({"TRITON_DEBUG"})
    with an_environment():
        assert watch.changes() == {}


def test_other_threads_show_in_the_share_of_cpu_time():
    watch = Stopwatch()
    sum(range(2_000_000))
    assert watch.share_of_others() < 0.2
    watch = Stopwatch()
    thread = threading.Thread(target=lambda: sum(range(20_000_000)))
    thread.start()
    thread.join()
    assert watch.share_of_others() > 0.5


def test_tools_that_are_as_they_were_are_not_refused():
    watch = ToolWatch()
    thread = threading.Thread(target=time.sleep, args=(0.3,))  # it waits, and disturbs nobody
    thread.start()
    watch.refuse()
    thread.join()


def test_a_raised_recursion_limit_is_not_refused():
    """As `torch.compile` leaves it where Inductor has compiled anything."""
    watch, before = ToolWatch(), sys.getrecursionlimit()
    sys.setrecursionlimit(before + 1000)
    try:
        watch.refuse()
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(time, "perf_counter_ns"), (torch, "equal"), (torch.cuda.Event, "elapsed_time")],
)
def test_a_patched_tool_is_refused(owner, name):
    watch = ToolWatch()
    with put(owner, name, slow)(), pytest.raises(TamperedError, match=name):
        watch.refuse()
    watch.refuse()


@contextmanager
def a_captured_function():
    cells = torch.Tensor.__rsub__.__closure__
    before = [cell.cell_contents for cell in cells]
    for cell in cells:
        cell.cell_contents = slow
    yield
    for cell, content in zip(cells, before, strict=True):
        cell.cell_contents = content


@contextmanager
def a_property_in_place():
    place = vars(torch.Tensor)["__cuda_array_interface__"]
    before = place.fget
    place.__init__(slow)
    yield
    place.__init__(before)


@contextmanager
def an_exchanged_module():
    before = sys.modules["copy"]
    sys.modules["copy"] = SimpleNamespace(__name__="copy")
    yield
    sys.modules["copy"] = before


@pytest.mark.parametrize(
    ("way", "told"),
    [
        (put(regions.host_times, "__defaults__", (regions.NOTHING, None)), "regions.host_times"),
        # Equal, but another.
        (put(regions.host_times, "__code__", regions.host_times.__code__.replace()), "host_times"),
        (a_captured_function, "Tensor.__rsub__"),
        (a_property_in_place, "Tensor.__cuda_array_interface__"),
        (an_exchanged_module, "copy.copy"),
        (put(torch.cuda.Event, "__getattribute__", object.__getattribute__), "Event"),
        (WAYS["a builtin hidden in a module"][0], "regions.len"),
        (WAYS["the harness's clock"][0], "now_ns"),
        (WAYS["a knob of Triton"][0], "runtime.debug"),
    ],
)
def test_a_tool_changed_in_place_is_refused_however_often_it_was_looked_at(way, told):
    watch = ToolWatch()
    watch.refuse()
    torch.a_late_module = sys  # no change, but the module is read again
    try:
        watch.refuse()
        for _ in range(2):
            with way():
                for _ in range(2):
                    with pytest.raises(TamperedError, match=told):
                        watch.refuse()
            watch.refuse()
    finally:
        del torch.a_late_module


def test_modules_that_are_as_they_were_are_not_read_again():
    first = GlobalState.now(areas=())
    torch.a_late_module = sys
    try:
        second = GlobalState.now(areas=(), known=first)
    finally:
        del torch.a_late_module
    assert {n for n in second.modules if second.modules[n] is not first.modules[n]} == {"torch"}


def test_threads_that_work_while_nobody_has_called_are_refused():
    watch = ToolWatch()
    ends = threading.Event()

    def spin():
        while not ends.is_set():
            sum(range(1000))

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        with pytest.raises(TamperedError, match="busy while nobody has called"):
            watch.refuse()
    finally:
        ends.set()
        thread.join()
