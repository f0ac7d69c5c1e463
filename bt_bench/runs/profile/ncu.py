"""Counters of one step: a subprocess runs under Nsight Compute, and its report is read."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bt_bench.base import format_bytes, scratch_folder
from bt_bench.base.errors import UsageError
from bt_bench.base.processes import run_kept
from bt_bench.config import CaseSpec
from bt_bench.protocol import Operation
from bt_bench.results import NCU_REPORT_NAME, Cache, Counters, VariantCounters
from bt_bench.runs.profile.ncu_report_file import load_module, read_variants
from bt_bench.runs.profile.ncu_tool import (
    REPORT_SUFFIX,
    Ncu,
    environment,
    find_ncu,
    is_known_error,
    ncu_command,
    why_no_report,
)
from bt_bench.worker import WorkerSetup
from bt_bench.worker.measuring.nvtx_ranges import range_name
from bt_bench.worker.profiling.marking import (
    PROGRESS_NAME,
    REQUEST_NAME,
    Marked,
    MarkRequest,
    accepted,
    mark_command,
    read_answer,
)

CALLS = 3
"""Profiled calls of the step: figures are their medians."""

WARM_UP = 3
"""Replays of the window before them, which leave nothing to compile while profiling."""

MOST_LAUNCHES = 64
"""The most profiled kernels of a call, on average over the variants."""

MOST_REPORT_BYTES = 64 << 20
SECONDS = 900.0

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class CountersRequest:
    """A request for counters of one step.

    Args:
        config: the config's name.
        setup: the device, the variants and their suite.
        case: the workload.
        operation: the operation to call.
        step: index of the step in its window, from 0; `None`: the last one.
        l2: whether caches are flushed before each replay of a kernel.
        seconds: time limit of Nsight Compute.
    """

    config: str
    setup: WorkerSetup
    case: CaseSpec
    operation: Operation
    step: int | None = None
    l2: Cache = Cache.HOT
    seconds: float = SECONDS


@dataclass(frozen=True)
class TakenCounters:
    """The counters of one step, and the report behind them.

    Args:
        counters: counters of all variants.
        report: contents of Nsight Compute's own file; `None` if there is none, or it is too
            large to be kept.
        report_bytes: its size.
    """

    counters: Counters
    report: bytes | None
    report_bytes: int


def take_counters(
    request: CountersRequest,
    on_progress: Callable[[str], None],
    on_traceback: Callable[[str], None] | None = None,
    *,
    ncu: Ncu | None = None,
) -> TakenCounters:
    """Profile the step, and read the report.

    Args:
        request: the step and the variants.
        on_progress: called with each line of progress.
        on_traceback: takes the traceback of each failure of a variant.
        ncu: the program; `None`: the one that is found.

    Raises:
        UsageError: if Nsight Compute is missing, too old, may not read counters, does not end, or
            writes no report that can be read; for a device that is not there, a workload that
            cannot be built, a step that it does not have, and a variant that does not import.
        BtBenchError: for a defect of bt-bench.
    """
    ncu = ncu or find_ncu()
    module = load_module(ncu)  # before minutes are spent
    with scratch_folder("ncu") as folder:
        report = folder / f"report{REPORT_SUFFIX}"
        printed = _run(ncu, request, folder, report, on_progress)
        marked = _marked(ncu, folder, printed, on_traceback)
        if not report.is_file() and (marked.ranges or is_known_error(printed)):
            raise why_no_report(ncu, printed)
        most = _most_launches(request)
        read = read_variants(module, report, marked.ranges, CALLS, most) if marked.ranges else []
        size = report.stat().st_size if report.is_file() else 0
        kept = report.read_bytes() if 0 < size <= MOST_REPORT_BYTES else None
    counters = _counters(request, ncu, marked, read, kept is not None)
    return TakenCounters(counters, kept, size)


def too_large(size: int) -> str:
    """Return the message that a report is too large to be kept; `size` is in bytes."""
    return (
        f"Nsight Compute's own report has {format_bytes(size)} and is not kept: more than "
        f"{format_bytes(MOST_REPORT_BYTES)}; profile fewer variants at once"
    )


def _run(
    ncu: Ncu,
    request: CountersRequest,
    folder: Path,
    report: Path,
    on_progress: Callable[[str], None],
) -> str:
    """Run Nsight Compute to its end, and return all that it printed."""
    names = [arm.name for arm in request.setup.arms]
    asked = MarkRequest(
        request.setup,
        request.case,
        request.operation,
        request.step,
        CALLS,
        WARM_UP,
        tuple(sys.argv[1:]),
    )
    (folder / REQUEST_NAME).write_bytes(pickle.dumps(asked))
    command = ncu_command(
        ncu,
        report,
        [range_name(name, request.operation, request.case.name) for name in names],
        request.l2,
        _most_launches(request),
        mark_command(folder),
    )
    try:
        with _following(folder / PROGRESS_NAME, on_progress):
            done = run_kept(command, env=environment(), seconds=request.seconds)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{ncu.path} has not ended after {request.seconds:g} s; profile fewer variants at once"
        ) from None
    return f"{done.stdout}\n{done.stderr}"


def _most_launches(request: CountersRequest) -> int:
    return MOST_LAUNCHES * CALLS * len(request.setup.arms)


@contextmanager
def _following(path: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Pass on the lines that another process appends to a file, until the block ends."""
    ended = threading.Event()

    def follow() -> None:
        told = 0
        while True:
            is_last = ended.wait(_POLL_SECONDS)
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            for line in lines[told:]:
                tell(line)
            told = len(lines)
            if is_last:
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _marked(
    ncu: Ncu,
    folder: Path,
    printed: str,
    on_traceback: Callable[[str], None] | None,
) -> Marked:
    """Return the accepted answer of the process under Nsight Compute; pass on its tracebacks."""
    answer = read_answer(folder)
    if answer is None:
        # Nsight Compute may have killed it, and then prints why.
        raise why_no_report(ncu, printed)
    if on_traceback is not None:
        for traceback in answer.tracebacks:
            on_traceback(traceback)
    return accepted(answer)


def _counters(
    request: CountersRequest,
    ncu: Ncu,
    marked: Marked,
    read: Sequence[VariantCounters],
    has_report: bool,
) -> Counters:
    """Return the counters of all variants, in the requested order."""
    found = {variant.name: variant for variant in read}
    for name, reason in marked.failures.items():
        found[name] = VariantCounters(name=name, reason=reason)
    return Counters(
        config=request.config,
        case=request.case.name,
        operation=request.operation,
        step=marked.step,
        num_steps=marked.num_steps,
        digest=marked.digest,
        read_bytes=marked.read_bytes,
        written_bytes=marked.written_bytes,
        environment=marked.environment,
        tool=ncu.version,
        l2=request.l2,
        calls=CALLS,
        report=NCU_REPORT_NAME if has_report else None,
        variants=[found[arm.name] for arm in request.setup.arms],
    )
