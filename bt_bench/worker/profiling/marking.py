"""The request to a process with marked calls, and its answer.

A profiler of kernels, which is started around that process, is set to look only at marked calls.
This file imports neither torch nor Triton; `marked.py` beside it is the process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field

from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.config import CaseSpec
from bt_bench.protocol import Operation
from bt_bench.results import Environment, Reason
from bt_bench.worker.tasks.messages import WorkerSetup

REQUEST_NAME, ANSWER_NAME, PROGRESS_NAME = "request.pickle", "answer.json", "progress.txt"


@dataclass(frozen=True)
class MarkRequest:
    """A request for marked calls.

    Args:
        setup: the device, the variants and their suite.
        case: the workload.
        operation: the operation to call.
        step: the place of the step in its window, from 0; `None`: the last one.
        calls: number of marked calls of the step, each in the same state.
        warm_up: number of unmarked replays up to the step that come before them.
        command: the arguments of bt-bench, by which others know who has the GPU.
    """

    setup: WorkerSetup
    case: CaseSpec
    operation: Operation
    step: int | None
    calls: int
    warm_up: int
    command: tuple[str, ...] = ()


class Marked(BaseModel):
    """A record of the marked calls.

    Args:
        environment: the machine and the software.
        step: the place of the step in its window, from 0.
        num_steps: number of steps in the window.
        digest: the workload's digest.
        read_bytes: bytes that a call has to read in device memory; `None`: the suite does not
            define them.
        written_bytes: bytes that it has to write, likewise.
        ranges: the name of the NVTX range around the calls of each variant.
        failures: why there are no calls of the other variants.
    """

    environment: Environment
    step: int
    num_steps: int
    digest: str
    read_bytes: int | None = None
    written_bytes: int | None = None
    ranges: dict[str, str] = Field(default_factory=dict)
    failures: dict[str, Reason] = Field(default_factory=dict)


class MarkAnswer(BaseModel):
    """The answer: a record of the calls, a message for the user, or a traceback of bt-bench.

    It also has the tracebacks of failures of variants, once for identical ones.
    """

    marked: Marked | None = None
    refusal: str | None = None
    defect: str | None = None
    tracebacks: list[str] = Field(default_factory=list)


def mark_command(folder: Path) -> list[str]:
    """Return the command that carries out the request in a folder and leaves the answer there."""
    return [sys.executable, "-m", "bt_bench.worker.profiling.marked", str(folder)]


def read_answer(folder: Path) -> MarkAnswer | None:
    """Return the answer in a folder, or `None` if the process died before it gave one."""
    try:
        return MarkAnswer.model_validate_json((folder / ANSWER_NAME).read_bytes())
    except FileNotFoundError:
        return None


def accepted(answer: MarkAnswer) -> Marked:
    """Return the record of the marked calls in an answer.

    Raises:
        UsageError: if the answer is a refusal.
        BtBenchError: for a defect of bt-bench.
    """
    if answer.refusal is not None:
        raise UsageError(answer.refusal)
    if answer.marked is None:
        raise BtBenchError(
            f"{answer.defect or ''}internal error while calls were marked; please report it"
        )
    return answer.marked
