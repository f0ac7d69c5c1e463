"""Tasks for workers that explore: to survey variants, and to play scenarios.

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
    """What of a variant decides which scenarios it gets.

    Args:
        features: that it has.
        sizes: numbers that its own code names.
        skipped: why it is not explored; empty: it is.
    """

    features: frozenset[str]
    sizes: tuple[int, ...]
    skipped: str = ""


@dataclass(frozen=True)
class Survey(Task[dict[str, Surveyed]]):
    """Find out what of the arms decides which scenarios they get."""

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return "while surveyed"


@dataclass(frozen=True)
class Played:
    """What was seen of a scenario.

    Args:
        digests: after each call, by name: of contents, or the fact itself. Floats are whole, since
            no digest tells how far they are from what is expected.
        reason: why it ended before its last call, if it did.
        whole: what was seen after the call that was asked for, whole.
        not_tried: what was left out for lack of memory or the like, in words.
    """

    digests: tuple[Mapping[str, str | Floats], ...]
    reason: Reason | None = None
    whole: Seen | None = None
    not_tried: tuple[str, ...] = ()


@dataclass(frozen=True)
class Play(Task[tuple[Played, ...]]):
    """Play scenarios on the one arm of the task, or without any on the reference.

    Args:
        scenarios: from the suite's explorer.
        whole: place of a call after which everything is wanted whole, in each scenario.
        lines: whether to note which lines and branches of the arm's own code run, for
            `ReadCoverage`.
    """

    scenarios: tuple[Any, ...]
    whole: int | None = None
    lines: bool = False

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return "while explored"


@dataclass(frozen=True)
class Unreached:
    """Lines of a function that no scenario has run.

    Args:
        file: that has them.
        first: line.
        last: line.
        function: name.
        excuse: why that is no matter, as the file says by `# unreached: REASON`; may be empty.
    """

    file: str
    first: int
    last: int
    function: str
    excuse: str = ""


class Way(StrEnum):
    """One of the two ways that a branch goes."""

    TRUE = "true"
    FALSE = "false"
    FEW = "at most one turn"
    MANY = "several turns"


@dataclass(frozen=True)
class OneSided:
    """A branch that runs, and goes one way only in all scenarios.

    Args:
        file: that has it.
        line: where it begins.
        function: name.
        missing: the way that it never goes.
        excuse: why that is no matter, as the file says by `# unreached: REASON`; may be empty.
    """

    file: str
    line: int
    function: str
    missing: Way
    excuse: str = ""


@dataclass(frozen=True)
class Coverage:
    """Which lines of a variant's own functions have run, and which branches went both ways.

    Args:
        reached: how many lines.
        total: of how many.
        unreached: the others.
        both: how many branches (`if` and loops) went both ways, or have an excuse.
        branches: of how many.
        one_sided: those that ran and went one way.
    """

    reached: int
    total: int
    unreached: tuple[Unreached, ...] = ()
    both: int = 0
    branches: int = 0
    one_sided: tuple[OneSided, ...] = ()


@dataclass
class Ran:
    """Keep the lines and branches of a file that ran.

    Args:
        lines: that ran.
        pairs: of lines of one call that ran one after the other; 0 stands for its end.
        turns: heads of loops, with how many turns one of their runs had, at most 2.
    """

    lines: set[int] = field(default_factory=set)
    pairs: set[tuple[int, int]] = field(default_factory=set)
    turns: set[tuple[int, int]] = field(default_factory=set)

    def add(self, other: Ran) -> None:
        """Add what ran of the same file elsewhere."""
        self.lines |= other.lines
        self.pairs |= other.pairs
        self.turns |= other.turns


@dataclass(frozen=True)
class ReadRan(Task[dict[str, Ran]]):
    """Return what ran of each file of the one arm's own code, in this worker."""

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return "while its lines were counted"


@dataclass(frozen=True)
class ReadCoverage(Task[Coverage]):
    """Count which lines of the one arm's own code ran, in this worker and in others.

    Args:
        elsewhere: what other workers have answered to `ReadRan`.
    """

    elsewhere: tuple[Mapping[str, Ran], ...] = ()

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return "while its lines were counted"
