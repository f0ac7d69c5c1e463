"""What a process with marked calls is asked to do, and what it answers.

A profiler of kernels, which is started around that process, is told to look only at what is marked.
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
    """What is to be run.

    Args:
        setup: the device, the variants and their suite.
        case: the workload.
        operation: what is called.
        step: the place of the step in its window, from 0; `None`: the last one.
        calls: how many calls of the step are marked, each in the same state.
        warm_up: how many replays up to the step come before them, unmarked.
    """

    setup: WorkerSetup
    case: CaseSpec
    operation: Operation
    step: int | None
    calls: int
    warm_up: int


class Marked(BaseModel):
    """What was run.

    Args:
        environment: the machine and the software.
        step: the place of the step in its window, from 0.
        num_steps: of the window.
        digest: of the workload.
        read_bytes: what a call has to read in device memory; `None`: the suite does not say.
        written_bytes: what it has to write, likewise.
        ranges: the name of the NVTX range that the calls of each variant lie in.
        failures: why there is nothing of the other variants.
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
    """The answer: what was run, a message for the user, or a traceback of bt-bench.

    Besides, it has the tracebacks of failures of variants, those that are alike once.
    """

    marked: Marked | None = None
    refusal: str | None = None
    defect: str | None = None
    tracebacks: list[str] = Field(default_factory=list)


def mark_command(folder: Path) -> list[str]:
    """The command that does what the request in a folder asks for, and leaves the answer there."""
    return [sys.executable, "-m", "bt_bench.worker.profiling.marked", str(folder)]


def read_answer(folder: Path) -> MarkAnswer | None:
    """The answer in a folder; `None` if the process died before it gave one."""
    try:
        return MarkAnswer.model_validate_json((folder / ANSWER_NAME).read_bytes())
    except FileNotFoundError:
        return None


def accepted(answer: MarkAnswer) -> Marked:
    """What was run, according to an answer.

    Raises:
        UsageError: if it refuses.
        BtBenchError: for a defect of bt-bench.
    """
    if answer.refusal is not None:
        raise UsageError(answer.refusal)
    if answer.marked is None:
        raise BtBenchError(
            f"{answer.defect or ''}internal error while calls were marked; please report it"
        )
    return answer.marked
