"""Playing of scenarios in the process that has the variant; comparisons are made elsewhere.

Unless whole contents are requested, only digests leave this process. The expected digests never
enter it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from bt_bench.protocol import Contents, Floats, MismatchError, Seen, Suite
from bt_bench.results import Reason, ReasonCode
from bt_bench.variants import is_interrupt, load_reference
from bt_bench.worker.checking.interpreter_guard import guard_on
from bt_bench.worker.checking.own_code import sizes_of
from bt_bench.worker.checking.plain_exploring import explorer_of
from bt_bench.worker.machine import activity
from bt_bench.worker.tasks.failures import ArmFailedError, is_fatal, reason_of
from bt_bench.worker.tasks.plays import Play, Played, Surveyed

_DIGEST_BYTES = 16


def play(
    task: Play, suite: Suite, arm: str | None, variant: type[Any] | None, device: torch.device
) -> tuple[Played, ...]:
    """Play scenarios on a variant, or on the reference if `variant` is `None`.

    Raises:
        ArmFailedError: if the variant ran out of memory or broke the device.
    """
    if variant is None:
        arm, variant, device = None, load_reference(suite), torch.device("cpu")
    return tuple(_play(task, suite, arm, variant, device, each) for each in task.scenarios)


def _play(
    task: Play,
    suite: Suite,
    arm: str | None,
    variant: type[Any],
    device: torch.device,
    scenario: Any,
) -> Played:
    explorer = explorer_of(suite)
    digests: list[Mapping[str, str | Floats]] = []
    whole: Seen | None = None
    reason: Reason | None = None
    guard = None if arm is None else guard_on(device)
    player = explorer.player()
    notes = activity.current()
    with notes.running(arm or ""):
        notes.count_calls(0)
        try:
            for place, seen in enumerate(player.play(variant, scenario, device, guard)):
                notes.count_calls(place + 1)
                digests.append({name: _digest(value) for name, value in seen.items()})
                whole = dict(seen) if place == task.whole else whole
                notes.leave(notes.enter(arm or ""))
        except MismatchError as mismatch:
            reason = Reason(code=ReasonCode.WRONG_RESULT, message=str(mismatch))
        except BaseException as error:  # SystemExit too: a variant must not end the run
            if is_interrupt(error) or arm is None:
                raise
            if is_fatal(error, device):
                raise ArmFailedError(arm, error, task.doing) from error
            reason = reason_of(error, task.doing)
    return Played(tuple(digests), reason, whole, tuple(player.not_tried))


def _digest(value: Contents) -> str | Floats:
    if isinstance(value, str | Floats):
        return value
    if value.dtype.kind not in "iub":
        raise TypeError(f"a player yielded an array of {value.dtype}; expected integers, or Floats")
    content = np.ascontiguousarray(value, dtype=np.int64)
    digest = hashlib.blake2b(content.tobytes(), digest_size=_DIGEST_BYTES)
    return f"{value.shape} {digest.hexdigest()}"


def survey(suite: Suite, arms: Mapping[str, type[Any]]) -> dict[str, Surveyed]:
    """Survey the properties of each arm that select its scenarios.

    Raises:
        ArmFailedError: for an arm that raises.
    """
    explorer = explorer_of(suite)
    found = {}
    for name, variant in arms.items():
        try:
            found[name] = Surveyed(
                frozenset(getattr(variant, "features", ())) | explorer.abilities(variant),
                sizes_of(suite, variant),
                explorer.unexplored(variant),
            )
        except Exception as error:
            raise ArmFailedError(name, error, "while surveyed") from error
    return found
