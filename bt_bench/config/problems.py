"""Collects all problems of a config, so that one run reports them all."""

from __future__ import annotations

from dataclasses import dataclass

from bt_bench.base.errors import UsageError

MAX_SHOWN_PROBLEMS = 20


@dataclass(frozen=True)
class Place:
    """Where something was written: a file with 1-based line and column, or a `--set` option."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if self.line == 0:
            return self.source
        return f"{self.source}:{self.line}:{self.column}"


class Problems:
    """Collects problems; the same problem found again, by another case, counts once."""

    def __init__(self) -> None:
        self._found: dict[tuple[Place, str], None] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, place: Place, message: str) -> None:
        """Notes one problem: what, its value, what was expected, what to do."""
        self._found[place, message] = None

    @property
    def found(self) -> list[tuple[Place, str]]:
        """All of them, as another process is told."""
        return list(self._found)

    def raise_if_any(self) -> None:
        """Raises one `UsageError` with a line per problem, in the order of the file."""
        if not self._found:
            return
        ordered = sorted(
            self._found, key=lambda found: (found[0].source, found[0].line, found[0].column)
        )
        lines = [f"{place}: {message}" for place, message in ordered[:MAX_SHOWN_PROBLEMS]]
        if len(ordered) > MAX_SHOWN_PROBLEMS:
            lines.append(f"… and {len(ordered) - MAX_SHOWN_PROBLEMS} more errors")
        raise UsageError("\n".join(lines))
