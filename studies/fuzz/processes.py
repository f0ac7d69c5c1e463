"""Sessions played in several processes, and what they found."""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

MOST_SHOWN = 20

Played = tuple[str, Counter[str], list[Any]]
"""The device, counts of what was played, and the differences, each with its session."""


def play_all(
    play: Callable[..., Played],
    batches: Sequence[Sequence[int]],
    *arguments: Any,
    processes: int,
    step: str,
) -> dict[str, Any]:
    """Play batches of sessions, each in one process; return a summary.

    Args:
        play: plays sessions, called with `arguments` and their numbers.
        batches: numbers of sessions; those of a batch share compiled kernels.
        arguments: what else `play` needs.
        processes: number of processes.
        step: beginning of the counts that add up to the number of steps.
    """
    seen: Counter[str] = Counter()
    found: list[Any] = []
    failures: list[str] = []
    devices = set()
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        played = [pool.submit(play, *arguments, batch) for batch in batches]
        for done, future in enumerate(as_completed(played), 1):
            try:
                device, counted, differences = future.result()
            except Exception:
                failures.append(traceback.format_exc())
            else:
                devices.add(device)
                seen.update(counted)
                found += differences
            line = f"{done} of {len(batches)} layouts, {len(found)} differences"
            print(line, file=sys.stderr, flush=True)
    return {
        "steps": sum(count for name, count in seen.items() if name.startswith(step)),
        "num_differences": len(found),
        "sessions_with_differences": len({difference["session"] for difference in found}),
        "device": " and ".join(sorted(devices)),
        "of_these": dict(sorted(seen.items())),
        "differences": found[:MOST_SHOWN],
        "failures": failures[:3],
    }
