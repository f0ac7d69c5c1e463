"""`--shard K/N`: takes a share of the cases, for one of several GPUs, hosts or jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError, counted
from bt_bench.cli.exits import say
from bt_bench.cli.options import print_json

if TYPE_CHECKING:
    from bt_bench.config import SweepSpec
    from bt_bench.results import Division, RunFolder

ShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="K/N",
        help="Take only the K-th of N shares of the cases, K from 1 to N. bt-bench merge puts the "
        "shares of a sweep or a gate together.",
        show_default="all cases",
    ),
]
BalanceOption = Annotated[
    Path | None,
    typer.Option(
        "--balance",
        metavar="RUN",
        help="Balance the shares of --shard by the seconds that the cases took in this run.",
        show_default="divided by a hash of each case",
    ),
]


def sharded(
    spec: SweepSpec, shard: str | None, balance: Path | None = None
) -> tuple[SweepSpec, Division | None]:
    """Return the config with the cases of a shard, and the division of all; announce it.

    Args:
        spec: the config of the whole sweep.
        shard: the value of `--shard`; `None`: all cases are taken, and nothing is divided.
        balance: the value of `--balance`.

    Raises:
        UsageError: for a shard that does not exist, and for a run without times.
    """
    if shard is None:
        if balance is not None:
            raise UsageError(f"--balance {balance} divides cases among shards; add --shard K/N")
        return spec, None
    from bt_bench.config import divide, parse_shard
    from bt_bench.results import read_timing

    index, count = parse_shard(shard)
    timing = None if balance is None else read_timing(balance)
    spec, division = divide(spec, index, count, timing)
    say(extent_text(division))
    return spec, division


def share_of(numbers: range, index: int, count: int) -> range:
    """Return the part of consecutive numbers that a shard takes; parts differ by one at most."""
    first, after = (len(numbers) * place // count for place in (index - 1, index))
    return numbers[first:after]


def extent_text(division: Division) -> str:
    """Return `shard 2/3: 4 of 12 cases, divided by a hash of each`."""
    how = "a hash of each" if division.balance is None else f"their seconds in {division.balance}"
    return (
        f"shard {division.shard.text}: {len(division.own)} of "
        f"{counted(len(division.cases), 'case')}, divided by {how}"
    )


def end_empty(folder: RunFolder, division: Division, as_json: bool) -> ExitCode:
    """End a sweep whose shard has no case: there is nothing to measure, and nothing is wrong."""
    say(
        f"shard {division.shard.text} has no case, so nothing is measured; bt-bench merge needs no "
        f"result of it, and takes {folder.path} all the same"
    )
    if as_json:
        counts = dict.fromkeys(("cases", "failed", "insufficient", "unsupported", "crashes"), 0)
        print_json(
            {
                "schema_version": 1,
                "run_id": None,
                "folder": str(folder.path),
                "comparison": None,
                "results": {},
                "complete": True,
                **counts,
            }
        )
    return ExitCode.OK
