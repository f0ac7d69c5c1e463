"""A comparison for GitHub Actions: annotations on stdout, and a summary of the step.

Source of both: "Workflow commands for GitHub Actions" in GitHub's documentation, and how its runner
reads them (`ActionCommand.cs` of actions/runner).
"""

from __future__ import annotations

from bt_bench.analysis import Judged, Judgement, Verdict, tally_of
from bt_bench.base import inert
from bt_bench.report.formats.arrange import worst_first
from bt_bench.report.formats.judged_document import missed_lines
from bt_bench.report.formats.md_format import cut_md
from bt_bench.report.formats.texts import clean, headline, verdict_text

MAX_ANNOTATIONS = 10
"""GitHub shows this many errors and warnings of a step, and silently drops the rest."""

SUMMARY_BYTES = 1 << 20
"""GitHub refuses the summary of a step that is larger."""

_LEVELS = {
    Verdict.SLOWER: "error",
    Verdict.MISSING: "error",
    Verdict.INVALID: "error",
    Verdict.INCONCLUSIVE: "warning",
}


def render_github(judged: Judged) -> str:
    """Return lines for stdout: at most ten annotations, the worst first, and the counts.

    An advisory verdict, or one on an exploratory metric, becomes a warning, not an error. Warnings
    about slowdowns too small for this gate to detect come first, those about the comparison itself
    last; none of these is ever dropped.
    """
    missed = [command("warning", "bt-bench", clean(line)) for line in missed_lines(judged)]
    noted = [each for each in worst_first(judged).judgements if each.verdict in _LEVELS]
    places = MAX_ANNOTATIONS - bool(judged.warnings) - len(missed)
    shown = noted if len(noted) <= places else noted[: places - 1]
    lines = [*missed, *map(_annotation, shown)]
    if len(shown) < len(noted):
        more = noted[len(shown) :]
        level = "error" if any(_level(each) == "error" for each in more) else "warning"
        message = f"{len(more)} more; the summary of the step has them all"
        lines.append(command(level, "bt-bench", message))
    if judged.warnings:
        lines.append(command("warning", "bt-bench", "; ".join(map(clean, judged.warnings))))
    lines.append(inert(clean(f"bt-bench: {judged.title}: {tally_of(judged)}")))
    return "\n".join(lines) + "\n"


def step_summary(judged: Judged, taken: int = 0, limit_bytes: int = SUMMARY_BYTES) -> str:
    """Return Markdown for `$GITHUB_STEP_SUMMARY`, the worst first, cut if it would be too large.

    GitHub drops all of a summary that is too large, also the part of other commands.

    Args:
        judged: the comparison.
        taken: size in bytes of the summary so far.
        limit_bytes: its maximum size in UTF-8.
    """
    limit_bytes = max(0, limit_bytes - taken)
    text = cut_md(judged, limit_bytes, lambda text: len(text.encode()))
    # Too long even without verdicts: hundreds of warnings, as only a defect would make.
    return text.encode()[:limit_bytes].decode(errors="ignore")


def command(name: str, title: str, message: str) -> str:
    """Return a workflow command, escaped: title and message cannot end it or start another."""
    return f"::{name} title={_property(title)}::{_data(message)}"


def _annotation(judgement: Judgement) -> str:
    title = f"{verdict_text(judgement)} {judgement.key} {judgement.metric}"
    return command(
        _level(judgement), clean(title), f"{headline(judgement)}: {clean(judgement.detail)}"
    )


def _level(judgement: Judgement) -> str:
    only_warns = judgement.advisory or not judgement.decides
    return "warning" if only_warns else _LEVELS[judgement.verdict]


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
