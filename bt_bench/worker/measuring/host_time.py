"""Turns at timing this host: host times of several processes disturb each other.

All bt-bench processes of the host take turns, whatever started them: workers of one sweep, shards,
and other commands. Passes that time only a device do not wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bt_bench.base import Claim
from bt_bench.worker.tasks.outcome import OnRound, RoundProgress

THING = "host"
_POLL_SECONDS = 0.02
_LONG_SECONDS = 300.0  # of a wait: usual ones last minutes at most, behind other GPUs


@contextmanager
def host_turn(on_round: OnRound) -> Iterator[None]:
    """Wait for a turn at timing the host, and have it for the length of a `with` block.

    If this process is killed, its turn ends. A process that gives its turn back and wants another
    one at once does not get it before one that waits: whoever is next in line keeps all others from
    trying.

    Args:
        on_round: called when this process waits, and for which one.
    """
    line, claim, began = Claim(f"{THING}-next"), Claim(THING), time.monotonic()
    with ExitStack() as at_end:
        for each in (line, claim):
            at_end.callback(each.give_back)
            while not each.take():
                what = f"waiting to time the host, as process {claim.holder()} does"
                is_long = time.monotonic() - began >= _LONG_SECONDS
                on_round(RoundProgress(0, 1, what, is_news=is_long))
                time.sleep(_POLL_SECONDS)
        line.give_back()
        yield


@contextmanager
def no_turn(_on_round: OnRound) -> Iterator[None]:
    """Time the host at once."""
    yield
