"""A process that calls one step of each variant in a marked range, for a profiler around it.

The range holds only the launches of the operation itself: everything is compiled and has run
before, and the part of the step before the operation runs outside the range.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.protocol import Workload, build_workload, driver_of, load_suite, run_suites_here
from bt_bench.results import Reason, ReasonCode
from bt_bench.variants import add_variants_path, encodable, load_apart, traceback_of
from bt_bench.worker.machine import activity
from bt_bench.worker.profiling.marking import (
    ANSWER_NAME,
    PROGRESS_NAME,
    REQUEST_NAME,
    MarkAnswer,
    Marked,
    MarkRequest,
)

if TYPE_CHECKING:
    import torch

    from bt_bench.worker.tasks.arm import Arm

WHERE = "while profiled"


def main(folder: Path) -> None:
    """Carry out the request in a folder, and leave the answer there."""
    run_suites_here()
    request: MarkRequest = pickle.loads((folder / REQUEST_NAME).read_bytes())
    sys.argv[1:] = request.command  # by which its lease of the GPU is known
    seen: dict[str, None] = {}
    try:
        # Output of variants must not mix with the profiler's.
        with redirect_stdout(sys.stderr):
            answer = MarkAnswer(marked=run(request, partial(_tell, folder), seen))
    except BtBenchError as error:
        if error.__cause__ is not None:
            seen.setdefault(traceback_of(error.__cause__))
        answer = MarkAnswer(refusal=encodable(str(error)))
    except Exception as error:
        answer = MarkAnswer(defect=traceback_of(error))
    answer.tracebacks = list(seen)
    (folder / ANSWER_NAME).write_text(answer.model_dump_json(), encoding="utf-8")


def run(request: MarkRequest, tell: Callable[[str], None], seen: dict[str, None]) -> Marked:
    """Make the marked calls of all variants.

    Args:
        request: the request.
        tell: called with the progress, as a text.
        seen: gets the traceback of each failure of a variant as a key.

    Raises:
        UsageError: if the device does not exist, if the workload cannot be built or lacks the step,
            if another process has the GPU, or if a variant does not import.
    """
    from bt_bench.worker.machine.device import choose_device

    # Before anything imports Triton.
    kind = choose_device(request.setup.device)
    import torch

    from bt_bench.worker.machine.environment import read_environment
    from bt_bench.worker.machine.leases import leased
    from bt_bench.worker.tasks.arm import inputs_on
    from bt_bench.worker.tasks.failures import on_failure

    on_failure(lambda error: seen.setdefault(traceback_of(error)))
    if kind == "cpu":
        from bt_bench.worker.machine.interpreter import speed_up_interpreter

        speed_up_interpreter()
    suite = load_suite(request.setup.suite)
    driver_of(suite)  # all of the suite is loaded before anything of a variant
    workload = build_workload(request.case.parameters)
    marked = _described(request, workload, read_environment(kind, suite.package))
    with leased([marked.environment], tell):
        classes = _imported(request)
        device = torch.device(kind)
        if kind == "cuda":
            device = torch.device("cuda", torch.cuda.current_device())
        steps = inputs_on(device, workload)[: marked.step + 1]
        _mark_all(request, classes, workload, steps, device, marked, tell)
    return marked


def _mark_all(
    request: MarkRequest,
    classes: Mapping[str, type[Any]],
    workload: Workload,
    steps: Sequence[Any],
    device: torch.device,
    marked: Marked,
    tell: Callable[[str], None],
) -> None:
    """Make the marked calls of all variants, or of those before one that ruins the device."""
    from bt_bench.worker.tasks.failures import device_fault

    for place, (name, variant) in enumerate(classes.items()):
        tell(f"profiling {name}, {place + 1} of {len(classes)}")
        reason = _mark(request, name, variant, workload, steps, device, marked)
        if reason is not None:
            marked.failures[name] = reason
            if device_fault(device) is not None:
                message = f"was not run, since {name} left the device unusable; leave {name} out"
                crashed = Reason(code=ReasonCode.CRASHED, message=message)
                marked.failures |= dict.fromkeys(list(classes)[place + 1 :], crashed)
                return


def _described(request: MarkRequest, workload: Workload, environment: Any) -> Marked:
    """Return the facts of the step that are known before anything runs."""
    count = len(workload.steps)
    step = count - 1 if request.step is None else request.step
    if not 0 <= step < count:
        raise UsageError(
            f"step {step}: the window of case {request.case.name!r} has no such step; "
            f"expected one from 0 to {count - 1}"
        )
    traffic = workload.traffic(request.operation)
    return Marked(
        environment=environment,
        step=step,
        num_steps=count,
        digest=workload.digest(),
        read_bytes=None if traffic is None else traffic[step].read,
        written_bytes=None if traffic is None else traffic[step].written,
    )


def _imported(request: MarkRequest) -> dict[str, type[Any]]:
    add_variants_path()
    arms = request.setup.arms
    activity.current().expect({arm.name: place for place, arm in enumerate(arms)})
    classes = {}
    for arm in arms:
        with activity.current().running(arm.name):
            classes[arm.name] = load_apart(arm.entry)
    return classes


def _mark(
    request: MarkRequest,
    name: str,
    variant: type[Any],
    workload: Workload,
    steps: Sequence[Any],
    device: torch.device,
    marked: Marked,
) -> Reason | None:
    """Make the marked calls of one variant; return the reason if that fails."""
    from bt_bench.worker.tasks.arm import Arm, lacking
    from bt_bench.worker.tasks.failures import ArmFailedError, reason_of

    missing = lacking(variant, workload)
    if missing is not None:
        return missing
    try:
        arm = Arm(name, variant, workload, device)
        with arm.guarded():
            marked.ranges[name] = _called(request, arm, steps, device)
    except ArmFailedError as failed:
        marked.ranges.pop(name, None)
        return reason_of(failed.error, WHERE)
    return None


def _called(request: MarkRequest, arm: Arm, steps: Sequence[Any], device: torch.device) -> str:
    """Warm up and make the marked calls; return the name of the range."""
    from bt_bench.results import LaunchPath
    from bt_bench.worker.measuring.launch_paths import use
    from bt_bench.worker.measuring.nvtx_ranges import Range, range_name
    from bt_bench.worker.tasks.failures import synchronize

    use(arm, LaunchPath.JIT)
    place = (arm.name, request.operation, request.case.name)
    marked = Range(*place)
    marked.at(len(steps) - 1)
    for replay in range(request.warm_up + request.calls):
        call = _ready(request, arm, steps)
        synchronize(device)
        is_marked = replay >= request.warm_up
        if is_marked:
            marked.push()
        try:
            call()
            synchronize(device)
        finally:
            marked.close()
        arm.finish(request.operation)
    return range_name(*place)


def _ready(request: MarkRequest, arm: Arm, steps: Sequence[Any]) -> Callable[[], object]:
    """Replay the window up to its last step, and return that step's call."""
    arm.rewind()
    for step in steps[:-1]:
        arm.ready(request.operation, step)()
        arm.finish(request.operation)
    return arm.ready(request.operation, steps[-1])


def _tell(folder: Path, text: str) -> None:
    """Append to the parent's progress file."""
    with (folder / PROGRESS_NAME).open("a", encoding="utf-8") as file:
        file.write(f"{encodable(text)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
