"""Take the pictures of a run's page that README and `docs/results.md` show.

    pip install '.[browser]'          # and a Chromium, such as Debian's `chromium`
    python studies/page_pictures.py docs/pictures

Writes `page-origin.png`, the top of the page of `reports/h100/origin`, and `page-case.png`, charts
of one of its cases in dark colours. `--chromium` names the browser if it is not found.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

RUN = Path(__file__).parents[1] / "reports" / "h100" / "origin"
TOP = {"width": 1024, "height": 1060}
CASE = "case-3"  # of a whole step
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Render the page, and take both pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    parser.add_argument("--chromium", default=found, required=found is None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        command = [sys.executable, "-m", "bt_bench", "report", str(RUN), "--out", str(page)]
        subprocess.run(command, check=True)
        take(page, options.folder, options.chromium)


def take(page: Path, folder: Path, chromium: str) -> None:
    """Take both pictures of a page.

    Args:
        page: the HTML file.
        folder: where the pictures go.
        chromium: path of the browser.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        light = browser.new_page(viewport=TOP, color_scheme="light")
        light.goto(page.as_uri())
        light.screenshot(path=folder / "page-origin.png")
        dark = browser.new_page(viewport=TOP, color_scheme="dark")
        dark.goto(f"{page.as_uri()}#{CASE}")
        dark.wait_for_selector(f"#{CASE} .samples[data-drawn=whole]")
        dark.locator(f"#{CASE} .samples figure").first.screenshot(path=folder / "page-case.png")
        browser.close()


if __name__ == "__main__":
    main()
