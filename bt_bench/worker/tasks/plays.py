"""Tasks for workers that explore: they survey variants and play scenarios.

These are passed between processes, and import neither torch nor Triton.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bt_bench.protocol import Floats, Seen
from bt_bench.results import Reason
from bt_bench.worker.tasks.tasks import Task


@dataclass(frozen=True)
class Surveyed:
    """The properties of a variant that decide which scenarios it gets.

    Args:
        features: the variant's features.
        sizes: numbers that appear in its own code.
        skipped: why it is not explored; empty if it is.
    """

    features: frozenset[str]
    sizes: tuple[int, ...]
    skipped: str = ""


@dataclass(frozen=True)
class Survey(Task[dict[str, Surveyed]]):
    """Find the properties of the arms that decide which scenarios they get."""

    doing = "while surveyed"


@dataclass(frozen=True)
class Played:
    """The observations from a scenario.

    Args:
        digests: after each call, by name: the digest of contents, or the fact itself. Floats are
            kept whole, since a digest does not show how far they are from the expected values.
        reason: why the scenario ended before its last call, if it did.
        whole: everything observed after the requested call, undigested.
        not_tried: parts that were left out for lack of memory or the like, in words.
    """

    digests: tuple[Mapping[str, str | Floats], ...]
    reason: Reason | None = None
    whole: Seen | None = None
    not_tried: tuple[str, ...] = ()


@dataclass(frozen=True)
class Play(Task[tuple[Played, ...]]):
    """Play scenarios on the one arm of the task, or without any arm on the reference.

    Args:
        scenarios: scenarios from the suite's explorer.
        whole: place of the call after which everything is returned undigested, in each scenario.
        lines: whether to note the lines and branches of the arm's own code that run, for
            `ReadCoverage`.
    """

    scenarios: tuple[Any, ...]
    whole: int | None = None
    lines: bool = False

    doing = "while explored"


@dataclass(frozen=True)
class Unreached:
    """Lines of a function that no scenario has run.

    Args:
        file: the file.
        first: the first line.
        last: the last line.
        function: the function's name.
        excuse: why that is no matter, from `# unreached: REASON` in the file; may be empty.
    """

    file: str
    first: int
    last: int
    function: str
    excuse: str = ""


class BranchWay(StrEnum):
    """One of the two ways that a branch can go."""

    TRUE = "true"
    FALSE = "false"
    FEW = "at most one turn"
    MANY = "several turns"


@dataclass(frozen=True)
class OneSided:
    """A branch that runs, but goes only one way in all scenarios.

    Args:
        file: the file.
        line: the line at its beginning.
        function: the function's name.
        missing: the way that it never goes.
        excuse: why that is no matter, from `# unreached: REASON` in the file; may be empty.
    """

    file: str
    line: int
    function: str
    missing: BranchWay
    excuse: str = ""


@dataclass(frozen=True)
class Coverage:
    """The lines of a variant's own functions that have run, and the branches that went both ways.

    Args:
        reached: number of lines that have run.
        total: number of all lines.
        unreached: the lines that have not run.
        both: number of branches (`if` and loops) that went both ways, or have an excuse.
        branches: number of all branches.
        one_sided: the branches that ran and went only one way.
    """

    reached: int
    total: int
    unreached: tuple[Unreached, ...] = ()
    both: int = 0
    branches: int = 0
    one_sided: tuple[OneSided, ...] = ()


@dataclass
class FileCoverage:
    """The lines and branches of a file that ran.

    Args:
        lines: the lines that ran.
        pairs: pairs of lines that ran one after the other in one call; 0 stands for its end.
        turns: heads of loops, each with the number of turns in one of their runs, at most 2.
    """

    lines: set[int] = field(default_factory=set)
    pairs: set[tuple[int, int]] = field(default_factory=set)
    turns: set[tuple[int, int]] = field(default_factory=set)

    def add(self, other: FileCoverage) -> None:
        """Add the lines and branches of the same file that ran elsewhere."""
        self.lines |= other.lines
        self.pairs |= other.pairs
        self.turns |= other.turns


@dataclass(frozen=True)
class ReadRan(Task[dict[str, FileCoverage]]):
    """Read the lines and branches of the one arm's own code that ran in this worker, by file."""

    doing = "while its lines were counted"


@dataclass(frozen=True)
class ReadCoverage(Task[Coverage]):
    """Count the lines of the one arm's own code that ran, in this worker and in others.

    Args:
        elsewhere: the answers of other workers to `ReadRan`.
    """

    elsewhere: tuple[Mapping[str, FileCoverage], ...] = ()

    doing = "while its lines were counted"
