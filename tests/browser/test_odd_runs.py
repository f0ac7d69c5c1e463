"""Pages of runs that failed, were cut off, had no GPU, or have names that are markup."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support import page_checks, scenarios
from support.browser import Pages

from bt_bench.results import VariantResult

pytestmark = pytest.mark.browser

MARKUP = (
    '</script></title></style><img src="nowhere.png" onerror="boom()"><script>boom()</script>'
    "<!-- &quot;'\" \u202elive" + "x" * 10_000
)


def written(folder: Path, results: list[VariantResult], case: str = "small") -> Path:
    """Write results as a run's folder, with another name for the case `small`."""
    folder.mkdir()
    for result in results:
        text = result.model_dump_json().replace("small", json.dumps(case)[1:-1])
        (folder / f"{result.variant.name}.json").write_text(text, encoding="utf-8")
    return folder


def faults(page: Path, pages: Pages) -> list[str]:
    """Return what is wrong with a page that may have few charts and rows."""
    with pages.open(page, width=390) as opened:
        return [
            *page_checks.silent(opened),
            *page_checks.structure(opened),
            *page_checks.fits(opened),
            *page_checks.accessible(opened),
        ]


@pytest.mark.parametrize(
    "name", ["gpu_run", "cpu_run", "failed_run", "partial_run", "trace_run", "one_variant"]
)
def test_there_is_a_sound_page(
    name: str, render: Callable[[Path], Path], pages: Pages, tmp_path: Path
) -> None:
    results = scenarios.gpu_run()[:1] if name == "one_variant" else getattr(scenarios, name)()
    assert faults(render(written(tmp_path / name, results)), pages) == []


def test_names_are_only_text(render: Callable[[Path], Path], pages: Pages, tmp_path: Path) -> None:
    page = render(written(tmp_path / "markup", scenarios.gpu_run(), case=MARKUP))
    assert faults(page, pages) == []
    with pages.open(page) as opened:
        text = opened.look(
            """() => {
                document.querySelectorAll("details").forEach(each => { each.open = true });
                return document.querySelector("main").innerText;
            }"""
        )
    assert "</script></title>" in text
    assert "\u202e" not in text  # which would turn round what follows
