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
def render(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function from the arguments of `bt-bench report` to its page, which the command writes."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def write(*given: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
        page = folder / f"{'-'.join(f'{each.parent.name}-{each.name}' for each in given)}.html"
        command = ["bt_bench", "report", *map(str, given), "--out", str(page)]
        done = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, check=False
        )
        return page, done

    def rendered(*given: Path) -> Path:
        page, done = write(*given)
        assert done.returncode == 0, done.stderr
        return page

    return rendered
