"""Recordings of process-rounds, for `selfcheck`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from bt_bench import __version__
from bt_bench.base.errors import UsageError
from bt_bench.protocol import info_of, load_suite
from bt_bench.results import Environment, Recorder, Recording, Revision, Tool
from bt_bench.runs.gate.duration import expected_duration
from bt_bench.runs.gate.processes import MustPartError, ProcessRounds
from bt_bench.runs.gate.sides import RoundsRequest, checkers
from bt_bench.runs.preflight import check_conditions
from bt_bench.runs.progress import Progress
from bt_bench.worker import leased


def header_of(
    request: RoundsRequest,
    environments: Sequence[Environment],
    command: list[str],
    apart: Mapping[str, str] | None = None,
) -> Recording:
    """Return a recording of these process-rounds, still without rounds."""
    return Recording(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        tool=Tool(version=__version__, command=command),
        environment=environments[0],
        others=list(environments[1:]),
        config=request.spec.name,
        suite=info_of(load_suite(request.spec.suite)),
        arms={
            arm: Revision(label=side.label, commit=side.commit, dirty=side.dirty)
            for arm, side in request.sides.items()
        },
        apart=dict(apart or {}),
        subjects=[],
        rounds=[],
    )


def record(
    request: RoundsRequest,
    rounds: int,
    path: Path,
    command: list[str],
    progress: Progress,
    is_time_up: Callable[[float], bool] = lambda _: False,
) -> Recording:
    """Check the variants, and record process-rounds of them.

    Args:
        request: the process-rounds.
        rounds: number of rounds.
        path: file of the recording, which is complete after every batch.
        command: the command line, for the record.
        progress: receives the progress.
        is_time_up: called with the seconds of the longest batch so far; returns whether to stop.

    Raises:
        UsageError: for a variant that fails, with the reason.
    """
    progress.say(f"recording takes {expected_duration(request, rounds, rounds)}")
    with ExitStack() as leases:
        with checkers(request, progress) as workers:
            hello = workers.hello
            leases.enter_context(leased([hello.environment], progress.say))
            check_conditions(hello.environment, profiles=bool(request.spec.plan.profile_rounds))
            for failure in workers.failures(request.variants, progress).values():
                raise UsageError(failure)
            apart = workers.changing(progress)
        while True:
            recorder = Recorder(path, header_of(request, [hello.environment], command, apart))
            source = ProcessRounds(request, request.subjects, hello, progress, recorder.add, apart)
            try:
                done = _take(source, rounds, is_time_up)
            except MustPartError as error:
                apart |= error.reasons
                for name, why in error.reasons.items():
                    progress.say(f"{name} is measured apart from here on: {why}")
            else:
                progress.say(f"{done} rounds timed")
                return recorder.recording


def _take(source: ProcessRounds, rounds: int, is_time_up: Callable[[float], bool]) -> int:
    """Take rounds until the time is up, and return their number."""
    source.announce(rounds)
    done, longest = 0, 0.0
    while done < rounds and not is_time_up(longest):
        began = time.monotonic()
        done += len(source.take_batch(rounds - done))
        for failure in source.failures.values():
            raise UsageError(failure)
        longest = max(longest, time.monotonic() - began)
    return done
