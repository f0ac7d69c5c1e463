"""The page of a gate: its verdicts, and its rounds over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from bt_bench.analysis import Judged, Judgement, Ledger
from bt_bench.base import ABSENT, Bullets, Cell, Section, Table, format_bytes, format_number
from bt_bench.base.errors import counted, listed
from bt_bench.report.formats.phrases import TIMES
from bt_bench.report.page.compared_page import judged_page
from bt_bench.report.page.parts import Line, LineChart, Page
from bt_bench.report.page.speed_ups import metric_heading
from bt_bench.report.run.facts import describe_environment
from bt_bench.results import Environment, FloatArray, GateArm, Recording, SeriesKey, command_text

_HEAD, _CONTROL = 1, 0  # colours: the base, and so its second copy, has the first one of a page
_MOST_POINTS = 200
_BESIDE = "against the mean of base and control"


def gate_page(judged: Judged, recording: Recording | None = None) -> Page:
    """Build the page of a gate.

    Args:
        judged: its verdicts.
        recording: its rounds; `None` if nothing was timed.
    """
    if recording is None:
        return judged_page(judged)
    tool = recording.tool
    details = (
        Section("Where it was measured", (Bullets((*_where(recording),)),)),
        Section(
            "Repeat it",
            (
                f"Recorded {recording.created} by {tool.name} {tool.version}:",
                Bullets((command_text(tool.command),)),
            ),
        ),
    )
    parts = [(part, _ledger(part)) for part in recording.parts or [recording]]

    def charts(key: str) -> Iterator[LineChart]:
        for part, ledger in parts:  # of which one has the case
            yield from _charts(part, ledger, key, _by_subject(judged))

    return judged_page(judged, details, blocks_of=charts)


def _ledger(recording: Recording) -> Ledger:
    ledger = Ledger(recording.table())
    ledger.add(recording.gate_rounds())
    return ledger


def _where(recording: Recording) -> Iterator[str]:
    """Yield the rounds of each device if there are several, common facts, and the other ones.

    Of shards, each on its own, what they have in common once.
    """
    if recording.parts:
        yield from dict.fromkeys(text for part in recording.parts for text in _where(part))
        return
    environments = [recording.environment, *recording.others]
    texts = [[*describe_environment(each), *_gpu_texts(each)] for each in environments]
    names = [each.gpu_label or f"device {at + 1}" for at, each in enumerate(environments)]
    rounds = Counter(taken.device for taken in recording.rounds)
    if len(names) > 1:
        took = [f"{counted(rounds[at], 'round')} on {name}" for at, name in enumerate(names)]
        yield f"{listed(took)}."
    yield from (text for text in texts[0] if all(text in of for of in texts))
    for name, own in zip(names, texts, strict=True):
        yield from (f"{name}: {text}" for text in own if any(text not in of for of in texts))


def _gpu_texts(environment: Environment) -> Iterator[str]:
    """Yield sentences on the part and the state of a GPU, in which two of one model may differ."""
    for gpu in environment.gpus[:1] if environment.device == "cuda" else ():
        yield f"{gpu.multiprocessors} multiprocessors, {format_bytes(gpu.memory_bytes)} of memory."
        held = [reason for reason in gpu.throttle_reasons or () if reason != "gpu_idle"]
        if held:
            yield f"Its clocks were held back at the start: {listed(held)}."


def _by_subject(judged: Judged) -> dict[tuple[str, str, str], Judgement]:
    return {
        (each.key, each.other.partition("@")[0], each.metric): each for each in judged.judgements
    }


def _charts(
    recording: Recording,
    ledger: Ledger,
    key: str,
    judgements: Mapping[tuple[str, str, str], Judgement],
) -> Iterator[LineChart]:
    """Yield a chart of each figure of a case that has a value in two rounds or more."""
    apart = recording.measured_apart()
    for subject in ledger.subjects:
        if f"{subject.operation}/{subject.case}" != key:
            continue
        head, control = ledger.ratios(subject, apart=subject.variant in apart)
        if np.isfinite(head).sum() > 1:
            judgement = judgements.get((key, subject.variant, subject.metric))
            yield _chart(recording, ledger, subject, (head, control), judgement)


def _chart(
    recording: Recording,
    ledger: Ledger,
    subject: SeriesKey,
    ratios: tuple[FloatArray, FloatArray],
    judgement: Judgement | None,
) -> LineChart:
    head, control = ratios
    rounds = range(0, len(head), -(-len(head) // _MOST_POINTS))
    lines = [
        Line(
            arm,
            tuple((float(i + 1), float(of[i])) for i in rounds if math.isfinite(of[i])),
            tuple(f"{name}, round {i + 1}: {of[i]:.4f}" for i in rounds if math.isfinite(of[i])),
        )
        for name, arm, of in (("control", _CONTROL, control), ("head", _HEAD, head))
    ]
    evidence = judgement.evidence if judgement else None
    margin = evidence.margin.share if evidence else None
    levels = (1.0,) if margin is None else (1 / (1 + margin), 1.0, 1 + margin)
    judging = recording.judging
    looks = [look for look in (judging.looks if judging else ()) if 1 < look < len(head)]
    beside = "against the base" if subject.variant in recording.measured_apart() else _BESIDE
    named = metric_heading(subject.metric) if subject.metric in TIMES else subject.metric
    title = f"{named} of {subject.variant} over the rounds"
    notes = [
        f"the head {beside}, and the control against the base",
        *([] if margin is None else ["dashed: no change, and the margin"]),
        *([f"upright: the look after {', '.join(map(str, looks))} rounds"] if looks else []),
        *([f"one of every {rounds.step} rounds"] if rounds.step > 1 else []),
        *([f"{lacking} without a value"] if (lacking := int(np.isnan(head).sum())) else []),
    ]
    return LineChart(
        name=f"rounds/{subject.operation}/{subject.case}/{subject.variant}/{subject.metric}",
        title=f"{title} ({'; '.join(notes)})",
        alternative=f"{title}: {_range('head', head)}; {_range('control', control)}.",
        lines=lines,
        across="round",
        up="ratio of times",
        levels=levels,
        marks=looks,
        data=_data(ledger, subject, ratios, rounds),
        arms=("control", "head"),
    )


def _range(name: str, ratios: FloatArray) -> str:
    there = ratios[np.isfinite(ratios)]
    if not there.size:
        return f"{name} without a value"
    return f"{name} from {there.min():.3f} to {there.max():.3f}, median {np.median(there):.3f}"


def _data(
    ledger: Ledger, subject: SeriesKey, ratios: tuple[FloatArray, FloatArray], rounds: range
) -> Table:
    row = ledger.subjects.index(subject)
    values = {arm: of[row] for arm, of in ledger.values().items()}
    arms = (GateArm.BASE, GateArm.CONTROL, GateArm.HEAD)
    rows = tuple(
        (
            Cell(str(index + 1)),
            *(Cell(_number(values[arm][index])) for arm in arms),
            *(Cell(_ratio(of[index])) for of in ratios),
        )
        for index in rounds
    )
    columns = ("Base", "Control", "Head", "Head, ratio", "Control, ratio")
    return Table(("Round", *columns), rows, 1)


def _number(value: float) -> str:
    return format_number(value) if math.isfinite(value) else ABSENT


def _ratio(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else ABSENT
