"""`--shard K/N`: divides the cases of a sweep among runs that know nothing of each other.

The unit is a case with all of its operations. Its workload is built once, the operations of a step
are checked in one replay, and all figures of a case are of one GPU.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from bt_bench.base import compact_json, expanded
from bt_bench.base.errors import UsageError
from bt_bench.config.spec import CaseSpec, SweepSpec
from bt_bench.results import DividedCase, Division, Timing

_SHARD = re.compile(r"([0-9]+)/([0-9]+)")
_MOST_SHARDS = 100_000


def parse_shard(text: str) -> tuple[int, int]:
    """Parse the value of `--shard` into K and N.

    Raises:
        UsageError: for anything but K/N with K from 1 to N.
    """
    match = _SHARD.fullmatch(text.strip())
    index, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= index <= count <= _MOST_SHARDS:
        raise UsageError(
            f"--shard {text}: expected K/N, the shard and the number of shards, such as 1/4; K is "
            f"from 1 to N, and N at most {_MOST_SHARDS}"
        )
    return index, count


def divide(
    spec: SweepSpec, index: int, count: int, timing: Timing | None = None
) -> tuple[SweepSpec, Division]:
    """Return the config with the cases of one shard, and the division of all cases.

    Without a timing, the shard of a case follows from its name and its parameters alone. It does
    not depend on the other cases or their order. With a timing, the longest cases are given out
    first, each to the shard with the least seconds so far.

    Args:
        spec: the config of the whole sweep.
        index: the shard, counted from 1.
        count: number of shards.
        timing: seconds of an earlier run to balance by.

    Raises:
        UsageError: if a user's file cannot be read, or if no case is in the timing.
    """
    digests = case_digests(spec.cases)
    if timing is None:
        shards = [int(digest, 16) % count + 1 for digest in digests]
    else:
        shards = _balanced(spec, digests, count, timing)
    listed = zip(spec.cases, digests, shards, strict=True)
    cases = [DividedCase(case.name, digest, shard) for case, digest, shard in listed]
    division = Division(index, count, timing.run_id if timing else None, cases)
    kept = [case for case, shard in zip(spec.cases, shards, strict=True) if shard == index]
    return spec.model_copy(update={"cases": kept}), division


def case_digests(cases: Sequence[CaseSpec]) -> list[str]:
    """Return a digest of each case: its name, margin and parameters, with the contents of files.

    It is the same on all machines, wherever a user's files are there.

    Raises:
        UsageError: if a file cannot be read.
    """
    contents: dict[str, str] = {}
    return [_digest(case, contents) for case in cases]


def _digest(case: CaseSpec, contents: dict[str, str]) -> str:
    values = case.parameters.model_dump(mode="json")
    for name in case.parameters.file_names():
        path = str(values[name])
        if path not in contents:
            contents[path] = _content(case.name, expanded(path))
        values[name] = contents[path]
    text = compact_json([case.name, case.margin_percent, sorted(values.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _content(case: str, path: Path) -> str:
    if path.exists() and not path.is_file():  # reading a FIFO might wait for ever
        raise UsageError(f"case {case!r}: {path} is not a regular file; expected one to shard by")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"case {case!r}: cannot read {path}: {error.strerror}") from None


def _balanced(spec: SweepSpec, digests: Sequence[str], count: int, timing: Timing) -> list[int]:
    """Return the shard of each case: the longest first, each to the least loaded shard."""
    known = [timing.seconds[case.name] for case in spec.cases if case.name in timing.seconds]
    if not known:
        raise UsageError(
            f"--balance: run {timing.run_id} has times of none of the {len(spec.cases)} cases; "
            "expected a run of the same config, or no --balance"
        )
    typical = statistics.median(known)  # of a case that the earlier run does not have
    seconds = [timing.seconds.get(case.name, typical) for case in spec.cases]
    # The digest decides between equals, so the order of the config plays no part.
    order = sorted(range(len(seconds)), key=lambda place: (-seconds[place], digests[place]))
    loads = [(0.0, shard) for shard in range(1, count + 1)]
    shards = [0] * len(seconds)
    for place in order:
        load, shard = loads[0]
        shards[place] = shard
        heapq.heapreplace(loads, (load + seconds[place], shard))
    return shards
