"""Opens pages in Chromium as a reader would, and records what they should not do.

Nothing leaves the machine: a page gets its own file, and every other request is recorded and
refused.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # they are installed by `make test-browser` alone
    from playwright.sync_api import Browser, Page, Request, Route, WebSocketRoute

Scheme = Literal["light", "dark"]
WIDTHS = (390, 1024, 1600)
"""A phone, half a screen and a screen, in CSS pixels."""

A4 = 718
"""The width of a printed page within its margins of 10 mm, in CSS pixels."""

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE_MS = 300_000  # on a busy machine
_MOST_HEIGHT = 12_000  # pixels; Chromium draws no more than 16,384


class NoBrowserError(Exception):
    """There is no Chromium; its text says how to get one."""


def chromium(asked: str | None = None) -> str:
    """Return the path of Chromium.

    Args:
        asked: the program to use; empty or None for the first one of the usual names on the path.

    Raises:
        NoBrowserError: there is none.
    """
    for name in (asked,) if asked else _NAMES:
        if found := shutil.which(name):
            return found
    missing = (
        f"BT_BENCH_CHROMIUM names {asked}, which is no program"
        if asked
        else f"none of {', '.join(_NAMES)} is on the path"
    )
    raise NoBrowserError(
        f"tests of pages need Chromium, and {missing}: install Debian's package chromium "
        "(apt-get install --no-install-recommends chromium fonts-dejavu-core), or name a program "
        "in BT_BENCH_CHROMIUM"
    )


@dataclass
class Opened:
    """A page that is open, and what it did that it should not."""

    page: Page
    path: Path
    errors: list[str] = field(default_factory=list)
    """Errors and warnings of the console, and exceptions that nothing caught."""
    requests: list[str] = field(default_factory=list)
    """Addresses that were asked for beside the file itself."""

    def look(self, script: str, argument: object = None) -> Any:
        """Return what a JavaScript function of the page's document returns.

        It works on pages without scripts, too.
        """
        return self.page.evaluate(script, argument)

    def picture(self, path: Path) -> None:
        """Write a PNG of the page from its top, of 12,000 pixels at most."""
        width, height = self.look(
            "() => [innerWidth, Math.max(innerHeight, document.documentElement.scrollHeight)]"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, _MOST_HEIGHT)}
        self.page.screenshot(path=path, full_page=True, clip=clip, animations="disabled")


class Pages:
    """Opens files in one Chromium, each in a profile of its own."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    @contextmanager
    def open(
        self,
        path: Path,
        *,
        width: int = 1024,
        scheme: Scheme = "light",
        media: Literal["screen", "print"] = "screen",
        scripts: bool = True,
    ) -> Iterator[Opened]:
        """Open a file.

        Args:
            path: the file.
            width: of the window, in CSS pixels; it is 900 high.
            scheme: the colours that the reader prefers.
            media: `print` lays the page out as for paper.
            scripts: False to open it as a reader does who has turned JavaScript off.
        """
        context = self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=scripts,
            reduced_motion="reduce",
        )
        try:
            context.set_default_timeout(_PATIENCE_MS)
            page = context.new_page()
            page.emulate_media(media=media)
            opened = Opened(page, path)
            _record(opened)
            page.goto(path.as_uri())
            yield opened
        finally:
            context.close()


def _record(opened: Opened) -> None:
    """Record errors and requests of a page from now on, and refuse the requests."""
    own = opened.path.as_uri()

    def asked(request: Request) -> None:
        address = request.url.partition("#")[0]
        if address != own and not address.startswith(("data:", "blob:")):
            opened.requests.append(address)

    def answer(route: Route) -> None:
        if route.request.url.partition("#")[0] == own:
            route.continue_()
        else:
            route.abort()

    def refuse(socket: WebSocketRoute) -> None:
        opened.requests.append(socket.url)
        socket.close()

    page = opened.page
    page.on(
        "console",
        lambda said: opened.errors.append(said.text) if said.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: opened.errors.append(f"uncaught: {error.message}"))
    page.on("crash", lambda _: opened.errors.append("the page crashed"))
    page.context.on("request", asked)
    page.context.route("**/*", answer)
    page.context.route_web_socket("**/*", refuse)


@contextmanager
def browsing() -> Iterator[Pages]:
    """Start Chromium, without a network, and end it.

    Raises:
        NoBrowserError: there is none.
    """
    from playwright.sync_api import sync_playwright

    program = chromium(os.environ.get("TEST_CHROMIUM"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            # Names are not looked up either, as preconnecting to a host would.
            args=["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking"],
        )
        try:
            yield Pages(browser)
        finally:
            browser.close()


if __name__ == "__main__":  # before `make test-browser` installs anything
    try:
        chromium(os.environ.get("BT_BENCH_CHROMIUM"))
    except NoBrowserError as error:
        sys.exit(str(error))
