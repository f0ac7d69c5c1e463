"""A comparison as JUnit XML, which GitLab, Jenkins, Buildkite and others show as tests.

There is a suite per operation, and a test per judgement. A slower one is a failure. A missing or
invalid one is an error, since a test that did not run must not look green. An inconclusive one is
skipped, as is any verdict on an exploratory metric, which decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from bt_bench.analysis import Judged, Judgement, Verdict
from bt_bench.report.folding import folded
from bt_bench.report.formats.explanation import explain
from bt_bench.report.formats.judged_document import summary_lines
from bt_bench.report.formats.texts import clean, headline, side_text, verdict_text

OUTCOMES = {
    Verdict.SLOWER: "failure",
    Verdict.MISSING: "error",
    Verdict.INVALID: "error",
    Verdict.INCONCLUSIVE: "skipped",
}
"""The element for a verdict; a test without one has passed."""

_LINE_WIDTH = 80
_COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def render_junit(judged: Judged) -> str:
    """Return the text of an `.xml` file, in UTF-8."""
    root = _counted("testsuites", clean(judged.title), judged.judgements)
    present = dict.fromkeys(each.operation for each in judged.judgements)
    for operation in sorted(present, key=lambda each: each.rank):
        members = [each for each in judged.judgements if each.operation == operation]
        if members:
            suite = _counted("testsuite", operation, members)
            suite.extend(map(_testcase, members))
            root.append(suite)
    if not len(root):  # a comparison of nothing must not go unnoticed
        root.append(_counted("testsuite", "bt-bench", ()))
    # After the tests, where the most common schema has it.
    summary = ElementTree.SubElement(root[0], "system-out")
    summary.text = "\n".join(map(clean, (*summary_lines(judged), *judged.facts)))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _counted(tag: str, name: str, judgements: Sequence[Judgement]) -> ElementTree.Element:
    outcomes = [_outcome(each) for each in judgements]
    counts = {name: str(outcomes.count(element)) for name, element in _COUNTED.items()}
    return ElementTree.Element(
        tag, {"name": name, "tests": str(len(outcomes)), **counts, "time": "0"}
    )


def _outcome(judgement: Judgement) -> str | None:
    """Return the element for a judgement; `None` if its test passes."""
    found = OUTCOMES.get(judgement.verdict)
    return found if found is None or judgement.decides else "skipped"


def _testcase(judgement: Judgement) -> ElementTree.Element:
    # GitLab identifies tests by class name and name, so these have all that distinguishes them.
    # No text here has control characters, which no escape makes legal in XML: `clean` leaves none.
    sides = side_text(judgement.base, judgement.other)
    advisory = " (advisory)" if judgement.advisory else ""
    case = ElementTree.Element(
        "testcase",
        {
            "classname": f"bt-bench.{judgement.operation}",
            "name": clean(f"{judgement.case} {judgement.metric}, {sides}{advisory}"),
            "time": "0",
        },
    )
    outcome = _outcome(judgement)
    if outcome:
        message = f"{verdict_text(judgement)}: {headline(judgement)}: {clean(judgement.detail)}"
        attributes = {"message": message, "type": f"{judgement.verdict}.{judgement.cause}"}
        # Some tools show the message, some the text.
        ElementTree.SubElement(case, outcome, attributes).text = message
        title, *texts = explain(judgement)
        lines = folded(title, _LINE_WIDTH, indent="  ")
        for text in texts:
            lines += folded(text, _LINE_WIDTH, first="  ", indent="    ")
        ElementTree.SubElement(case, "system-out").text = "\n".join(lines)
    return case
