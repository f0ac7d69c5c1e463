"""Pages as a browser's parser reads them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "input"}
OWN_SCRIPTS = re.compile(r"<script[^>]*>.*?</script>", re.DOTALL)


class ReadPage(HTMLParser):
    """Collects elements, ids, attributes and texts; fails where tags are not balanced."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.names: set[tuple[str, str]] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.charts: list[str] = []
        self.labels: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = {name: value or "" for name, value in attrs}
        assert len(given) == len(attrs)
        self.names |= {(tag, name) for name in given}
        for name, found in (("id", self.ids), ("href", self.links), ("data-chart", self.charts)):
            found += [given[name]] if name in given else []
        self.labels += [given["aria-label"]] if given.get("role") == "img" else []
        assert not [name for name in given if name.startswith("on")]
        assert "src" not in given
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] not in (["style"], ["script"]):
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:80]}")

    @property
    def text(self) -> str:
        """All texts, white space joined."""
        return " ".join(" ".join(self.texts).split())
