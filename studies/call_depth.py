"""Host time of a step by call depth, with and without `with_room`.

    python studies/call_depth.py

Needs a GPU. Steps have no writes; times are medians of 60 calls, in µs. The output is kept as
reports/h200/call-depth/call-depth.txt.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from bt_bench.variants.catalogue import find_variants, load
from bt_bench.worker.isolation.call_stack import with_room
from bt_kernels.layout import TableLayout

DEPTHS, CALLS = range(160), 60
REQUESTS, TOKENS = 128, 2048
LAYOUT = TableLayout((16,), (1024,), max_num_reqs=REQUESTS, max_num_batched_tokens=TOKENS)


def step_of(variant: type[Any]) -> Callable[[], object]:
    """Return a call that makes a step of all requests, each with eight blocks."""
    cuda = torch.device("cuda")
    tables = variant(LAYOUT, cuda)
    for row in range(REQUESTS):
        tables.append_block_ids(row, [list(range(1 + row, 9 + row))], overwrite=True)
    rows = torch.arange(REQUESTS, dtype=torch.int32, device=cuda)
    bounds = torch.arange(0, TOKENS + 1, TOKENS // REQUESTS, dtype=torch.int32, device=cuda)
    positions = torch.arange(TOKENS, device=cuda) % 128
    return lambda: tables.prepare_step(rows, bounds, positions, REQUESTS, TOKENS)


def host_us(step: Callable[[], object], depth: int) -> float:
    """Return the median host time of a step in µs, `depth` frames further down the stack."""
    if depth:
        return host_us(step, depth - 1)
    taken = []
    for _ in range(CALLS):
        start = time.perf_counter_ns()
        step()
        taken.append((time.perf_counter_ns() - start) / 1e3)
    torch.cuda.synchronize()
    return statistics.median(taken)


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version}")
    found = find_variants()
    gc.disable()
    for name in ("baseline", "fused", "one_launch"):
        step = step_of(load(found[name]))
        for _ in range(20):
            step()
        for turn in (1, 2):
            for how, call in (("without room", lambda inner: inner()), ("with room", with_room)):
                times = call(lambda step=step: [host_us(step, depth) for depth in DEPTHS])
                middle, worst = statistics.median(times), max(times)
                slow = sum(each > 1.15 * middle for each in times)
                print(
                    f"{name:10}  {how:12}  turn {turn}: median {middle:.2f}, worst {worst:.2f} at "
                    f"depth {times.index(worst)}; {slow} depths above 1.15 times the median"
                )


if __name__ == "__main__":
    main()
