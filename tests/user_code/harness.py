"""A script that uses the Python API and the form of functions; see `test_user_code.py`."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import numpy as np
import torch

import bt_bench
from bt_bench.errors import ExitCode, NotComparableError, UsageError


@bt_bench.benchmark(inputs={"n": [1024, 65536]}, tolerance=1e-3)
def add(n: int) -> dict[str, torch.Tensor]:
    return {"x": torch.rand(n), "y": torch.rand(n), "out": torch.empty(n)}


@add.reference
def torch_add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    torch.add(x, y, out=out)


@add.variant(name="by-steps", graph=True)
def by_steps(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x).add_(y)


assert_type(add, bt_bench.Benchmark)


def slower(path: Path) -> list[str]:
    comparison = bt_bench.compare(path, "other", threshold=3.0, floor={"registers": 8})
    if comparison.exit_code is ExitCode.OK:
        return []
    return [each.case for each in comparison.verdicts if each.verdict is bt_bench.Verdict.SLOWER]


def total(run: bt_bench.Run, case: str) -> float:
    samples: bt_bench.Samples = run.case(case, variant="mine").samples["host_us"]
    return float(np.asarray(samples).sum()) + float(samples.values.sum()) + samples.median


def main() -> None:
    x = torch.rand(8)
    result = bt_bench.bench({"torch": lambda: x + 1, "mine": lambda: x.add(1)}, rounds=10)
    assert_type(result, bt_bench.Bench)
    assert_type(result.comparison("mine").speedup, float)
    options = {"seed": [1, 2]}
    try:
        run = bt_bench.sweep({"cases": []}, set=options, k="a*", out=Path("x"), progress=print)
        print(run.environment.device, run.to_pandas(), bt_bench.compare(run).to_pandas())
    except (UsageError, NotComparableError) as error:
        print(error.exit_code, bt_bench.errors.ExitCode.USAGE)


if __name__ == "__main__":
    main()
