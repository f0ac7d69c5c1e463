"""`bt-bench profile --tool ncu`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.cli.exits import say
from bt_bench.cli.loading import new_folder
from bt_bench.cli.options import chosen_device, print_json, traceback_printer
from bt_bench.cli.profile.one_step import one_operation, refuse_before_it_is_taken
from bt_bench.cli.profile.page import write_profile_page
from bt_bench.cli.profile.places import PAGE_NAME, PREFIX, naming_profile
from bt_bench.cli.profile.requests import ProfileRequest, print_end

if TYPE_CHECKING:
    from bt_bench.base.names import DeviceChoice
    from bt_bench.config import SweepSpec
    from bt_bench.results import Cache, RunFolder
    from bt_bench.runs.profile import TakenCounters
    from bt_bench.runs.profile.ncu_tool import Ncu
    from bt_bench.variants import VariantEntry


def ncu_profile(request: ProfileRequest) -> ExitCode:
    """Take counters, write and print the profile, and print its changes since another one.

    Returns:
        `CHECK_FAILED` if a variant failed.

    Raises:
        UsageError: for more than one operation, for one that launches nothing, without a GPU, and
            if Nsight Compute is missing, too old, or may not read counters.
    """
    from bt_bench.analysis.profile import counter_changes
    from bt_bench.report import print_document
    from bt_bench.report.profile import (
        counter_changes_document,
        counters_document,
        counters_json,
    )
    from bt_bench.results import Cache, read_counters

    operation = one_operation(request.spec, "ncu", by_name=request.operations_by_name)
    device = chosen_device(request.device)
    if device == "cpu":
        raise UsageError("--tool ncu profiles kernels on a GPU; --device cpu has none")
    spec = request.spec.model_copy(update={"operations": [operation]})
    # Before minutes are spent, since the file may not be a profile.
    before = None if request.against is None else read_counters(request.against)
    if before is not None and request.against is not None:
        names = [entry.name for entry in request.entries]
        l2 = {"the L2 cache": (request.l2 or Cache.HOT).value}
        refuse_before_it_is_taken(before, request.against, spec, request.step, names, l2)
    taken = count_step(
        spec,
        request.entries,
        device,
        step=request.step,
        l2=request.l2,
        traceback=request.traceback,
    )
    folder = new_folder(f"{PREFIX}{spec.name}", request.reports, request.out)
    files = write_counters_profile(folder, taken)
    counters = taken.counters
    changes = None
    if before is not None:
        labels = str(request.against), "this profile"
        with naming_profile(folder):
            changes = counter_changes(before, counters, labels)
    if request.as_json:
        print_json(
            {
                "schema_version": 1,
                "folder": str(folder.path),
                "counters": counters_json(counters),
                "changes": None if changes is None else list(map(asdict, changes)),
            }
        )
    elif changes is None:
        print_document(counters_document(counters, whole=request.whole))
        print_end(folder, files, "a kernel")
    else:
        print_document(counter_changes_document(changes, str(request.against)))
        print_end(folder, files, None)
    failed = any(variant.reason is not None for variant in counters.variants)
    return ExitCode.CHECK_FAILED if failed else ExitCode.OK


def count_step(
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    device: DeviceChoice,
    *,
    step: int | None = None,
    l2: Cache | None = None,
    traceback: bool = False,
    ncu: Ncu | None = None,
) -> TakenCounters:
    """Run Nsight Compute to take counters of a step; prints progress on stderr.

    Args:
        spec: one case and one operation.
        entries: the variants.
        device: the GPU.
        step: index of the step in its window, from 0; `None`: the last one.
        l2: whether caches are flushed before each run of a kernel; `None`: they are not.
        traceback: print tracebacks of errors in variants.
        ncu: the program; `None`: the one that is found.

    Raises:
        UsageError: as `take_counters`.
    """
    from bt_bench.results import Cache
    from bt_bench.runs.profile import CountersRequest, take_counters
    from bt_bench.worker import WorkerSetup, arms_of

    setup = WorkerSetup(
        # Without a GPU there is nothing to fall back to.
        device="cuda" if device == "auto" else device,
        arms=arms_of(entries),
        plan=spec.plan,
        suite=spec.suite,
    )
    return take_counters(
        CountersRequest(
            config=spec.name,
            setup=setup,
            case=spec.cases[0],
            operation=spec.operations[0],
            step=step,
            l2=l2 or Cache.HOT,
        ),
        lambda text: say(f"Nsight Compute, which runs each kernel some 40 times: {text}"),
        traceback_printer(traceback),
        ncu=ncu,
    )


def write_counters_profile(
    folder: RunFolder, taken: TakenCounters, page_name: str = PAGE_NAME
) -> list[str]:
    """Write counters with their page, and Nsight Compute's own report unless it is too large.

    Args:
        folder: the profile's folder.
        taken: the counters and the report.
        page_name: name of the page.

    Returns:
        The files' names.
    """
    from bt_bench.base import replacing, write_text
    from bt_bench.report import render_document
    from bt_bench.report.profile import counters_document
    from bt_bench.results import COUNTERS_NAME, NCU_REPORT_NAME, write_counters
    from bt_bench.runs.profile import too_large

    if taken.report is not None:
        with replacing(folder.path / NCU_REPORT_NAME) as file:
            file.write(taken.report)
    elif taken.report_bytes:
        say(too_large(taken.report_bytes))
    page = counters_document(taken.counters, whole=True)
    write_text(folder.path / page_name, render_document(page))
    # Last: a folder with counters then has their whole profile.
    write_counters(folder.path / COUNTERS_NAME, taken.counters)
    report = filter(None, [taken.counters.report])
    return [page_name, COUNTERS_NAME, *report, *write_profile_page(folder.path)]
