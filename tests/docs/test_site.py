"""The site of the documentation has all pages; `make site` builds it, and checks their links."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONF = runpy.run_path(str(ROOT / "docs/site/conf.py"))


def test_the_sidebar_has_each_page_once():
    listed = [page for pages in CONF["NAVIGATION"].values() for page in pages]
    assert len(set(listed)) == len(listed)
    assert {page for page in listed if page.startswith("docs/")} == {
        f"docs/{path.stem}" for path in (ROOT / "docs").glob("*.md")
    }
    for page in listed:
        assert (ROOT / f"{page}.md").is_file(), page


def test_reports_are_those_that_git_keeps():
    patterns = [each for each in CONF["include_patterns"] if each.startswith("reports/")]
    assert "reports/README.md" in patterns
    assert "reports/h100/**.md" in patterns
    for pattern in patterns:
        assert (ROOT / pattern.partition("**")[0]).exists(), pattern
