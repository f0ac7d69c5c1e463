"""Leases: while bt-bench times a GPU, no other process of bt-bench uses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bt_bench.base import Claim
from bt_bench.base.errors import UsageError
from bt_bench.results import Environment


@contextmanager
def leased(environments: Sequence[Environment], *, shared: bool = False) -> Iterator[None]:
    """Lease the GPUs of some workers for the length of a `with` block.

    Args:
        environments: of the workers; the first GPU of each is the one that it uses. Without a GPU,
            or without its UUID, there is nothing to lease.
        shared: whether other processes may share them, since nothing is timed. A process that
            times a GPU has it to itself.

    Raises:
        UsageError: if another process has one, naming that process and its command, or if two
            workers have the same one.
    """
    refuse_twice(environments)
    with ExitStack() as stack:
        for uuid in filter(None, map(_uuid, environments)):
            claim = Claim(f"GPU-{uuid}")
            if not claim.take(shared=shared):
                raise UsageError(
                    f"GPU-{uuid} is in use by process {claim.holder()}; wait for it, or choose "
                    "another GPU by --device or --gpus"
                )
            stack.callback(claim.give_back)
        yield


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
    uuid = environment.gpus[0].uuid if environment.gpus else None
    return None if uuid is None else uuid.removeprefix("GPU-")
