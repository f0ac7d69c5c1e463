"""The fragment: well-formed, without scripts, readable alone."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from support import judgements

from bt_bench.report.formats.html_format import render_html_fragment

TAGS = {"details", "summary"}
TAGS |= {
    "section",
    "h2",
    "h3",
    "p",
    "ul",
    "li",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
}
ATTRIBUTES = {("class", "bt-bench"), ("class", "number"), ("scope", "col"), ("border", "1")}


class Reader(HTMLParser):
    """Collects tags, attributes and texts, and fails where tags are not nested."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self.open = set(), set(), [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= set(attrs)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        raise AssertionError(data)


@pytest.mark.parametrize("name", ["rich", "one_side", "hostile", "judged"])
def test_nothing_but_the_tags_that_are_meant(name):
    reader = Reader(render_html_fragment(getattr(judgements, name)()))
    assert reader.tags <= TAGS
    assert reader.attributes <= ATTRIBUTES


def test_names_are_shown_as_they_are():
    reader = Reader(render_html_fragment(judgements.hostile()))
    texts = [text for text in reader.texts if text.strip()]
    assert texts[0] == "<b>|x|*_`\"&'</td>]]> ::error::pwned ##[error]pwned =1+1 [31m"


def test_it_is_one_section():
    text = render_html_fragment(judgements.rich())
    assert text.startswith('<section class="bt-bench">\n<h2>')
    assert text.endswith("</section>\n")
    assert text.count("<section") == 1
