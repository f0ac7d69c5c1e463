"""Workers that have a made-up GPU each and measure made-up times; they load no torch.

What a case measures follows from its name alone, so runs on any devices are equal. Each worker
witnesses in the file `violations` of the folder of its variants' files if another process has its
device, or a turn at timing the host, at the same time, and in `begun` what it measures.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bt_bench.base import claims
from bt_bench.base.processes import answer, settle
from bt_bench.config.spec import CaseSpec, SweepSpec
from bt_bench.protocol import flat_parameters
from bt_bench.results import Environment, RunFolder
from bt_bench.results.run.case import CheckReport
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.plan import Plan
from bt_bench.runs.progress import Lines
from bt_bench.runs.sharing import Place
from bt_bench.runs.sweep import SweepRequest, run_sweep
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import UniformParameters
from bt_bench.variants.catalogue import VariantEntry
from bt_bench.worker import Supervisor, WorkerSetup, arms_of
from bt_bench.worker.measuring.host_time import host_turn
from bt_bench.worker.tasks.messages import Hello, Message
from bt_bench.worker.tasks.outcome import Measured
from bt_bench.worker.tasks.runner import Success
from bt_bench.worker.tasks.tasks import (
    Calibrate,
    CheckCase,
    CheckConformance,
    Checked,
    CheckOutcome,
    MeasureCase,
    Task,
)
from support.factories import (
    make_calibration,
    make_environment,
    make_gpu,
    make_measurement,
    make_rounds,
    make_workload,
)

ARMS = ("baseline", "fused")
OPERATIONS = [ops.GATHER_SLOTS, ops.STEP]
BEGUN, VIOLATIONS = "begun", "violations"


def environment_of(uuid: str, name: str = "NVIDIA H200") -> Environment:
    """The environment of a process that has the GPU of that UUID."""
    gpu = make_gpu(name).model_copy(update={"uuid": uuid})
    return make_environment(gpus=[gpu])


def make_spec(count: int) -> SweepSpec:
    """A config of that many cases."""
    parameters = UniformParameters(workload="uniform", requests=2, tokens=4)
    cases = [CaseSpec(name=f"case{number}", parameters=parameters) for number in range(count)]
    plan = Plan(rounds=2)
    return SweepSpec(name="f", variants=list(ARMS), operations=OPERATIONS, plan=plan, cases=cases)


def entries_in(folder: Path) -> list[VariantEntry]:
    """The variants, whose files are in a folder."""
    source = folder / "variant.py"
    source.touch()
    return [VariantEntry(name, "", source, shipped=False, package="bt_kernels") for name in ARMS]


def done(task: Task, arms: Sequence[str]) -> object:
    """Return the result of a task, which is equal on all devices."""
    if isinstance(task, Calibrate):
        return make_calibration({"empty_call": [0.05]})
    if isinstance(task, CheckCase | CheckConformance):
        found = CheckOutcome(CheckReport(steps=1, buffers=["slots"]), None)
        outcomes = {(arm, operation): found for arm in arms for operation in task.operations}
        if isinstance(task, CheckConformance):
            return outcomes
        workload = make_workload(task.case.name).model_copy(
            update={"parameters": flat_parameters(task.case.parameters)}
        )
        return Checked(workload, outcomes)
    assert isinstance(task, MeasureCase)
    times = [[1.0 + sum(map(ord, task.title)) / 100]] * 2
    return {
        arm: Measured([make_measurement(Quantity.STEP_US, times)], rounds=make_rounds(2))
        for arm in arms
    }


def serve(connection, block, setup) -> None:
    """Does the tasks of a sweep on the device that it was set up for, and is slow for a fake."""
    settle()
    folder = Path(setup.arms[0].entry.path).parent
    claims.FOLDERS = (folder,)  # or two runs of the tests on one host would wait for each other
    answer(connection, Message(0, Hello("cuda", environment_of(setup.device), None)))
    with (
        (folder / f"device-{setup.device}").open("a") as device,
        (folder / "host").open("a") as host,
    ):
        while (request := connection.recv()) is not None:
            with witnessed(device, folder):
                if isinstance(request.task, MeasureCase):
                    note(folder / BEGUN, f"{os.getpid()} {setup.device} {request.task.title}")
                    with host_turn(lambda _: None), witnessed(host, folder):
                        time.sleep(random.uniform(0.01, 0.05))
                value = done(request.task, request.arms)
            answer(connection, Message(request.number, Success(value)))


@contextmanager
def witnessed(file: IO[str], folder: Path) -> Iterator[None]:
    """Notes it if another process is in such a block at the same time.

    By `lockf`, as claims: the kernel gives a `flock` of a killed process back a little later.
    """
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(folder / VIOLATIONS, f"{file.name} {os.getpid()}")
    yield
    fcntl.lockf(file, fcntl.LOCK_UN)


def note(path: Path, line: str) -> None:
    """Appends a line to a file, whole."""
    with path.open("a") as file:
        file.write(f"{line}\n")


def sweep_on(uuids: Sequence[str], count: int, folder: Path) -> None:
    """Sweeps, or goes on, in the folder `run` of a folder, with a worker process for each GPU."""
    spec, entries = make_spec(count), entries_in(folder)
    run = RunFolder(folder / "run")
    run.path.mkdir(exist_ok=True)
    workers = [
        Supervisor(WorkerSetup(uuid, arms_of(entries), spec.plan, spec.suite), serve)
        for uuid in uuids
    ]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.__enter__()
        first, *others = (Place(worker, worker.hello.environment) for worker in workers)
        request = SweepRequest(spec, entries, first.environment, run, ["bt-bench", "sweep"])
        with run.locked():
            run_sweep(request, first.runner, Lines(print), others)
    finally:
        for worker in workers:
            worker.close()
