"""Where tests run: on the CPU under Triton's interpreter, or those marked `gpu` on a CUDA device.

Both in one process is impossible: Triton reads TRITON_INTERPRET when it is imported.
"""

from __future__ import annotations

import fcntl
import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from support import environment
from support.sampling import commit, take_samples
from support.suites import suites_here

from bt_bench.protocol import end_suite, hosting
from bt_bench.worker.isolation.call_stack import with_room
from bt_bench.worker.machine.interpreter import speed_up_interpreter
from bt_kernels import native

pytest_plugins = ["support.censuses"]

# No test may depend on how fast the machine is, nor on whether it is one of a CI service.
settings.register_profile(
    "anywhere",
    settings.get_profile("default"),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("anywhere")

ON_GPU = environment.on_gpu(os.environ)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settles the environment of tests, once pytest knows the terminal that it prints to."""
    # Its colours it has looked up by now, but it looks up the width with each line.
    if config.pluginmanager.has_plugin("terminalreporter"):
        writer = config.get_terminal_writer()
        writer.fullwidth = writer.fullwidth
    environment.settle(config)
    _compile_in_one_process(Path(os.environ["HOME"]) / "compiling")


def _compile_in_one_process(path: Path) -> None:
    """Lets others of xdist's wait; all ask for the helpers in C at once, as they are imported."""
    built = native._built

    def built_alone(name: str) -> ModuleType:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return built(name)

    native._built = built_alone


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Has half of xdist's processes go backwards through the files.

    Pytest rewrites asserts before a file is first imported. So the two halves meet in the middle,
    and neither does what the other has done.
    """
    report = yield
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if isinstance(collector, pytest.Directory) and int(number) % 2:
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Draws samples of slow tests, and skips what the process cannot run, with the reason."""
    items.sort(key=lambda item: item.path.parts)  # the same, however they were collected
    take_samples(items, commit())
    beside_others = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1
    for item in items:
        if item.get_closest_marker("gpu") and not ON_GPU:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device: make test-gpu"))
        if not item.get_closest_marker("gpu") and ON_GPU:
            item.add_marker(pytest.mark.skip(reason="runs under the interpreter: make test"))
        if item.get_closest_marker("alone") and ON_GPU and beside_others:
            item.add_marker(pytest.mark.skip(reason="times a GPU, beside others: make test-gpu"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Makes kernels several times as fast, where any may run.

    Keeps the collector from going through torch and all tests again and again.
    """
    if not ON_GPU and "torch" in sys.modules:
        speed_up_interpreter()
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Lets it, or nanobind takes what is left at the end for leaks."""
    gc.unfreeze()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Runs a test as pytest does, with room for its calls; under hypothesis they are deep."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    with_room(lambda: runtestprotocol(item, nextitem=nextitem))
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(autouse=True)
def _suites_elsewhere(monkeypatch):
    """Ends the processes of suites that a test has made; a command of a suite runs it here."""
    monkeypatch.setattr("bt_bench.protocol.hosting._here", False)
    yield
    _end_suites(kept=EXAMPLES)
    if revisions := sys.modules.get("bt_bench.runs.gate.revisions"):
        revisions._TREES.clear()  # of gates in this process, each of which has two in its own


@pytest.fixture(scope="module", autouse=True)
def _no_suite_is_left():
    """Ends those of the examples, too, which the tests of a module share."""
    yield
    _end_suites()
    # Else each collection, of which there is one before anything is timed, would go through all
    # that the tests so far have imported.
    gc.collect(1)
    gc.freeze()


def _end_suites(kept: Path | None = None) -> None:
    for ref in list(hosting._processes):
        if kept is None or not ref.folder.is_relative_to(kept):
            end_suite(ref)


@pytest.fixture
def suites_run_here(_suites_elsewhere):
    """Lets code of users' suites run in the process of the tests."""
    with suites_here():
        yield


@pytest.fixture(scope="session")
def device():
    """The device that kernels run on in this process."""
    import torch

    if not ON_GPU:
        return torch.device("cpu")
    # No skip: who asks for the GPU tests must not get a green run without a GPU.
    assert torch.cuda.is_available(), "BT_BENCH_TEST_GPU=1, but torch sees no CUDA device"
    return torch.device("cuda", 0)
