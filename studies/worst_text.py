"""The page of `worst.py`, from its figures. Missing values are shown as missing, never as 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from worst_aims import Row, Worst
from worst_arms import DEVICE, HOST_STAGE, TITLES
from worst_figures import COPY_BOUND_SHARE, FEWEST_FOR_TAIL, QUANTITIES, CaseFigures, Ratio

from bt_bench.analysis import median
from bt_bench.base import format_number
from bt_bench.report import ABSENT, Bullets, Cell, Document, Section, Table

SHOWN = 20
"""Cases of each list; all are in the JSON."""

FEW_ROWS = 8
"""Most rows of a few writes, as the configs use the term."""

COSTS = (HOST_STAGE, DEVICE)
KINDS = (
    "nothing is written",
    f"up to {FEW_ROWS} rows are written",
    f"more than {FEW_ROWS} rows are written",
    "rows of hundreds of ids are written",
    "stock models and mixes of production",
    "windows of two traces",
)

NAMED = 3
"""Case names shown in a line about cases that could not be compared."""


def document(worst: Worst) -> Document:
    """Return the whole page."""
    opponent = title_of(worst.opponent)
    sections = [_aims(worst.rows), _kinds(worst)]
    for what in QUANTITIES:
        against = {each.name: each.against[what] for each in worst.cases.values()}
        beside = {each.name: each.beside[what] for each in worst.cases.values()}
        sections.append(_ratios(worst, what, f"against {opponent}", against))
        sections.append(_ratios(worst, what, "against the best other shipped variant", beside))
    sections += [_copies(worst), _tails(worst), _not_compared(worst)]
    if worst.problems:
        sections.insert(0, Section("What went wrong", (Bullets(tuple(worst.problems)),)))
    sections.append(Section("What was measured", (Bullets(tuple(f"{f}." for f in worst.facts)),)))
    reached = "all aims are reached" if worst.succeeded() else "NOT all aims are reached"
    lead = (
        f"Ratios say how many times as long the other takes as {worst.variant}: they are those of "
        "bt-bench compare over rounds of one run in which both took part, with the intervals that "
        "its verdicts rest on. Below 1, the other is faster. Times are medians in µs. "
        f"{ABSENT}: not measured, or not credible. All cases are in worst.json, and drawn in "
        "worst.svg.",
    )
    return Document(f"The worst of {len(worst.cases)} cases: {reached}", lead, tuple(sections))


def title_of(variant: str) -> str:
    """Return a variant's name as shown on pages."""
    return TITLES.get(variant, variant)


def _aims(rows: Sequence[Row]) -> Section:
    table = [
        [
            _spelled(row.title),
            *_worst(row),
            *_median(row),
            ABSENT if row.best is None else _number(row.best[1]),
            str(len(row.values)),
            str(row.missing),
        ]
        for row in rows
    ]
    titles = ["", "worst case", "worst", "aim", "reached", "median", "aim", "reached"]
    titles += ["best", "cases", "not known"]
    return Section("The aims", (_table(titles, table, num_text_columns=2),))


def _worst(row: Row) -> list[str]:
    if row.worst is None:
        return [ABSENT, ABSENT, _aim_of_worst(row), _met(row.worst_met(), None, None)]
    name, value = row.worst
    met = _met(row.worst_met(), value, row.worst_aim)
    if row.slower:
        met += f", {len(row.slower)} slower: {', '.join(row.slower[:NAMED])}"
        met += f" and {len(row.slower) - NAMED} more" * (len(row.slower) > NAMED)
    return [name, _number(value), _aim_of_worst(row), met]


def _median(row: Row) -> list[str]:
    aim = row.median_aim
    if aim is None:
        return [_number(row.median), ABSENT, ABSENT]
    return [_number(row.median), _aim(aim, row), _met(row.median_met(), row.median, aim)]


def _aim_of_worst(row: Row) -> str:
    return "no case slower" if row.worst_aim is None else _aim(row.worst_aim, row)


def _aim(aim: float, row: Row) -> str:
    return f"{'≤' if row.lower_is_better else '≥'} {aim:g}"


def _met(met: bool | None, value: float | None, aim: float | None) -> str:
    """Return `yes`, `NO` or `not known`, with the distance of the value from the aim."""
    if met is None:
        return "not known"
    apart = "" if value is None or aim is None else f", {100 * abs(value / aim - 1):.0f} % "
    if not apart:
        return "yes" if met else "NO"
    return f"yes{apart}to spare" if met else f"NO{apart}short"


def _kinds(worst: Worst) -> Section:
    kinds: dict[str, list[CaseFigures]] = {}
    for each in worst.cases.values():
        kinds.setdefault(_kind_of(each), []).append(each)
    rows = [
        [kind, str(len(of)), *(cell for what in COSTS for cell in _ranges(worst, what, of))]
        for kind, of in sorted(kinds.items(), key=lambda item: KINDS.index(item[0]))
    ]
    titles = ["cases", "number"]
    titles += [title for what in COSTS for title in (what, f"times less: {what}")]
    return Section(
        "By kind of case",
        (
            f"From the least to the most of {worst.variant}, and how many times less than "
            f"{title_of(worst.opponent)}, with the median.",
            *_listed(_table(titles, rows, num_text_columns=1)),
        ),
    )


def _kind_of(each: CaseFigures) -> str:
    """Classify a case by its config or by its writes, since little else affects times as much."""
    config, _, case = each.name.partition("/")
    if config.startswith("azure_"):
        return "windows of two traces"
    if config == "production":
        return "stock models and mixes of production"
    written = each.sizes.rows_written
    if case.endswith("_long"):
        return "rows of hundreds of ids are written"
    if written == 0:
        return "nothing is written"
    few = written <= FEW_ROWS
    return f"{'up to' if few else 'more than'} {FEW_ROWS} rows are written"


def _ranges(worst: Worst, what: str, cases: Sequence[CaseFigures]) -> list[str]:
    times = [t for each in cases if (t := each.us[what].get(worst.variant)) is not None]
    ratios = [value for each in cases if (value := each.against[what].value) is not None]
    return [
        f"{min(times):.1f} to {max(times):.1f}" if times else ABSENT,
        f"{min(ratios):.1f} to {max(ratios):.1f}, median {median(ratios):.1f}"
        if ratios
        else ABSENT,
    ]


def _ratios(worst: Worst, what: str, title: str, ratios: Mapping[str, Ratio]) -> Section:
    known = [(worst.cases[name], ratio) for name, ratio in ratios.items()]
    found = sorted(
        ((each, ratio) for each, ratio in known if ratio.value is not None),
        key=lambda pair: pair[1].value or 0.0,
    )
    rows = [
        [
            each.name,
            title_of(ratio.other),
            *_sizes(each),
            _number(each.us[what].get(worst.variant)),
            _number(each.us[what].get(ratio.other)),
            _interval(ratio),
            ratio.verdict or ABSENT,
        ]
        for each, ratio in found[:SHOWN]
    ]
    titles = ["case", "other", *SIZES, worst.variant, "other", "ratio", "verdict"]
    listed = _listed(_table(titles, rows, num_text_columns=2))
    return Section(f"{what}, {title}: the worst {len(rows)} of {len(found)}", listed)


def _copies(worst: Worst) -> Section:
    found = sorted(
        (each for each in worst.cases.values() if each.copy_speed is not None),
        key=lambda each: (not each.is_copy_bound, each.copy_speed or 0.0),
    )
    rows = [
        [
            each.name,
            *_sizes(each),
            f"{max(each.sizes.moved_bytes):,}",
            _number(each.copy_us),
            _share(each.copy_share),
            _share(each.copy_speed),
        ]
        for each in found[:SHOWN]
    ]
    bound = sum(bool(each.is_copy_bound) for each in found)
    titles = ["case", *SIZES, "bytes", "copy", f"of {title_of(worst.opponent)}", "speed"]
    return Section(
        f"GPU, against a plain copy: {bound} of {len(found)} cases are bound by it",
        (
            f"A case is bound by its bytes if a plain copy of them takes {COPY_BOUND_SHARE:.0%} "
            f"or more of {title_of(worst.opponent)}'s device time; those come first. The speed is "
            f"the copy's time as a share of {worst.variant}'s.",
            *_listed(_table(titles, rows, num_text_columns=1)),
        ),
    )


def _tails(worst: Worst) -> Section:
    found = sorted(
        (each for each in worst.cases.values() if each.tail is not None),
        key=lambda each: -(each.tail.ratio if each.tail else 0.0),
    )
    rows = [
        [
            each.name,
            *_sizes(each),
            *(f"{value:.3f}" for value in (each.tail.ours, each.tail.theirs, each.tail.ratio)),
            str(each.tail.samples),
        ]
        for each in found[:SHOWN]
        if each.tail is not None
    ]
    titles = ["case", *SIZES, worst.variant, title_of(worst.opponent), "ratio", "samples"]
    return Section(
        f"{HOST_STAGE}, 99th percentile over median: the worst {len(rows)} of {len(found)}",
        (
            "By the same rounds of both. Each sample is taken by the median of its step over "
            f"rounds; of fewer than {FEWEST_FOR_TAIL} samples nothing is said.",
            *_listed(_table(titles, rows, num_text_columns=1)),
        ),
    )


def _not_compared(worst: Worst) -> Section:
    groups: dict[tuple[str, str], list[str]] = {}
    for what, why, name in _reasons(worst):
        groups.setdefault((what, why), []).append(name)
    rows = [
        [
            what,
            why,
            f"{', '.join(names[:NAMED])}{f' and {len(names) - NAMED} more' * (len(names) > NAMED)}",
            str(len(names)),
        ]
        for (what, why), names in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
    blocks = (_table(["what", "why", "cases", "number"], rows, num_text_columns=3),)
    return Section("What could not be compared", blocks if rows else ("All was compared.",))


def _reasons(worst: Worst) -> Iterator[tuple[str, str, str]]:
    """Yield each unknown quantity, the reason, and the case's name."""
    for each in worst.cases.values():
        for what in QUANTITIES:
            for title, ratio in (
                (title_of(worst.opponent), each.against[what]),
                ("best other", each.beside[what]),
            ):
                if ratio.why is not None:
                    yield f"{what}, {title}", ratio.why, each.name
        if each.why_no_tail is not None:
            yield "99th percentile", each.why_no_tail, each.name


SIZES = ("groups", "requests", "tokens", "rows written")


def _sizes(each: CaseFigures) -> list[str]:
    sizes = each.sizes
    return [f"{n:,}" for n in (sizes.groups, sizes.requests, sizes.tokens, sizes.rows_written)]


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return _number(ratio.value)
    return f"{_number(ratio.value)} ({_number(ratio.low)} to {_number(ratio.high)})"


def _spelled(title: str) -> str:
    for name, spelled in TITLES.items():
        title = title.replace(name, spelled)
    return title


def _number(value: float | None) -> str:
    return ABSENT if value is None else format_number(value)


def _share(value: float | None) -> str:
    return ABSENT if value is None else f"{100 * value:.0f} %"


def _listed(table: Table) -> tuple[str | Table, ...]:
    return (table,) if table.rows else ("Nothing was compared.",)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, num_text_columns: int) -> Table:
    cells = tuple(tuple(map(Cell, row)) for row in rows)
    return Table(tuple(titles), cells, num_text_columns)
