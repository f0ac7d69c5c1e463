"""The sweeps of `headline.py`: their cases, and how they are run or resumed.

Each sweep has its own process and folder, and therefore keeps its finished cases however it ends.
A shard has whole stretches of cases, and therefore needs few sweeps.
"""

from __future__ import annotations

import math
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headline_page import LEAD

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.config import dump_config, load_config
from bt_bench.config.spec import CaseSpec, SweepSpec
from bt_bench.results import CONFIG_NAME, Metric, metric_named, read_compact_run, write_run_file
from bt_bench.results.files.folders import RunFolder
from bt_bench.suites.batch_preparation.operations import PREPARE
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.vllm.source import VLLM

ONE_LAUNCH = "one_launch"
OURS = "one_launch_each"
"""`one_launch`, staged by a call per request, as vLLM is."""

CONFIGS = ("shapes", "origin", "features", "production", "azure_conv", "azure_code")

# Launched by Triton's call, since all arms take part in its rounds; steps that carry writes are
# launched their own way.
METRICS = {
    "host": metric_named("host_us+stage_us"),
    "gpu": metric_named("gpu_us"),
    "whole": metric_named("stage_us+step_us"),
}


@dataclass(frozen=True)
class Arms:
    """The variants of a comparison with vLLM: ours, vLLM's, and others.

    Args:
        ours: the variant that is compared.
        others: variants beside it and vLLM's; empty: all that the configs name, but `one_launch`.
        configs: stock configs whose cases are measured.
        lead: what ours is, as a clause.
        suite: the suite of the configs.
        operation: the operation that is measured.
        folder: folder of variants that only studies have, below `studies/`.
        metrics: the quantities that are kept, by their names in `samples.npz`.
        plan: overrides of the configs, beside those of all comparisons.
    """

    ours: str
    others: tuple[str, ...]
    configs: tuple[str, ...]
    lead: str
    suite: str = "block_tables"
    operation: str = ops.STEP
    folder: str = "steps"
    metrics: Mapping[str, Metric] = field(default_factory=lambda: METRICS)
    plan: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Ours, vLLM's, and the others."""
        return (self.ours, VLLM, *self.others)


HEADLINE = Arms(
    OURS,
    ("baseline", "fused_apply", "fused_gather_slots", "fused"),
    CONFIGS,
    LEAD,
)
FLOORS = Arms(
    "three_calls",
    (OURS,),
    (*CONFIGS, "layouts"),
    "one_launch, called as vLLM calls its class: staged by a call per request, then apply, gather "
    "and slots",
)

BATCHES = Arms(
    OURS,
    ("separate", "staged_copy", "fused_inputs"),
    ("batches",),
    "one_launch, a whole step in one launch, staged by a call per request, as vLLM is",
    suite="batch_preparation",
    operation=PREPARE,
    folder="batches",
    metrics={**METRICS, "call": metric_named("host_us")},
    plan=("plan.case_seconds=3",),
)

# As in shapes.yaml: every case gets only a few hundred rounds of one launch path.
BRIEF = (
    "plan.precision_percent=0",
    "plan.rounds=1000",
    "plan.case_seconds=0.8",
    "plan.warmup_rounds=1",
    "plan.instances=4",
    "plan.profile_rounds=12",
    "plan.launch_paths=jit",
    "plan.loads=idle",
    "plan.l2=hot",
    "plan.control=false",
)
# For configs with windows of traces, since a replay takes as long as all steps of a window. Rounds
# are profiled in pairs of one instance, and an interval needs at least three instances.
WINDOWS = ("plan.case_seconds=2", "plan.profile_rounds=8", "window.steps=12")
# Staging 1,024 rows in each of 8 groups takes so long that there would be two rounds.
SLOW = re.compile("8grp_1024req_16384tok_.*_many")
SLOW_SECONDS = "plan.case_seconds=8"
QUICK = ("plan.case_seconds=0.1", "plan.profile_rounds=3")
QUICK_WINDOWS = ("window.steps=4",)

# Approximate time of a case beside its rounds, to cut shards of similar length. Measured and
# checked arms fill their tables with all block ids some 30 times.
SETTING_UP_S = 0.5
PER_STEP_S = 0.15
PER_ID_S = 20e-6
STOPS_WITHIN_S = 60.0  # timeout for an interrupted sweep to write its results


@dataclass(frozen=True)
class Shard:
    """A part of all cases: `index` of `count`, from 1."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse `i/n`.

        Raises:
            ValueError: for anything else, and for an i outside 1 to n.
        """
        index, slash, count = text.partition("/")
        shard = cls(int(index), int(count)) if slash else cls(0, 0)
        if not 1 <= shard.index <= shard.count:
            raise ValueError(f"{text!r} is no shard; expected i/n with i from 1 to n, such as 1/3")
        return shard

    def suffix(self) -> str:
        """Return the suffix of the names of its sweeps."""
        return "" if self.count == 1 else f"-{self.index}of{self.count}"


@dataclass(frozen=True)
class Piece:
    """A sweep: some cases of a config.

    Args:
        name: name of its folder.
        spec: its cases, with the plan and the variants.
    """

    name: str
    spec: SweepSpec


def pieces_of(
    chosen: Collection[str] | None = None,
    shard: Shard = Shard(),
    *,
    quick: bool = False,
    arms: Arms = HEADLINE,
) -> list[Piece]:
    """Return the sweeps of a shard.

    Args:
        chosen: cases as `CONFIG/CASE`; `None`: all.
        shard: the part of the cases.
        quick: use few rounds and short windows, as a smoke test.
        arms: the variants, and the configs.

    Raises:
        UsageError: for no case, and for one that no config has.
    """
    if chosen is not None and not chosen:
        raise UsageError("no case is chosen; expected lines CONFIG/CASE")
    configs = arms.configs if chosen is None else {each.partition("/")[0] for each in chosen}
    wholes = [
        piece
        for name in arms.configs
        if name in configs
        for piece in _pieces(name, chosen, quick, arms)
        if piece.spec.cases
    ]
    known = {f"{piece.spec.name}/{case.name}" for piece in wholes for case in piece.spec.cases}
    if unknown := {*(chosen or ())} - known:
        named = ", ".join(arms.configs)
        raise UsageError(f"{min(unknown)} is no case of {named}; expected CONFIG/CASE")
    whole = seconds_of(wholes)
    begin = 0.0
    pieces = []
    for piece in wholes:
        cases = []
        for case in piece.spec.cases:
            seconds = _seconds(piece.spec, case)
            # A case belongs to the shard that its midpoint falls into.
            place = math.floor((begin + seconds / 2) / whole * shard.count) + 1
            begin += seconds
            if place == shard.index:
                cases.append(case)
        if cases:
            part = piece.spec.model_copy(update={"cases": cases})
            pieces.append(Piece(f"{piece.name}{shard.suffix()}", part))
    return pieces


def _pieces(name: str, chosen: Collection[str] | None, quick: bool, arms: Arms) -> Iterator[Piece]:
    """Yield a config's cases, those that need more time apart."""
    spec = load_config(name, suite=arms.suite)
    windows = any(case.parameters.workload == "trace" for case in spec.cases)
    overrides = [*BRIEF]
    overrides += WINDOWS if windows else ()
    overrides += arms.plan
    overrides += QUICK if quick else ()
    overrides += QUICK_WINDOWS if quick and windows else ()
    for suffix, more in (("", ()), ("-slow", () if quick else (SLOW_SECONDS,))):
        spec = load_config(
            name, overrides=[*overrides, *more], operations=[arms.operation], suite=arms.suite
        )
        shipped = (each for each in spec.variants if each in HEADLINE.others)
        others = shipped if arms is HEADLINE else arms.others
        cases = [
            case
            for case in spec.cases
            if chosen is None or f"{spec.name}/{case.name}" in chosen
            if bool(SLOW.fullmatch(case.name)) is bool(suffix)
        ]
        changes = {"cases": cases, "variants": [*others, arms.ours, VLLM]}
        yield Piece(f"{spec.name}{suffix}", spec.model_copy(update=changes))


def _seconds(spec: SweepSpec, case: CaseSpec) -> float:
    """Estimate the seconds of a case."""
    parameters: Any = case.parameters
    seconds: float = spec.plan.case_seconds + SETTING_UP_S
    if parameters.workload == "trace":
        steps: int = parameters.window.steps
        return seconds + PER_STEP_S * steps
    requests = parameters.requests + getattr(parameters, "prefills", 0)
    longest = getattr(parameters, "longest", None) or parameters.max_model_len
    ids: float = sum(requests * longest / 2 / size for size in parameters.block_sizes())
    return seconds + PER_ID_S * ids


def seconds_of(pieces: Sequence[Piece]) -> float:
    """Estimate the seconds of sweeps, without their start-up."""
    return sum(_seconds(piece.spec, case) for piece in pieces for case in piece.spec.cases)


def run_pieces(
    pieces: Sequence[Piece],
    runs: Path,
    options: Sequence[str],
    *,
    resume: bool = False,
    limit_s: float | None = None,
) -> list[str]:
    """Run sweeps one after the other; return the problems.

    Args:
        pieces: the sweeps.
        runs: parent of their folders.
        options: options of `bt-bench sweep`, such as `--vllm-source`.
        resume: continue sweeps that were begun, and skip complete ones.
        limit_s: time limit for all of them; an unfinished sweep is stopped, and can be resumed.

    Raises:
        UsageError: if a folder exists and `resume` is not given, or if it holds no run, or a run
            of other cases or another plan.
    """
    if not resume:
        for piece in pieces:
            if (runs / piece.name).exists():
                raise UsageError(
                    f"{runs / piece.name} exists, and a run is never overwritten; pass --resume to "
                    "continue it, or choose another folder"
                )
    end = None if limit_s is None else time.monotonic() + limit_s
    problems = []
    for piece in pieces:
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            problems.append(f"{piece.name}: not begun, since the time is up; go on with --resume")
            continue
        problems += _run(piece, runs, options, left)
    return problems


def _run(piece: Piece, runs: Path, options: Sequence[str], limit_s: float | None) -> list[str]:
    folder = runs / piece.name
    if (folder / CONFIG_NAME).is_file():
        begun = load_config(folder / CONFIG_NAME)
        if (_names(begun), begun.plan) != (_names(piece.spec), piece.spec.plan):
            raise UsageError(
                f"{folder} is of other cases or another plan than is asked for now; expected the "
                "options that it was begun with, or another folder by --runs"
            )
        if _is_complete(folder):
            return []
        arguments = ["--resume", str(folder)]
    else:
        if folder.exists():  # it was stopped before it wrote its config
            shutil.rmtree(RunFolder.open(folder).path)
        runs.mkdir(parents=True, exist_ok=True)
        config = runs / f"{piece.name}.yaml"
        write_run_file(config, dump_config(piece.spec, runs))
        arguments = [str(config), "--out", str(folder)]
    command = [sys.executable, "-m", "bt_bench", "sweep", *arguments, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _stop(process)
            return [f"{piece.name}: stopped after {limit_s:.0f} s; go on with --resume"]
    # The results have the cases that failed.
    if process.returncode in (ExitCode.OK, ExitCode.CHECK_FAILED):
        return []
    sys.stderr.write(said)
    return [f"{piece.name}: bt-bench sweep ended with {process.returncode}"]


def _names(spec: SweepSpec) -> list[str]:
    return [case.name for case in spec.cases]


def _stop(process: subprocess.Popen[str]) -> None:
    """Interrupt a sweep, which then writes its results so far; kill it after a timeout."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=STOPS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _is_complete(folder: Path) -> bool:
    results = read_compact_run(folder)
    return bool(results) and all(result.header.complete for result in results)
