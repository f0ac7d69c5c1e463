"""The requests that all tools of `bt-bench profile` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bt_bench.config import SweepSpec
    from bt_bench.variants import VariantEntry


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """The parameters that every tool takes.

    Args:
        spec: cases and operations.
        entries: the variants.
        against: folder, or file, of another profile by the same tool.
        reports: where to make the folder; `None`: the folder in the settings, else `reports`.
        out: the folder itself.
        whole: print everything.
        traceback: print tracebacks of errors in variants.
        as_json: print one JSON document.
    """

    spec: SweepSpec
    entries: Sequence[VariantEntry]
    against: Path | None
    reports: Path | None
    out: Path | None
    whole: bool
    traceback: bool
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class OneStepRequest(ProfileRequest):
    """The parameters of tools that profile one step of one case.

    Args:
        operations_by_name: whether the operations come from the command line.
        step: index of the step in its window, from 0; `None`: the last one.
    """

    operations_by_name: bool
    step: int | None
