"""`bt-bench sweep --profile`: profiles of the cases of a run that stand out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bt_bench.base import packed_or_not
from bt_bench.base.errors import BtBenchError, ExitCode, UsageError
from bt_bench.cli.exits import say, visible
from bt_bench.cli.profile.ncu import count_step, write_counters_profile
from bt_bench.cli.profile.places import COUNTERS_PAGE_NAME, case_folder
from bt_bench.cli.profile.timeline import trace_step, write_profile

if TYPE_CHECKING:
    from bt_bench.analysis.run.standouts import Standout
    from bt_bench.base.names import DeviceChoice
    from bt_bench.config import SweepSpec
    from bt_bench.results import Reason, RunFolder, VariantResult
    from bt_bench.runs import SweepRequest
    from bt_bench.runs.profile.ncu_tool import Ncu
    from bt_bench.variants import VariantEntry
    from bt_bench.worker import Hello


def nsight_compute_for(spec: SweepSpec, hello: Hello) -> Ncu:
    """Return the Nsight Compute that takes the counters of a run.

    Raises:
        UsageError: where `--profile` cannot work; so call it before anything is measured.
    """
    from bt_bench.runs.profile.ncu_report_file import load_module
    from bt_bench.runs.profile.ncu_tool import find_ncu

    if hello.device == "cpu":
        raise UsageError(
            "--profile traces a GPU, and there is none here, or --device cpu was given; leave it "
            "out, and use bt-bench profile --tool static, which needs none"
        )
    if all(operation.traits.on_host for operation in spec.operations):
        raise UsageError(
            f"--profile: operation {str(spec.operations[0])!r} launches nothing, so there is "
            "nothing to profile; choose another one by --operations"
        )
    ncu = find_ncu()
    load_module(ncu)
    return ncu


def say_tools(ncu: Ncu, as_json: bool) -> None:
    """Print the tools that would take the profiles."""
    text = (
        "profiles: of the slowest and the most changed case, a timeline with its trace by "
        "cupti-python (by torch's profiler without it), and counters by Nsight Compute "
        f"{ncu.version} ({ncu.path})"
    )
    if as_json:
        say(text)  # stdout has the plan alone
    else:
        print(f"  {visible(text)}")


@dataclass
class RunProfiles:
    """Profiles of the cases of a run that stand out, taken one after the other.

    Args:
        request: the run.
        results: results of its variants.
        device: the device that they were measured on.
        ncu: Nsight Compute.
        traceback: print tracebacks of errors in variants.
        again: the command that takes missing profiles later.
        made: the profiles so far, as in JSON.
    """

    request: SweepRequest
    results: list[VariantResult]
    device: DeviceChoice
    ncu: Ncu
    traceback: bool
    again: str
    made: list[dict[str, Any]] = field(default_factory=list)
    _refused: dict[str, ExitCode] = field(default_factory=dict)
    _some_failed: bool = False

    @property
    def code(self) -> ExitCode:
        """Return the exit code for the profiles alone."""
        failed = ExitCode.CHECK_FAILED if self._some_failed else ExitCode.OK
        return max(self._refused.values(), default=failed)

    def take(self) -> None:
        """Take the profiles that the run's folder lacks, and print which cannot be taken."""
        from bt_bench.analysis.run.standouts import standouts

        found = standouts(self.results)
        if not found:
            say("nothing is profiled: no case has a timed step")
        with self.request.folder.locked():
            try:
                for standout in found:
                    self._take_both(standout)
            except BaseException:
                say(f"stopped while profiling; the sweep is complete in {self.request.folder.path}")
                say(f"take the profiles that are missing with: {self.again}")
                raise
        if self._refused:
            say(f"the results are complete; take the missing profiles later with: {self.again}")

    def _take_both(self, standout: Standout) -> None:
        from bt_bench.results import COUNTERS_NAME, TIMELINE_NAME, RunFolder

        folder = RunFolder(case_folder(self.request.folder.path, standout.case))
        try:
            self._take("timeline", folder.path / TIMELINE_NAME, standout, folder)
            self._take("counters", folder.path / COUNTERS_NAME, standout, folder)
        finally:
            if folder.path.is_dir():
                self.made.append(
                    {
                        "case": standout.case,
                        "why": list(standout.why),
                        "folder": str(folder.path),
                        "files": sorted(file.name for file in folder.path.iterdir()),
                    }
                )

    def _take(self, what: str, file: Path, standout: Standout, folder: RunFolder) -> None:
        """Take the timeline or the counters of a case, unless their file is there."""
        if packed_or_not(file).is_file():
            say(f"{standout.case}: the {what} of an earlier call is kept")
        elif what in self._refused:
            # It would be refused again, after as long a wait.
            say(f"error: {standout.case}: no {what} either")
        else:
            take = self._timeline if what == "timeline" else self._counters
            try:
                reasons = take(standout, folder)
            except BtBenchError as error:
                self._refused[what] = error.exit_code
                for line in str(error).splitlines():
                    say(f"error: {standout.case}: no {what}: {line}")
            else:
                self._some_failed |= any(reason is not None for reason in reasons)

    def _timeline(self, standout: Standout, folder: RunFolder) -> list[Reason | None]:
        """Write the timeline of a case; return for each variant why it failed."""
        spec, entries = self._of(standout)
        timeline = trace_step(spec, entries, self.device, traceback=self.traceback)
        folder.path.mkdir(exist_ok=True)
        write_profile(folder, timeline)
        return [variant.reason for variant in timeline.variants]

    def _counters(self, standout: Standout, folder: RunFolder) -> list[Reason | None]:
        """Write the counters of a case; return for each variant why it failed."""
        spec, entries = self._of(standout)
        taken = count_step(spec, entries, self.device, traceback=self.traceback, ncu=self.ncu)
        folder.path.mkdir(exist_ok=True)
        write_counters_profile(folder, taken, COUNTERS_PAGE_NAME)
        return [variant.reason for variant in taken.counters.variants]

    def _of(self, standout: Standout) -> tuple[SweepSpec, list[VariantEntry]]:
        """Return the case alone, and the variants that passed: others may hang or crash again."""
        spec = self.request.spec
        cases = [case for case in spec.cases if case.name == standout.case]
        alone = spec.model_copy(update={"cases": cases, "operations": [standout.operation]})
        passed = [entry for entry in self.request.entries if entry.name in standout.variants]
        return alone, passed
