"""The report of a calibration: costs of the harness, and methods against known lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from bt_bench.analysis import (
    DEVICE_METHODS,
    METHOD_TITLES,
    MethodLine,
    Promise,
    apart_percent,
    interquartile_range,
    judge_promises,
    median,
    method_lines,
    moved_by_delay_us,
    percentile,
)
from bt_bench.base import (
    ABSENT,
    Block,
    Cell,
    Document,
    Section,
    Table,
    format_bytes,
    format_number,
    format_percent,
)
from bt_bench.results import Calibration, Figure, Injection, L2Flush, Method, PlainCopies, Quantity

_TITLES = METHOD_TITLES | {Method.EVENTS: "events, busy device"}
_ALL_METHODS = (*DEVICE_METHODS, Method.EVENTS)

# Shown in a run's report: the floors and costs to compare its own figures with.
_KEY_FIGURES = (
    "empty_call",
    "timer_tick",
    "event_floor",
    "event_floor_busy",
    "synchronize",
    "triton_jit",
    "triton_compiled",
    "cuda_graph",
    "null_step",
    "null_graph_step",
)


def calibration_document(calibration: Calibration, lead: Sequence[str] = ()) -> Document:
    """Build the whole report of a calibration.

    Args:
        calibration: the measurements.
        lead: paragraphs to begin with, such as the machine it was taken on.
    """
    lines = method_lines(calibration)
    return Document(
        title="Calibration",
        lead=(*lead, f"Taken in {format_number(calibration.seconds, 3)} s; times in µs."),
        sections=tuple(
            Section(title, tuple(blocks))
            for title, blocks in (
                ("Promises", [_verdict_table(judge_promises(calibration))]),
                ("Cost of the harness", [_figure_table(calibration.figures)]),
                ("Kernels of known length", list(_line_blocks(lines))),
                ("Chains of empty kernels", list(_chain_blocks(calibration))),
                ("Injected delay", list(_injection_blocks(calibration.injection))),
                ("Cold L2", list(_flush_blocks(calibration.flush))),
                ("Plain copies", list(_copy_blocks(calibration.copies))),
            )
            if blocks
        ),
    )


def calibration_section(calibration: Calibration, *, profiles: bool = True) -> Section:
    """Build the section of a run's report on the costs and floors of its methods.

    Args:
        calibration: calibration of the run.
        profiles: whether the run's plan has anything profiled.
    """
    by_name = {figure.name: figure for figure in calibration.figures}
    figures = [by_name[name] for name in _KEY_FIGURES if name in by_name]
    lines = method_lines(calibration)
    blocks: list[Block] = [
        "Cost of the harness itself, measured in this run; medians in µs.",
        _figure_table(figures),
    ]
    if lines:
        blocks += [
            "Kernels of known length, as the methods report them: reported = gradient × set + "
            "intercept.",
            _gradient_table(lines.values()),
        ]
    blocks += _flush_blocks(calibration.flush)
    verdicts = judge_promises(calibration, profiles=profiles)
    missed = [verdict for verdict in verdicts if not verdict.kept]
    blocks += [f"Failed self-check: {verdict.finding}." for verdict in missed]
    return Section("Calibration", tuple(blocks))


def _verdict_table(verdicts: Sequence[Promise]) -> Table:
    rows = tuple(
        (Cell(verdict.promise), Cell("kept" if verdict.kept else "MISSED"), Cell(verdict.found))
        for verdict in verdicts
    )
    return Table(("Promise", "Verdict", "Found"), rows, num_text_columns=3)


def _figure_table(figures: Iterable[Figure]) -> Table:
    rows = tuple(
        (
            Cell(figure.name),
            Cell(figure.what),
            Cell(format_number(median(figure.samples))),
            Cell(format_number(interquartile_range(figure.samples))),
            Cell(format_number(percentile(figure.samples, 99))),
        )
        for figure in figures
        if figure.samples
    )
    return Table(("Figure", "What", "Median", "IQR", "p99"), rows, num_text_columns=2)


def _line_blocks(lines: dict[Method, MethodLine]) -> Iterator[Block]:
    if not lines:
        return
    lengths = sorted(set(chain.from_iterable(line.set_us for line in lines.values())))
    methods = [method for method in _ALL_METHODS if method in lines]
    titles = tuple(_TITLES[method] for method in methods)
    reported = [
        dict(zip(lines[method].set_us, lines[method].reported_us, strict=True))
        for method in methods
    ]
    yield "Medians reported for a kernel that runs for the set time:"
    yield Table(
        ("Set", *titles),
        tuple(
            (Cell(format_number(length)), *(_time_cell(of.get(length)) for of in reported))
            for length in lengths
        ),
        num_text_columns=0,
    )
    yield "The line through them: reported = gradient × set + intercept."
    yield _gradient_table(lines.values())
    apart = apart_percent([lines[method] for method in DEVICE_METHODS if method in lines])
    corrected = [lines[method].corrected_us for method in methods]
    yield "The same without the intercepts, and how far apart profiler and graph slope are then:"
    yield Table(
        ("Set", *titles, "Apart (%)"),
        tuple(
            (
                Cell(format_number(length)),
                *(_time_cell(of.get(length)) for of in corrected),
                Cell(format_percent(apart[length])) if length in apart else Cell(ABSENT),
            )
            for length in lengths
        ),
        num_text_columns=0,
    )


def _gradient_table(lines: Iterable[MethodLine]) -> Table:
    rows = tuple(
        (
            Cell(_TITLES[found.method]),
            Cell(f"{found.line.gradient:.4f}"),
            Cell(format_number(found.line.intercept)),
        )
        for found in lines
    )
    return Table(("Method", "Gradient", "Intercept (µs)"), rows, num_text_columns=1)


def _chain_blocks(calibration: Calibration) -> Iterator[Block]:
    if calibration.chains:
        rows = tuple(
            (Cell(str(found.launched)), Cell(str(found.counted))) for found in calibration.chains
        )
        yield Table(("Launched", "Counted"), rows, num_text_columns=0)


def _injection_blocks(injection: Injection | None) -> Iterator[Block]:
    if injection is None:
        return
    yield (
        f"A step of one kernel, without and with {format_number(injection.delay_us, 2)} µs of busy "
        "waiting on the host before the launch; medians:"
    )
    quantities = (Quantity.HOST_US, Quantity.STEP_US, Quantity.GPU_US)
    rows = tuple(
        (
            Cell(quantity.value),
            _median_cell(injection.without.get(quantity)),
            _median_cell(injection.with_delay.get(quantity)),
            _time_cell(moved_by_delay_us(injection, quantity)),
        )
        for quantity in quantities
    )
    yield Table(("Quantity", "Without", "With", "Difference"), rows, num_text_columns=1)


def _flush_blocks(flush: L2Flush | None) -> Iterator[Block]:
    if flush is None or not flush.hot or not flush.cold:
        return
    yield (
        f"Cold L2: a flush writes {format_bytes(flush.flushed_bytes)}; the L2 holds "
        f"{format_bytes(flush.l2_bytes)}. Reading {format_bytes(flush.read_bytes)} takes "
        f"{format_number(median(flush.hot))} µs from a hot L2 and "
        f"{format_number(median(flush.cold))} µs after the flush (medians)."
    )


def _copy_blocks(copies: PlainCopies | None) -> Iterator[Block]:
    if copies is None or not copies.moved_bytes:
        return
    yield (
        "destination.copy_(source) on an idle device, by the profiler: bytes read and written "
        "together, medians, and both together as a rate."
    )
    medians = [
        (size, median(samples))
        for size, samples in zip(copies.moved_bytes, copies.samples, strict=True)
        if samples
    ]
    rows = tuple(
        (
            Cell(format_bytes(size)),
            Cell(format_number(us)),
            Cell(format_number(size / us / 1e3) if us else ABSENT),
        )
        for size, us in medians
    )
    yield Table(("Moved", "Time (µs)", "GB/s"), rows, num_text_columns=0)


def _median_cell(samples: Sequence[float] | None) -> Cell:
    return _time_cell(median(samples) if samples else None)


def _time_cell(value_us: float | None) -> Cell:
    return Cell(ABSENT, "not measured") if value_us is None else Cell(format_number(value_us))
