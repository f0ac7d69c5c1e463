"""Sessions played in several processes, and what they found."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

MOST_SHOWN = 20

Played = tuple[str, Counter[str], list[Any]]
"""The device, counts of what was played, and the differences, each with its session."""


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def play_all(
    play: Callable[..., Played],
    batches: Sequence[Sequence[int]],
    *arguments: Any,
    processes: int,
    step: str,
    keep: Callable[[dict[str, Any]], object] = lambda _: None,
    unit: str = "layouts",
) -> dict[str, Any]:
    """Play batches of sessions, each in one process; return a summary.

    Args:
        play: plays sessions, called with `arguments` and their numbers.
        batches: numbers of sessions; those of a batch share compiled kernels.
        arguments: what else `play` needs.
        processes: number of processes.
        step: beginning of the counts that add up to the number of steps.
        keep: called after each batch with the summary so far.
        unit: name of the batches in messages.

    Ctrl-C ends it with what was played so far: the summary then names the batches that lack.
    """
    seen: Counter[str] = Counter()
    found: list[Any] = []
    failures: list[str] = []
    devices = set()
    done = 0

    def summary() -> dict[str, Any]:
        return {
            "steps": sum(count for name, count in seen.items() if name.startswith(step)),
            "num_differences": len(found),
            "sessions_with_differences": len({difference["session"] for difference in found}),
            "device": " and ".join(sorted(devices)),
            "of_these": dict(sorted(seen.items())),
            "differences": found[:MOST_SHOWN],
            "failures": failures[:3],
        }

    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _ignore_interrupts)
    try:
        for future in as_completed([pool.submit(play, *arguments, batch) for batch in batches]):
            try:
                device, counted, differences = future.result()
            except Exception:
                failures.append(traceback.format_exc())
            else:
                devices.add(device)
                seen.update(counted)
                found += differences
            done += 1
            line = f"{done} of {len(batches)} {unit}, {len(found)} differences"
            print(line, file=sys.stderr, flush=True)
            keep(summary())
    except KeyboardInterrupt:
        failures.append(f"interrupted after {done} of {len(batches)} {unit}")
        for process in list(pool._processes.values()):
            process.kill()
    pool.shutdown(cancel_futures=True)
    return summary()
