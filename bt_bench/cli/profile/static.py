"""`bt-bench profile --tool static`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.base import packed_or_not
from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.cli.exits import say
from bt_bench.cli.loading import new_folder
from bt_bench.cli.options import print_json, traceback_printer
from bt_bench.cli.profile.page import write_profile_page
from bt_bench.cli.profile.places import PAGE_NAME, PREFIX
from bt_bench.cli.profile.requests import ProfileRequest, print_end

if TYPE_CHECKING:
    from bt_bench.analysis.code import KernelChange
    from bt_bench.results import StaticCensus

TARGETS = ("sm_90", "sm_80", "sm_100")
"""The default targets. The first is the target of the GPUs in the documentation's figures."""


def static_profile(request: ProfileRequest) -> ExitCode:
    """Compile, write and print the profile, and print its changes since another one.

    Returns:
        `CHECK_FAILED` if a variant failed or did not compile.
    """
    from bt_bench.analysis.code import kernel_changes
    from bt_bench.base import write_text
    from bt_bench.report import print_document, render_document
    from bt_bench.report.profile import (
        changes_document,
        kernels_document,
        kernels_json,
    )
    from bt_bench.results import CENSUS_NAME, write_census
    from bt_bench.worker import take_code_census

    targets = list(dict.fromkeys(request.targets or TARGETS))
    # Before anything is compiled, since the file may not be a census.
    before = None if request.against is None else read_profile(request.against)
    census = take_code_census(
        request.spec,
        request.entries,
        targets,
        on_traceback=traceback_printer(request.traceback),
        on_compile=lambda names: say(
            f"compiling {', '.join(names)} for {', '.join(targets)}, which takes a second or two "
            "for each kernel, once"
        ),
    )
    changes: list[KernelChange] | None = None
    if before is not None:
        changes = kernel_changes(before, census, (str(request.against), "the working tree"))
    folder = new_folder(f"{PREFIX}{request.spec.name}", request.reports, request.out)
    write_census(folder.path / CENSUS_NAME, census)
    page = kernels_document(census, targets, whole=True)
    write_text(folder.path / PAGE_NAME, render_document(page))
    files = [PAGE_NAME, CENSUS_NAME, *write_profile_page(folder.path)]
    failed = any(of.failure is not None for v in census.variants for of in v.operations)
    code = ExitCode.CHECK_FAILED if failed else ExitCode.OK
    if request.as_json:
        print_json(
            {
                "schema_version": 1,
                "folder": str(folder.path),
                "kernels": kernels_json(census, targets),
                "changes": None if changes is None else list(map(asdict, changes)),
            }
        )
        return code
    if changes is None:
        print_document(kernels_document(census, targets, whole=request.whole))
    else:
        print_document(changes_document(changes, str(request.against)))
    print_end(folder, files, "a kernel" if changes is None else None)
    return code


def read_profile(path: Path) -> StaticCensus:
    """Read the census of another profile.

    Raises:
        UsageError: if it is not one, or has no code of its kernels.
    """
    from bt_bench.results import CENSUS_NAME, read_census

    file = packed_or_not(path / CENSUS_NAME) if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise UsageError(
            f"--against {path} has no {CENSUS_NAME}; expected the folder of a profile by --tool "
            "static"
        )
    census = read_census(file)
    kernels = [kernel for variant in census.variants for kernel in variant.kernels]
    if kernels and not any(kernel.code for kernel in kernels):
        raise UsageError(
            f"--against {path} is a census of a gate, which has no code of its kernels; compare "
            "with it by bt-bench gate --static --against, or take one by bt-bench profile"
        )
    return census
