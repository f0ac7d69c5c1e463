"""Random legal calls, and calls to be refused, on each right variant and on the reference.

TRITON_INTERPRET=1 PYTHONPATH=../../../kernels python demos_right.py [NAME...]
    [--seeds N] [--first N] [--calls N] [--instead SHIPPED]
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time

import torch

from bt_kernels.layout import TableLayout
from common import HERE, Differs, Pair, RandomCalls, i32, i64, load, ordinary


def large(variant) -> None:
    """Many rows, many tokens, long rows, many groups, many applies; few calls each."""
    pair = Pair(variant, TableLayout((16, 3), (3, 5), 1300, 3000))
    for row in range(0, 1300, 3):
        pair.v.append_block_ids(row, [[row], [row, 7]], row % 2 == 0)
        pair.r.append_block_ids(row, [[row], [row, 7]], row % 2 == 0)
    mapping = torch.arange(1300).flip(0)
    starts = (torch.arange(1301) * 2).int()
    pair.step(mapping, starts, torch.arange(2600) % 20, 1300, 2700)
    pair.step(mapping[:5].int(), starts[:6], torch.arange(10), 6, 16)
    pair = Pair(variant, TableLayout((16,), (2600,), 3, 41_000))
    pair.append(2, [list(range(9, 2509))], True)
    pair.step(i64(2), i32(0, 40_000), torch.arange(40_000), 2, 40_001)
    pair.step(i64(1, 2), i32(0, 0, 3), i64(0, 39_999, 40_000), 3, 3)
    pair = Pair(variant, TableLayout((1, 2**31 - 1), (66_001, 2), 2, 8))
    pair.append(1, [list(range(-5, 65_995)), [-(2**31), 2**31 - 1]], True)
    pair.append(1, [[5], []], False)
    pair.step(i64(1, 0), i32(0, 4, 5), i64(66_000, 65_999, 2**31 - 1, 2**32 - 3, 0), 2, 5)
    pair = Pair(variant, TableLayout((4,) * 33, tuple(range(1, 34)), 2, 8))
    pair.append(1, [[group] * (group // 2) for group in range(33)], True)
    pair.step(i64(0, 1), i32(0, 0, 4), i64(0, 4, 8, 63), 2, 5)
    pair = Pair(variant, TableLayout((4,), (4,), 3, 8))
    state = pair.snapshot()
    for step in range(300):
        if step % 7:
            pair.append(step % 3, [[step] * (step % 5)], True)
        pair.apply()
        if step % 50 == 3:
            pair.restore(state)
        pair.poison(-step)
        pair.gather(i64(0, 2, 1), 3)


def captured(variant) -> None:
    """Captured steps, published and made or not."""
    if not hasattr(variant, "capture_step"):
        return
    pair = Pair(variant, TableLayout((4, 3), (8, 5), 4, 16))
    state = pair.snapshot()
    batch = i64(1, 3), i32(0, 1, 3), i64(0, 4, 5)
    step = pair.capture(*batch, 2, 4)
    for turn in range(20):
        pair.append(turn % 4, [[turn] * (turn % 4), [turn]], True)
        pair.publish(step, 2)
        if turn % 3 == 0:
            pair.append(turn % 4, [[5], [6]], False)
            pair.publish(step, 2, compare=False)
        if turn % 5 == 4:
            pair.restore(state)
            pair.apply()
        pair.step(*batch, 2, 4)
        pair.poison(turn)
        pair.gather(i64(0, 1, 2, 3), 4)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--instead")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--ordinary", action="store_true")
    parser.add_argument("--large", action="store_true")
    chosen = parser.parse_args()
    failed = 0
    for name in chosen.names or sorted(path.stem for path in (HERE / "right").glob("*.py")):
        if chosen.instead:
            variant = importlib.import_module(f"bt_kernels.variants.{chosen.instead}").Variant
        else:
            variant = load("right", name)
        began = time.perf_counter()
        try:
            seed = None
            if chosen.ordinary:
                ordinary(variant)
            if chosen.large:
                large(variant)
                captured(variant)
            for seed in range(chosen.first, chosen.first + chosen.seeds):
                RandomCalls(variant, seed).run(chosen.calls)
        except Differs as error:
            failed += 1
            print(f"{name}: DIFFERS with seed {seed}: {error}"[:600])
        else:
            calls = chosen.seeds * chosen.calls
            print(f"{name}: equal in {calls} calls ({time.perf_counter() - began:.1f} s)")
        sys.stdout.flush()
    print(f"{failed} differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
