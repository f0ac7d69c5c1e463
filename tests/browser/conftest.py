"""One Chromium for all tests of pages, and the pages, each of which is rendered once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from support.browser import NoBrowserError, Pages, browsing


@pytest.fixture(scope="session")
def pages() -> Iterator[Pages]:
    """Chromium; without one, no test of pages means anything."""
    try:
        with browsing() as found:
            yield found
    except NoBrowserError as error:
        pytest.exit(str(error), returncode=2)


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """A function from a run's folder to its page, which the command writes."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def write(run: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
        page = folder / f"{run.parent.name}-{run.name}.html"
        command = ["bt_bench", "report", str(run), "--format", f"html={page}"]
        done = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, check=False
        )
        return page, done

    def rendered(run: Path) -> Path:
        page, done = write(run)
        assert done.returncode == 0, done.stderr
        return page

    return rendered
