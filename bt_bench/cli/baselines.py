"""`--baseline` and `--save-baseline`: results stored under a name, for later comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.base.errors import UsageError
from bt_bench.cli.exits import say

if TYPE_CHECKING:
    from bt_bench.analysis import Given


def stored_baseline(reports: Path, name: str) -> Given:
    from bt_bench.analysis import Given
    from bt_bench.results import find_baseline

    return Given(name, str(find_baseline(reports, name)))


class Saving:
    """A `--save-baseline`, validated before anything is compared.

    Only the file that was compared is stored: a file that has changed since is refused.
    """

    def __init__(self, reports: Path, name: str, source: Given) -> None:
        from bt_bench.results import baseline_path

        baseline_path(reports, name)
        if (other := _no_file(source)) is not None:
            raise UsageError(
                f"--save-baseline {name}: cannot store {other}; expected a result file as the "
                "first argument, such as reports/run/fused.json"
            )
        self.name, self._reports, self._path = name, reports, source.path
        self._digest = _digest(self._text())

    def save(self) -> None:
        """Store the file, unless it cannot be a baseline."""
        from bt_bench.results import parse_compact, save_baseline, why_no_baseline

        text = self._text()
        if _digest(text) != self._digest:
            why = "has changed since it was read for this comparison; compare it again"
        else:
            why = why_no_baseline(parse_compact(text, self._path)) or ""
        if why:
            raise UsageError(f"--save-baseline {self.name}: {self._path} {why}")
        path = save_baseline(self._reports, self.name, text)
        say(f"saved {self._path} as baseline {self.name}: {path}")

    def _text(self) -> str:
        from bt_bench.base import read_text

        return read_text(self._path, self._path)


def _no_file(source: Given) -> str | None:
    """Describe an argument that cannot be read twice, for messages; `None` if it may be a file."""
    if source.path == "-":
        return "stdin"
    if source.is_folder:
        return f"{source.path}, a run folder"
    path = Path(source.path)
    return f"{path}, which is not a regular file" if path.exists() and not path.is_file() else None


def _digest(text: str) -> bytes:
    import hashlib

    return hashlib.sha256(text.encode()).digest()
