"""The report of one run: what it was measured on, tables per operation, failures, advice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bt_bench.comparability import device_name
from bt_bench.compare import FailedCase
from bt_bench.errors import UsageError
from bt_bench.model import OPERATION_TITLES, Environment, Status, VariantResult
from bt_bench.operation import Operation
from bt_bench.report.document import Block, Bullets, Document, Section
from bt_bench.report.tables import Arms, arrange, distribution_table, event_table, time_table

_FIRST_OPERATIONS = (Operation.GATHER_SLOTS, Operation.STEP)
_LONGEST_MESSAGE = 600

_NO_GPU = (
    "correctness and launch counts are real (Triton's interpreter); staging is timed on "
    "pageable memory; device times do not exist here and are absent."
)


def run_document(
    results: Sequence[VariantResult],
    planned_cases: int | None = None,
    *,
    with_advice: bool = True,
) -> Document:
    """The report of a run.

    Args:
        results: of the run's variants.
        planned_cases: cases that a variant has when the sweep is done, to say how far it is.
        with_advice: end with how to read the figures.
    """
    if not results:
        raise UsageError("expected at least one result to report, got none")
    arms = arrange(results)
    failures = tuple(_failures(arms))
    sections = [
        _operation_section(arms, operation)
        for operation in order_operations(Operation)
        if arms.cases_of(operation)
    ]
    if failures:
        sections.append(Section("Failures", (failure_bullets(failures),)))
    if with_advice:
        sections.append(_advice(arms))
    partial = not all(result.complete for result in results)
    return Document(
        title=_title(results, partial),
        lead=(
            *_measured_on(results),
            *([_progress(arms, planned_cases)] if partial else []),
            *_run_facts(arms, len(failures)),
        ),
        sections=tuple(sections),
    )


def _title(results: Sequence[VariantResult], partial: bool) -> str:
    """The first line; it alone must not let a reader take a run for more than it is."""
    title = f"Block-table comparison: {results[0].config}"
    if all(result.environment.device == "cpu" for result in results):
        title += " (no GPU: device times are absent)"
    return f"{title} (PARTIAL)" if partial else title


def order_operations(operations: Iterable[Operation]) -> list[Operation]:
    """Gather + slots first, as the origin had it, then the whole step, then the rest."""
    present = set(operations)
    ordered = dict.fromkeys([*_FIRST_OPERATIONS, *Operation])
    return [operation for operation in ordered if operation in present]


def failure_bullets(failures: Iterable[FailedCase]) -> Bullets:
    """A line per failure: who, what, and why. Long messages are cut; the files have them whole."""
    return Bullets(tuple(_describe_failure(failure) for failure in failures))


def _describe_failure(failure: FailedCase) -> str:
    text = f"{failure.label}, {failure.operation}/{failure.case}: {failure.status}"
    if failure.reason is None:
        return text
    message = failure.reason.message
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "…"
    return f"{text}, {failure.reason.code}: {message}"


def _failures(arms: Arms) -> Iterator[FailedCase]:
    for arm in arms.all:
        for case in arm.result.cases:
            if case.status is not Status.OK:
                yield FailedCase(case.operation, case.case, arm.name, case.status, case.reason)


def _operation_section(arms: Arms, operation: Operation) -> Section:
    blocks: list[Block] = []
    if all(arm.result.environment.device == "cpu" for arm in arms.all):
        blocks.append("Event, host, device and step times need a GPU.")
    elif operation is not Operation.STAGE and arms.others:
        blocks += [
            "Event times, medians (the cost of launching from Python is in them):",
            event_table(arms, operation),
        ]
    windows = any(
        case.workload.num_steps > 1
        for arm in arms.all
        for case in arm.cases.values()
        if case.operation is operation
    )
    caption = "Host, staging, device and step times, medians, and launches per step"
    if windows:
        caption += "; for a window of several steps, median / p99 over the steps"
    blocks += [f"{caption}:", time_table(arms, operation)]
    distribution = distribution_table(arms, operation)
    if distribution is not None:
        blocks += ["Distribution over the steps of a window, of each step's median:", distribution]
    return Section(OPERATION_TITLES[operation], tuple(blocks))


def _measured_on(results: Sequence[VariantResult]) -> list[str]:
    """A text per environment; one run has one, unless files of several were put together."""
    variants: dict[tuple[str, ...], list[str]] = {}
    for result in results:
        texts = tuple(_describe_environment(result.environment))
        variants.setdefault(texts, []).append(result.variant.name)
    if len(variants) == 1:
        return list(next(iter(variants)))
    return [f"{', '.join(names)}: {' '.join(texts)}" for texts, names in variants.items()]


def _describe_environment(environment: Environment) -> Iterator[str]:
    name = device_name(environment) or "an unknown device"
    software = f"torch {environment.torch or '?'}, Triton {environment.triton or '?'}"
    if environment.device == "cuda":
        cuda = f"CUDA {environment.cuda or '?'}, driver {environment.driver or '?'}"
        yield f"Measured on {name}, {software}, {cuda}."
        return
    yield f"{'No GPU was used' if environment.gpus else 'No GPU'}: {_NO_GPU}"
    yield f"Measured on {name} ({environment.cpu_count or '?'} CPUs), {software}."


def _progress(arms: Arms, planned_cases: int | None) -> str:
    done = sum(all(case_id in arm.cases for arm in arms.all) for case_id in arms.case_ids)
    planned = "" if planned_cases is None else f" of {planned_cases}"
    return (
        f"PARTIAL: the run was interrupted, {done}{planned} cases are done for every variant. "
        "Continue it with --resume."
    )


def _run_facts(arms: Arms, num_failures: int) -> Iterator[str]:
    result = arms.baseline.result
    plan, environment = result.plan, result.environment
    commit = f", commit {environment.commit[:12]}" if environment.commit else ""
    dirty = " with uncommitted changes" if environment.commit and environment.dirty else ""
    yield (
        f"Run {result.run_id} of {result.created} by bt-bench {result.tool.version}{commit}{dirty};"
        f" {plan.rounds} rounds after {plan.warmup_rounds} of warm-up."
    )
    if arms.others:
        others = ", ".join(arm.name for arm in arms.others)
        yield f"Savings are those of {others} against {arms.baseline.name}."
    else:
        yield f"Only {arms.baseline.name} was measured, so there are no savings to show."
    if num_failures:
        yield f"Not every case is ok: {num_failures} listed under Failures, at the end."


def _advice(arms: Arms) -> Section:
    files = ", ".join(f"{arm.result.variant.name}.json" for arm in arms.all)
    return Section(
        "How to read this",
        (
            Bullets(
                (
                    "Event times are those of a CUDA event pair around each call on an idle GPU, "
                    "the origin's method: they include the cost of launching from Python.",
                    "Savings of event, host and step times do not transfer to a busy GPU, which "
                    "hides launches, or to the replay of a CUDA graph, which has none of them.",
                    "Times are medians over rounds; of a window with several steps, the median "
                    "over its steps' medians. An absent value is – and never 0.",
                    "Savings are medians of the differences round by round, in which drift of the "
                    "machine cancels; the difference of the two medians beside them need not be "
                    "the same. A variant that launches what the baseline launches shows how small "
                    "a saving can be told from none.",
                    f"All raw samples are in {files} beside this file; bt-bench schema describes "
                    "them.",
                )
            ),
        ),
    )
