"""Leases: while bt-bench times a GPU, no other process of bt-bench times it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bt_bench.base import Claim
from bt_bench.base.errors import UsageError
from bt_bench.results import Environment


@contextmanager
def leased(environments: Sequence[Environment]) -> Iterator[None]:
    """Lease the GPUs of some workers for the length of a `with` block.

    Args:
        environments: of the workers; the first GPU of each is the one that it uses. Without a GPU,
            or without its UUID, there is nothing to lease.

    Raises:
        UsageError: if another process has one, naming that process and its command.
    """
    with ExitStack() as stack:
        for environment in environments:
            for uuid in [gpu.uuid for gpu in environment.gpus[:1] if gpu.uuid is not None]:
                name = f"GPU-{uuid.removeprefix('GPU-')}"
                claim = Claim(name)
                if not claim.take():
                    raise UsageError(
                        f"{name} is being timed by process {claim.holder()}; wait for it, or "
                        "choose another GPU by --device or --gpus"
                    )
                stack.callback(claim.give_back)
        yield
