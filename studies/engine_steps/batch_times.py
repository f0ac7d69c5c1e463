"""Host time in which a runner prepares whole batches: by vLLM's methods, and through the plugin.

It begins right before the apply of staged writes, when the GPU is idle, and ends with the slots.
So it also has the runner's `gather_batch_req_state`, in all ways. Staging is not in it.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch
from support.vllm_batches import BatchStep, envs

from bt_bench.config import load_config
from bt_bench.config.select import select_cases
from bt_bench.config.spec import CaseSpec
from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import settings
from engine_steps.batch_session import batch_package
from engine_steps.session import plugged
from engine_steps.times import DEFERRED, PREPARE, VLLM, WHOLE, summarize, time_each

CONFIGS = ("batches",)


def measure(
    args: argparse.Namespace, found: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each case of the suite `batch_preparation`, and its times.

    Raises:
        UsageError: when a config is not found, or no case is selected.
    """
    found["inputs"] = True
    return time_each(_cases(args), args, found, _why_not, _times_of)


def _cases(args: argparse.Namespace) -> Iterator[tuple[str, CaseSpec]]:
    for config in args.configs or CONFIGS:
        cases = load_config(config, suite="batch_preparation").cases
        for case in select_cases(cases, args.select) if args.select else cases:
            yield f"{config}/{case.name}", case


def _why_not(workload: Any) -> str:
    if any(len(set(step.rows.tolist())) < step.num_reqs for step in workload.steps):
        return "a row twice in a batch, which no engine has"
    return ""


def _times_of(workload: Any, args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    envs.VLLM_MOE_SKIP_PADDING = workload.layout.marks_padding
    steps = workload.steps[: args.window]
    with (
        batch_package(args.vllm_source) as module,
        plugged(settings.ON, 1, **{settings.INPUTS: settings.ON}),
    ):
        kind = module("model_runner").GPUModelRunner
        runners = {
            WHOLE: kind(workload, device=device),
            DEFERRED: kind(workload, device=device),
            VLLM: kind(workload, kind.tables_class().theirs, device),
        }
        runners[DEFERRED].block_tables._inputs = None
        inside = _measured(runners[WHOLE].block_tables._inputs.inputs)
        times = {name: np.zeros((args.repeats + 1, len(steps))) for name in (*runners, PREPARE)}
        rng = np.random.default_rng(55)
        gc.collect()
        gc.disable()
        try:
            for repeat in range(args.repeats + 1):
                for runner in runners.values():
                    runner.begin(workload)
                    runner.waits = True
                for number, inputs in enumerate(steps):
                    for name in rng.permutation(list(runners)).tolist():
                        runners[name].make(BatchStep(inputs, seed=number))
                        times[name][repeat, number] = runners[name].spent_ns / 1000
                    times[PREPARE][repeat, number] = inside[0] / 1000
        finally:
            gc.enable()
        counts = plugin.counters()
    expected = (args.repeats + 1) * len(steps)
    if counts["failures"] or counts["fallbacks"] or counts["prepared"] != expected:
        raise RuntimeError(f"the plugin did not prepare all batches: {counts}")
    return {
        "steps": len(steps),
        "repeats": args.repeats,
        **summarize({name: own[1:] for name, own in times.items()}),
    }


def _measured(inputs: Any) -> list[int]:
    """Have the time of each `prepare` put into a list."""
    prepare, found = inputs.prepare, [0]

    def measured(*given: Any) -> Any:
        began = perf_counter_ns()
        batch = prepare(*given)
        found[0] = perf_counter_ns() - began
        return batch

    inputs.prepare = measured
    return found
