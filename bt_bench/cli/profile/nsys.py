"""`bt-bench profile --tool nsys`: the command for Nsight Systems, which is not run here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.cli.next_steps import command, repeated

if TYPE_CHECKING:
    from bt_bench.config import SweepSpec

# Two users of CUPTI in a process disturb each other, and a recording of minutes is unreadable.
_SETTINGS = ("plan.profile_rounds=0", "plan.case_seconds=1")


def nsys_command(config: str, spec: SweepSpec, folders: Sequence[Path]) -> str:
    """Return the command line, ready to be pasted into the user's shell.

    Args:
        config: the config as given.
        spec: the config, with the options applied.
        folders: folders of variants.
    """
    name = f"{spec.name}-{spec.cases[0].name}" if len(spec.cases) == 1 else spec.name
    sweep = [
        "sweep",
        config,
        *("-k", ",".join(case.name for case in spec.cases)),
        *("--variants", ",".join(spec.variants)),
        *("--operations", ",".join(spec.operations)),
        *repeated("--kernels", folders),
        *repeated("--set", _SETTINGS),
    ]
    recorder = ["nsys", "profile", "--trace=cuda,nvtx", f"--output={name}"]
    return f"{shlex.join(recorder)} {command(*sweep)}"
