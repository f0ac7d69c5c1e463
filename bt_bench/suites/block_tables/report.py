"""The report of `bt-bench workload`: figures of a workload, before anything is timed."""

from __future__ import annotations

from collections.abc import Iterator

from bt_bench.base import (
    Bullets,
    Cell,
    Document,
    Section,
    Table,
    format_bytes,
    format_number,
    format_percent,
)
from bt_bench.base.errors import counted, listed
from bt_bench.suites.block_tables.workloads import (
    Description,
    Distribution,
    RecordedFigures,
    StepFigures,
    TraceFigures,
)

_COLUMNS = ("Per step", "min", "p50", "p90", "p99", "max", "mean")


def workload_document(name: str, description: Description) -> Document:
    """Build the document of a description, with a table per sequence of steps."""
    return Document(
        title=f"{name} ({description.kind})",
        lead=(Bullets(tuple(_facts(description))),),
        sections=tuple(_sections(description)),
    )


def _facts(description: Description) -> Iterator[str]:
    shown = ", ".join(_groups(description))
    count = len(description.block_sizes)
    yield f"{count} group{'s' * (count != 1)} (block size × row width): {shown}"
    if description.layout_source is not None:
        yield f"tables of {description.layout_source}"
    yield (
        f"limits: {description.max_num_reqs} requests, "
        f"{description.max_num_batched_tokens} tokens a step; "
        f"{format_bytes(description.bytes_per_variant)} of tables per variant"
    )
    yield (
        f"blocks: {description.block_allocations} handed out, "
        f"each {format_number(description.block_reuse)} times on average, "
        f"at most {description.peak_blocks_in_use} in use"
    )
    if description.features:
        yield f"features: {', '.join(description.features)}"
    trace = description.trace
    if trace is not None:
        yield from _trace_facts(trace)
        so_far = "" if trace.served_whole else ", up to the window's end"
        yield (
            f"serving: {description.requests_served} requests in "
            f"{format_number(trace.simulated_s)} s of simulated time{so_far}; "
            f"{trace.requests_truncated} truncated to max_model_len, "
            f"{trace.preemptions} preemptions, "
            f"{trace.pool_blocks} blocks in the pool"
        )
    if description.recorded is not None:
        yield from _recorded_facts(description.recorded)


def _trace_facts(trace: TraceFigures) -> Iterator[str]:
    rate = "" if trace.rate_per_s is None else f", {format_number(trace.rate_per_s)} a second"
    left_out = [
        f"{count:,} {why}"
        for count, why in (
            (trace.requests_failed, "of 0 tokens, as failed"),
            (trace.requests_in_other_parts, "in other parts"),
        )
        if count
    ]
    yield (
        f"trace: {trace.requests:,} requests in {format_number(trace.span_s)} s{rate}"
        + f"; left out: {listed(left_out)}" * bool(left_out)
    )
    if trace.requests_sharing_a_prefix is not None:
        share = format_percent(100 * trace.requests_sharing_a_prefix / trace.requests)
        hits = "no hits, since prefix_caching is false"
        if trace.prefix_hits is not None:
            hits = f"{trace.prefix_hits:,} hits with {trace.prefix_hit_tokens:,} cached tokens"
        yield f"prefixes: {share} % of requests begin as another one; {hits}"
    yield from (f"warning: {text}" for text in trace.warnings)


def _recorded_facts(recorded: RecordedFigures) -> Iterator[str]:
    left_out = [f"{counted(n, 'call')} of {name}" for name, n in recorded.left_out.items()]
    yield (
        f"recording: window {recorded.window_name!r} begins with step {recorded.window_start} of "
        f"{recorded.num_steps}" + f"; left out: {listed(left_out)}" * bool(left_out)
    )
    if recorded.note is not None:
        yield f"warning: {recorded.note}"


def _groups(description: Description) -> Iterator[str]:
    per_group = zip(
        description.block_sizes,
        description.widths,
        description.reaches,
        description.slot_mapping_enabled,
        strict=True,
    )
    for size, width, reach, has_slots in per_group:
        window = f" (reach {reach})" * (reach > 0)
        slots = " (no slots)" * (not has_slots)
        yield f"{size} tokens × {width} columns{window}{slots}"


def _sections(description: Description) -> Iterator[Section]:
    steps = description.steps
    trace = description.trace
    title = "All steps" if steps.num_steps > 1 else "The step"
    if trace is not None and not trace.served_whole:
        title = "Steps up to the window's end"
    yield _section(title, steps)
    if trace is not None:
        title = f"Window {trace.window_name!r}, from step {trace.window_start}"
        yield _section(title, trace.window)


def _section(title: str, figures: StepFigures) -> Section:
    rows = tuple(
        (Cell(name), *(Cell(_count(getattr(distribution, column))) for column in _COLUMNS[1:]))
        for name, distribution in _distributions(figures)
    )
    return Section(title, (_shares(figures), Table(_COLUMNS, rows, num_text_columns=1)))


def _shares(figures: StepFigures) -> str:
    parts = [
        counted(figures.num_steps, "step"),
        f"{format_percent(100 * figures.share_without_write)} % without a write",
        f"{format_percent(100 * figures.share_with_every_group_written)} % with a write in every "
        "group",
    ]
    if figures.share_with_prefill is not None:
        parts.append(f"{format_percent(100 * figures.share_with_prefill)} % with prefill")
    return "; ".join(parts) + "."


def _distributions(figures: StepFigures) -> Iterator[tuple[str, Distribution]]:
    yield "requests", figures.num_reqs
    yield "tokens", figures.num_tokens
    yield "rows written", figures.rows_written
    yield "block ids written", figures.block_ids_written
    for rows in figures.row_blocks:
        yield f"blocks in a row (block size {rows.block_size})", rows.blocks


def _count(value: float) -> str:
    return str(int(value)) if value == int(value) else format_number(value)
