"""Build the site of the documentation by Sphinx; `make site` runs it, and any warning fails.

The pages are README.md, CHANGELOG.md, those of docs/ and the reports. They are read where they lie
in the repository, so their links hold here and there. A link to any other file offers a copy of it.
No page needs a network.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]

# The sidebar. A page that is in none of these lists is a warning, and so is one that is missing.
NAVIGATION = {
    "First steps": ("docs/install", "docs/functions", "docs/cli", "docs/api", "docs/configs"),
    "Figures": (
        *("docs/how-fast", "docs/results", "docs/measurement", "docs/profile"),
        *("docs/profile-example", "reports/README"),
    ),
    "Gates and scale": ("docs/ci", "docs/static-gate", "docs/gate-statistics", "docs/scale"),
    "Kernels": (
        *("docs/block-tables", "docs/batch-preparation", "docs/one-launch", "docs/variants"),
        *("docs/suites", "docs/engines", "docs/vllm", "docs/vllm-plugin"),
    ),
    "Project": (
        *("docs/architecture", "CHANGELOG"),
        "bt_bench/suites/block_tables/workloads/traces/LICENSE",
    ),
}

project = "bt-bench"
author = "The bt-bench developers"
language = "en"
root_doc = "README"
# Of the folders in reports/, those that git does not ignore: others are of whoever builds.
_kept = re.findall(r"^!/(reports/\S+)$", (ROOT / ".gitignore").read_text("utf-8"), re.MULTILINE)
include_patterns = [
    *("README.md", "CHANGELOG.md", "docs/*.md", "bt_bench/**/LICENSE.md"),
    *(f"{name}**.md" if name.endswith("/") else name for name in _kept),
]
exclude_patterns = [".*", "build", "dist", "kernels", "tests"]

smartquotes = False

extensions = ["myst_parser"]
myst_heading_anchors = 6  # as GitHub makes them

html_theme = "furo"
html_title = "bt-bench"
html_copy_source = False
html_show_sphinx = False
html_use_index = False


def _add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add the sidebar to the pages that head it; the repository has its list of files instead."""
    if page == root_doc:
        for caption, pages in NAVIGATION.items():
            source[0] += _contents(f":caption: {caption}", *pages)
    if page == "reports/README":
        source[0] += _contents(":glob:", "/reports/**")


def _contents(*lines: str) -> str:
    return "\n\n" + "\n".join(["```{toctree}", ":hidden:", *lines, "```"]) + "\n"


def _open_to_keyboards(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    """Let parts that scroll have the focus, and give the sidebar's headings the level they lack."""
    for name, old, new in (
        ("body", "<pre>", '<pre tabindex="0">'),
        ("body", '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
        ("furo_navigation_tree", ' role="heading">', ' role="heading" aria-level="2">'),
    ):
        context[name] = context.get(name, "").replace(old, new)


def _begin_with_readme(app: Sphinx, error: Exception | None) -> None:
    """Let the site's folder open with the README, whose page has another name."""
    if error is None:
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    """Take part in the build."""
    from pygments.lexers.data import JsonLexer
    from pygments.lexers.special import TextLexer

    # Names that GitHub knows and Pygments does not.
    app.add_lexer("csv", TextLexer)
    app.add_lexer("json-lines", JsonLexer)
    app.connect("source-read", _add_navigation)
    app.connect("html-page-context", _open_to_keyboards, priority=900)  # after the theme
    app.connect("build-finished", _begin_with_readme)
