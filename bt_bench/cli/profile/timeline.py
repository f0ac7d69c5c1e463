"""`bt-bench profile --tool timeline`, and `--tool trace`, which shows the same recording."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from bt_bench.base.errors import ExitCode
from bt_bench.cli.loading import new_folder
from bt_bench.cli.options import print_json, say_begin, worker_for
from bt_bench.cli.profile.one_step import one_operation, refuse_before_it_is_taken
from bt_bench.cli.profile.page import write_profile_page
from bt_bench.cli.profile.places import PAGE_NAME, PREFIX, naming_profile
from bt_bench.cli.profile.requests import ProfileRequest, print_end

if TYPE_CHECKING:
    from bt_bench.base.names import DeviceChoice
    from bt_bench.config import SweepSpec
    from bt_bench.report import Document
    from bt_bench.results import RunFolder, Timeline
    from bt_bench.variants import VariantEntry

TRACE_NAME = "trace.json"
PICTURE_NAME = "timeline.svg"


def timeline_profile(request: ProfileRequest) -> ExitCode:
    """Trace a step, write and print the profile, and print its changes since another one.

    Returns:
        `CHECK_FAILED` if a variant failed.

    Raises:
        UsageError: for more than one operation, for one that launches nothing, for a step that
            does not exist, without a GPU, and for a variant whose name cannot be a file's.
        NotComparableError: before this profile is taken if the other is of another step, and once
            this one is written if the other is of another GPU.
    """
    from bt_bench.results import read_timeline, result_name

    names = [entry.name for entry in request.entries]
    operation = one_operation(request.spec, request.tool, by_name=request.operations_by_name)
    # Before seconds are spent, since the file may not be a profile.
    before = None if request.against is None else read_timeline(request.against)
    for entry in request.entries:
        result_name(entry.name)  # refuses names that would fail only when files are written
    spec = request.spec.model_copy(update={"operations": [operation]})
    if before is not None and request.against is not None:
        refuse_before_it_is_taken(before, request.against, spec, request.step, names, {})
    timeline = trace_step(
        spec, request.entries, request.device, step=request.step, traceback=request.traceback
    )
    folder = new_folder(f"{PREFIX}{spec.name}", request.reports, request.out)
    files = write_profile(folder, timeline)
    if before is not None:
        # Imported only now: earlier it would delay the start of the worker.
        from bt_bench.analysis.profile import refuse_another_step

        with naming_profile(folder):
            refuse_another_step(before, timeline, (str(request.against), "this profile"))
    if request.as_json:
        _print_json(request, folder, timeline, before)
    else:
        from bt_bench.report import print_document

        print_document(_document(request, folder, timeline, before))
        print_end(folder, files, "a variant" if before is None else None)
    failed = any(variant.reason is not None for variant in timeline.variants)
    return ExitCode.CHECK_FAILED if failed else ExitCode.OK


def trace_step(
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    device: DeviceChoice | None,
    *,
    step: int | None = None,
    traceback: bool = False,
) -> Timeline:
    """Start a worker that checks the variants and traces a step; prints progress on stderr.

    Args:
        spec: one case and one operation.
        entries: the variants.
        device: the GPU.
        step: index of the step in its window, from 0; `None`: the last one.
        traceback: print tracebacks of errors in variants.

    Raises:
        UsageError: without a GPU, and for a step that does not exist.
        WorkerError: if the worker cannot do it.
    """
    say_begin(spec, entries)
    case, operation = spec.cases[0], spec.operations[0]
    with closing(worker_for(spec, entries, device, traceback=traceback)) as starting:
        starting.start()
        # These imports take half a second, while the worker takes several to start.
        from bt_bench.cli.progress import progress_on_stderr
        from bt_bench.runs.profile import TimelineRequest, take_step_timeline
        from bt_bench.worker import leased

        asked = TimelineRequest(spec.name, case, operation, [each.name for each in entries], step)
        with (
            starting as worker,
            progress_on_stderr("profile") as progress,
            leased([worker.hello.environment], progress.say),
        ):
            progress.start(1)
            progress.phase("checking and tracing", case.name)
            return take_step_timeline(asked, worker, worker.hello, progress)


def write_profile(folder: RunFolder, timeline: Timeline) -> list[str]:
    """Write a timeline with its page, pictures and trace; return the files' names."""
    from bt_bench.base import write_text
    from bt_bench.report import render_document
    from bt_bench.report.profile import (
        explained_steps,
        flame_graph,
        lanes_svg,
        timeline_document,
        trace_json,
    )
    from bt_bench.results import TIMELINE_NAME, result_name, write_timeline

    page = timeline_document(timeline, whole=True)
    texts = {PAGE_NAME: render_document(page), TRACE_NAME: trace_json(timeline)}
    steps = explained_steps(timeline)
    if steps:
        texts[PICTURE_NAME] = lanes_svg(list(steps.values()), page.title)
    for variant in timeline.variants:
        if variant.host is not None:
            name = f"host-{result_name(variant.name).removesuffix('.json')}.svg"
            texts[name] = flame_graph(variant.host, f"{page.title}, {variant.name}: the host")
    for name, text in texts.items():
        write_text(folder.path / name, text)
    # Last: a folder with a timeline then has its whole profile.
    write_timeline(folder.path / TIMELINE_NAME, timeline)
    names = [PAGE_NAME, TIMELINE_NAME, *(name for name in texts if name != PAGE_NAME)]
    return [*names, *write_profile_page(folder.path)]


def _print_json(
    request: ProfileRequest, folder: RunFolder, timeline: Timeline, before: Timeline | None
) -> None:
    from bt_bench.analysis.profile import other_speed
    from bt_bench.report.profile import timeline_changes_json, timeline_json

    label = str(request.against)
    changes = None if before is None else timeline_changes_json(before, timeline, label)
    print_json(
        {
            "schema_version": 1,
            "folder": str(folder.path),
            "timeline": timeline_json(timeline),
            "changes": changes,
            # The machine's speed in both: how long the same calls took.
            "other_speed_us": None if before is None else other_speed(before, timeline),
        }
    )


def _document(
    request: ProfileRequest, folder: RunFolder, timeline: Timeline, before: Timeline | None
) -> Document:
    from bt_bench.report.profile import timeline_changes_document, timeline_document

    if before is not None:
        label = str(request.against)
        return timeline_changes_document(before, timeline, label, whole=request.whole)
    page = timeline_document(timeline, whole=request.whole)
    if request.tool == "timeline":
        return page
    place = (
        f"A trace of a few steps is in {folder.path / TRACE_NAME}: open it at "
        "https://ui.perfetto.dev (which reads it in the browser, and uploads nothing) or in "
        "chrome://tracing. Each variant is a process with rows for the host, for its NVTX ranges "
        "on the GPU, and for the GPU; arrows lead from a launch to its work. Times are as "
        "traced, with what the profiler adds."
    )
    sections = page.sections if request.whole else ()
    return replace(page, lead=(place, *page.lead[1:]), sections=sections)
