"""Leases: while bt-bench times a GPU, no other process of bt-bench uses it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bt_bench.base import Claim, claims_folder
from bt_bench.base.errors import UsageError
from bt_bench.results import Environment

_PATIENCE_S = 300.0  # with processes that share a GPU
_POLL_S = 0.1


@contextmanager
def leased(
    environments: Sequence[Environment], report: Callable[[str], None], *, shared: bool = False
) -> Iterator[None]:
    """Lease the GPUs of some workers for the length of a `with` block.

    Args:
        environments: of the workers; the first GPU of each is the one that it uses. Without a GPU,
            or without its UUID, there is nothing to lease.
        report: receives a line if it waits for processes that share a GPU, and a warning where
            processes of other users are not kept off it.
        shared: whether other processes may share them, since nothing is timed. A process that
            times a GPU has it to itself: it waits some minutes for those that share it, and no
            further one can share it meanwhile.

    Raises:
        UsageError: if another process has one, naming that process and its command, or if two
            workers have the same one.
    """
    refuse_twice(environments)
    uuids = [*filter(None, map(_uuid, environments))]
    if uuids:
        _warn_of_private_folder(report)
    with ExitStack() as stack:
        for uuid in uuids:
            claim = Claim(f"GPU-{uuid}")
            stack.callback(claim.give_back)
            if not (claim.take(shared=True) if shared else _alone(claim, uuid, report)):
                raise UsageError(
                    f"GPU-{uuid} is in use by process {claim.holder()}; wait for it, or choose "
                    "another GPU by --device or --gpus"
                )
        yield


def _alone(claim: Claim, uuid: str, report: Callable[[str], None]) -> bool:
    """Wait until nobody shares a GPU any more; return whether it is ours."""
    if not claim.announce():
        return False
    deadline, is_reported = time.monotonic() + _PATIENCE_S, False
    while not claim.is_alone():
        if not is_reported:
            report(
                f"waiting for GPU-{uuid}, up to {_PATIENCE_S / 60:.0f} minutes: it is shared by "
                f"process {claim.holder()}; no other command can share it meanwhile"
            )
            is_reported = True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _warn_of_private_folder(report: Callable[[str], None]) -> None:
    folder, is_common = claims_folder()
    if not is_common:
        report(
            f"warning: leases of GPUs are in {folder}, where other users can make none: a command "
            "of another user may disturb the times; open it to all users, or mount a folder there "
            "in which all can make files"
        )


def refuse_twice(environments: Sequence[Environment]) -> None:
    """Refuse two workers that have the same GPU.

    Raises:
        UsageError: naming the GPU.
    """
    seen: set[str] = set()
    for uuid in filter(None, map(_uuid, environments)):
        if uuid in seen:
            raise UsageError(f"--gpus names GPU-{uuid} twice; leave one of both names out")
        seen.add(uuid)


def _uuid(environment: Environment) -> str | None:
    """Return the UUID of the GPU that a worker uses, without its prefix; `None` if unknown."""
    if environment.device != "cuda" or not environment.gpus:
        return None
    uuid = environment.gpus[0].uuid
    return None if uuid is None else uuid.removeprefix("GPU-")
