"""The request that the tools of `bt-bench profile` share, and the lines that they end with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.cli.next_steps import command
from bt_bench.cli.options import command_line
from bt_bench.cli.profile.places import without_places

if TYPE_CHECKING:
    from bt_bench.base.names import DeviceChoice
    from bt_bench.config import SweepSpec
    from bt_bench.results import Cache, RunFolder
    from bt_bench.variants import VariantEntry


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """The parameters of a profile.

    Args:
        tool: name of the tool.
        spec: cases and operations; one case for tools that profile a step.
        entries: the variants.
        operations_by_name: whether the operations come from the command line.
        step: index of the step in its window, from 0; `None`: the last one.
        device: the GPU.
        l2: whether ncu flushes caches before each run of a kernel; `None`: it does not.
        targets: architectures to compile for; `None`: the default ones.
        against: folder, or file, of another profile by the same tool.
        reports: where to make the folder; `None`: the folder in the settings, else `reports`.
        out: the folder itself.
        whole: print everything.
        traceback: print tracebacks of errors in variants.
        as_json: print one JSON document.
    """

    tool: str
    spec: SweepSpec
    entries: Sequence[VariantEntry]
    operations_by_name: bool
    step: int | None
    device: DeviceChoice | None
    l2: Cache | None
    targets: Sequence[str] | None
    against: Path | None
    reports: Path | None
    out: Path | None
    whole: bool
    traceback: bool
    as_json: bool


def print_end(folder: RunFolder, files: Sequence[str], to_change: str | None) -> None:
    """Print where the profile is, and how to compare another one with it.

    Args:
        folder: the profile's folder.
        files: names of the files in it.
        to_change: what to change before the next profile; `None`: there is no next one.
    """
    print(f"\nProfile: {folder.path}/ ({', '.join(files)})")
    if to_change is not None:
        again = command(*without_places(command_line()[1:]), "--against", folder.path)
        print(f"Next:    change {to_change}, then {again}")
