"""The kinds of JSON documents of bt-bench, for naming one that is given in the wrong place.

A kind is recognised by keys that only it has: not every document names its kind, and files of
earlier versions never will.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class DocumentKind:
    """A kind of document.

    Args:
        name: its name in messages.
        marks: keys of its outermost object that no other kind has together.
        use: a clause on the command that reads it, or on the file to give in its place.
    """

    name: str
    marks: frozenset[str]
    use: str


def _printed_by(command: str) -> str:
    return f"`{command}` printed it, and no command reads it"


RESULT = DocumentKind(
    "result",
    frozenset({"run_id", "variant", "plan"}),
    "`bt-bench compare` and `bt-bench gate --against FILE` read it",
)
RECORDING = DocumentKind(
    "recording",
    frozenset({"arms", "subjects", "rounds"}),
    "`bt-bench selfcheck --recording FILE` and `bt-bench report FILE` read it",
)
CENSUS = DocumentKind(
    "static census",
    frozenset({"toolchain", "variants", "cases"}),
    "`bt-bench gate --static --against FILE` and `bt-bench report FILE` read it",
)
COUNTERS = DocumentKind(
    "file of counters",
    frozenset({"tool", "calls", "l2", "variants"}),
    "`bt-bench show` and `bt-bench profile --tool ncu --against FILE` read it",
)
TIMELINE = DocumentKind(
    "timeline",
    frozenset({"source", "empty", "variants"}),
    "`bt-bench show` and `bt-bench profile --against FILE` read it",
)
_OTHERS = (
    DocumentKind(
        "report of verdicts",
        frozenset({"judgements", "overall"}),
        "no command reads it, so give the results that it compares",
    ),
    DocumentKind(
        "report of a run",
        frozenset({"run_id", "baseline", "judgements"}),
        "no command reads it, so give the run folder that it is of",
    ),
    DocumentKind(
        "draft of a pull request",
        frozenset({"machine_made", "blanks"}),
        "no command reads it, so give the runs that it is of",
    ),
    DocumentKind(
        "description of an archive",
        frozenset({"run_ids", "environments"}),
        "no command reads it, so give the run folder beside it",
    ),
    DocumentKind(
        "calibration",
        frozenset({"environment", "calibration", "verdicts"}),
        _printed_by("bt-bench calibrate"),
    ),
    DocumentKind(
        "report of checks", frozenset({"checks", "explored"}), _printed_by("bt-bench check")
    ),
    DocumentKind(
        "report of a selfcheck",
        frozenset({"gates", "seed", "recordings"}),
        _printed_by("bt-bench selfcheck"),
    ),
    DocumentKind(
        "report of launch costs",
        frozenset({"routes", "launches_per_sample"}),
        _printed_by("bt-bench overhead"),
    ),
    DocumentKind(
        "summary of a sweep",
        frozenset({"folder", "comparison", "results"}),
        "no command reads it, so give the folder or the results that it names",
    ),
)
KINDS = (RESULT, RECORDING, CENSUS, COUNTERS, TIMELINE, *_OTHERS)


def kind_of_document(data: object) -> DocumentKind | None:
    """Return the kind of a JSON document; `None` if it is not one of bt-bench.

    Args:
        data: the document.
    """
    if not isinstance(data, Mapping):
        return None
    return next((kind for kind in KINDS if kind.marks <= data.keys()), None)
