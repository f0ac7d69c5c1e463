"""The problems of a config, collected to report all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

from bt_bench.base.errors import UsageError

MAX_SHOWN_PROBLEMS = 20


@dataclass(frozen=True)
class Place:
    """A position in a source: a file with 1-based line and column, or a `--set` option."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if self.line == 0:
            return self.source
        return f"{self.source}:{self.line}:{self.column}"


class Problems:
    """A collection of problems; a problem that another case repeats counts once."""

    def __init__(self) -> None:
        self._found: dict[tuple[Place, str], None] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, place: Place, message: str) -> None:
        """Add a problem; its message names the subject, the value, the expectation and a remedy."""
        self._found[place, message] = None

    @property
    def found(self) -> list[tuple[Place, str]]:
        """All problems, as data that can be sent to another process."""
        return list(self._found)

    def raise_if_any(self) -> None:
        """Raise one `UsageError` with a line per problem, in the order of the file."""
        if not self._found:
            return
        ordered = sorted(
            self._found, key=lambda found: (found[0].source, found[0].line, found[0].column)
        )
        lines = [f"{place}: {message}" for place, message in ordered[:MAX_SHOWN_PROBLEMS]]
        if len(ordered) > MAX_SHOWN_PROBLEMS:
            lines.append(f"… and {len(ordered) - MAX_SHOWN_PROBLEMS} more errors")
        raise UsageError("\n".join(lines))
