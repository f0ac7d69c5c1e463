"""Host time of a step, in each of the ways to make it, over the traces of the stock configs.

A small runner makes the calls of vLLM's in their order, and nothing else: it stages, applies,
gathers and maps. Ways are timed in turns, step by step, and the GPU is idle when a step begins. One
repetition replays the whole window of a trace. The first is not counted.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bt_bench.config import load_config
from bt_bench.config.select import select_cases
from bt_bench.config.spec import CaseSpec
from bt_bench.protocol import build_workload
from bt_bench.report import ABSENT, Cell, Document, Section, Table
from bt_bench.suites.block_tables.inputs import StepInputs, inputs_on
from bt_kernels import BlockTables
from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import settings
from engine_steps.package import engine_package

CONFIGS = ("quick", "features", "azure_conv", "azure_code")

VLLM, THREE_CALLS, ONE_CALL = "vllm", "three calls", "prepare_step"
DEFERRED, COUNTING, SHADOW, RECORDING = "deferred", "counting", "shadow", "recording"
WHOLE, PREPARE = "whole", "prepare"
MEANINGS = {
    VLLM: "vLLM's class",
    THREE_CALLS: "bt_kernels.BlockTables, called as vLLM calls it",
    ONE_CALL: "bt_kernels.BlockTables, the three calls as one",
    DEFERRED: "the plugin, BT_KERNELS=on",
    COUNTING: "the same with BT_KERNELS_COUNTERS=1",
    SHADOW: "the plugin, BT_KERNELS=shadow, while it compares",
    RECORDING: "the plugin with BT_KERNELS_RECORD",
}
MEANINGS_OF_INPUTS = {
    VLLM: "vLLM's methods and class",
    DEFERRED: "the plugin, BT_KERNELS=on",
    WHOLE: "the same with BT_KERNELS_INPUTS=on",
    PREPARE: "the part of it within bt_kernels.BatchInputs.prepare",
}
DIFFERENCES = (
    *((DEFERRED, ONE_CALL), (COUNTING, DEFERRED), (RECORDING, DEFERRED)),
    *((WHOLE, VLLM), (WHOLE, PREPARE)),
)

_Times = npt.NDArray[np.float64]


def measure(
    args: argparse.Namespace, found: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each trace case, and its times; note in `found` what is left out.

    Raises:
        UsageError: when a config is not found, or no case is selected.
    """
    return time_each(_cases(args), args, found, _why_not, _times_of)


def time_each(
    cases: Iterable[tuple[str, CaseSpec]],
    args: argparse.Namespace,
    found: dict[str, Any],
    why_not: Callable[[Any], str],
    times_of: Callable[[Any, argparse.Namespace, torch.device], dict[str, Any]],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each case, and its times; note in `found` what is left out or fails.

    Args:
        cases: names and cases.
        args: the arguments of the study.
        found: gets `left_out` and more of `failures`.
        why_not: returns why a workload is left out; empty if it is not.
        times_of: returns the times of a workload.
    """
    device = torch.device(args.device)
    found["left_out"] = {}
    listed = list(cases)
    for number, (name, case) in enumerate(listed):
        if args.deadline is not None and time.time() > args.deadline:
            found["failures"].append(f"{len(listed) - number} cases were not timed: --seconds")
            return
        workload: Any = build_workload(case.parameters)
        reason = why_not(workload)
        if reason:
            found["left_out"][name] = reason
            continue
        try:
            yield name, times_of(workload, args, device)
        except Exception as error:  # the other cases are still of use
            found["failures"].append(f"{name}: {type(error).__name__}: {error}")


def _cases(args: argparse.Namespace) -> Iterator[tuple[str, CaseSpec]]:
    for config in args.configs or CONFIGS:
        cases = [
            case
            for case in load_config(config).cases
            if getattr(case.parameters, "workload", "") == "trace"
        ]
        if args.select and cases:
            cases = select_cases(cases, args.select)
        for case in cases:
            yield f"{config}/{case.name}", case


def _why_not(workload: Any) -> str:
    """Return why a workload is left out; empty if it is not."""
    if workload.custom_outputs:
        return "buffers of the caller: only context parallelism of prefill has them"
    if any((step.idx_mapping < 0).any() for step in workload.steps):
        return "dummy requests: vLLM's gather reads before its tables"
    return ""


def _times_of(workload: Any, args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    steps = [_engine_step(step) for step in inputs_on(device, workload)[: args.window]]
    with ways(workload.layout, args.vllm_source, device) as runners:
        times = _in_turns(runners, workload, steps, args.repeats, device)
        counts, tables = plugin.counters(), runners[RECORDING].block_tables
        if not hasattr(tables, "_recorder"):
            raise RuntimeError("the recording stopped, with a warning of the reason")
    if counts["failures"] or counts["differences"]:
        raise RuntimeError(f"the plugin fell back: {counts}")
    return {"steps": len(steps), "repeats": args.repeats, **summarize(times)}


def _engine_step(step: StepInputs) -> SimpleNamespace:
    """Return a step as the small runner takes it: a batch has arrays of the host, too."""
    rows = step.idx_mapping.cpu().numpy()
    starts = step.query_start_loc.cpu().numpy()
    batch = SimpleNamespace(
        idx_mapping=step.idx_mapping,
        idx_mapping_np=rows.astype(np.intp),
        query_start_loc=step.query_start_loc,
        query_start_loc_np=starts,
        positions=step.positions,
        num_computed_tokens=step.num_computed_tokens,
        # An engine always has them: each request's first token of the step.
        num_computed_tokens_np=step.positions.cpu().numpy()[starts[: len(rows)]].astype(np.int32),
        num_reqs=len(rows),
        num_reqs_after_padding=step.num_reqs_padded,
        num_tokens_after_padding=step.num_tokens_padded,
    )
    return SimpleNamespace(
        appends=[(append.row, append.block_ids, append.overwrite) for append in step.appends],
        batch=batch,
    )


def _runner_class() -> type[Any]:
    """Return a new class of runners, whose methods the plugin may wrap."""

    class Runner:
        pcp_manager = None

        def __init__(self, tables: Any) -> None:
            self.block_tables = tables

        def execute_model(self, step: Any) -> None:
            tables = self.block_tables
            for row, block_ids, overwrite in step.appends:
                tables.append_block_ids(row, block_ids, overwrite=overwrite)
            tables.apply_staged_writes()
            self.prepare_attn(step.batch)

        def prepare_attn(self, batch: Any) -> None:
            tables = self.block_tables
            tables.gather_block_tables(
                batch.idx_mapping,
                num_reqs_padded=batch.num_reqs_after_padding,
                num_computed_tokens=batch.num_computed_tokens,
            )
            tables.compute_slot_mappings(
                batch.idx_mapping,
                batch.query_start_loc,
                batch.positions,
                num_tokens_padded=batch.num_tokens_after_padding,
            )

    return Runner


class _OneCallRunner:
    """Makes a step by `prepare_step`, in methods like those of the other runners."""

    def __init__(self, tables: Any) -> None:
        self.block_tables = tables

    def execute_model(self, step: Any) -> None:
        tables = self.block_tables
        for row, block_ids, overwrite in step.appends:
            tables.append_block_ids(row, block_ids, overwrite=overwrite)
        self.prepare_attn(step.batch)

    def prepare_attn(self, batch: Any) -> None:
        self.block_tables.prepare_step(
            batch.idx_mapping,
            batch.query_start_loc,
            batch.positions,
            batch.num_reqs_after_padding,
            batch.num_tokens_after_padding,
            num_computed_tokens=batch.num_computed_tokens,
        )


@contextmanager
def ways(layout: Any, wheel: Path | None, device: torch.device) -> Iterator[dict[str, Any]]:
    """Build a runner for each way to make a step; those of the plugin end with the context."""
    options = {
        "block_sizes": list(layout.block_sizes),
        "max_num_reqs": layout.max_num_reqs,
        "max_num_batched_tokens": layout.max_num_batched_tokens,
        "max_num_blocks_per_group": list(layout.widths),
        "device": device,
        "cp_size": layout.cp_size,
        "cp_rank": layout.cp_rank,
        "cp_interleave": layout.cp_interleave,
        "slot_mapping_enabled": list(layout.slot_mapping_enabled),
        "dcp_sharded": list(layout.dcp_sharded),
        "sliding_window_reach": list(layout.reaches),
    }
    with ExitStack() as stack:
        module = stack.enter_context(engine_package(wheel))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.callback(plugin.remove)  # before the package goes
        own = module("block_table").BlockTables
        plain, wrapped = _runner_class(), _runner_class()
        module("model_runner").GPUModelRunner = wrapped
        with _variables({settings.MODE: settings.ON}):
            plugin.load()
        replaced: Any = module("block_table").BlockTables
        if replaced is own or not hasattr(wrapped.execute_model, "_bt_kernels_wraps"):
            raise RuntimeError("the plugin did not load")
        found = {VLLM: plain(own(**options))}
        ours = [BlockTables(**options) for _ in range(2)]
        for tables in ours:
            tables.warmup()
        found[THREE_CALLS], found[ONE_CALL] = plain(ours[0]), _OneCallRunner(ours[1])

        def plugged(mode: str, **variables: str) -> Any:
            replaced.mode = mode  # that of `load`, once for all tables
            with _variables(variables):
                tables = replaced(**options)
            if type(tables) is own:
                raise RuntimeError(f"the plugin did not replace tables with BT_KERNELS={mode}")
            return wrapped(tables)

        found[DEFERRED] = plugged(settings.ON)
        found[COUNTING] = plugged(settings.ON, **{settings.COUNTERS: "1"})
        found[SHADOW] = plugged(settings.SHADOW, **{settings.SHADOW_STEPS: str(10**9)})
        found[RECORDING] = plugged(settings.ON, **{settings.RECORD: str(Path(folder) / "calls")})
        yield found


@contextmanager
def _variables(given: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _in_turns(
    runners: Mapping[str, Any], workload: Any, steps: list[Any], repeats: int, device: torch.device
) -> dict[str, _Times]:
    """Return the times of each way in µs, `[repeats, steps]`."""
    wait: Callable[[], object] = (
        (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else lambda: None
    )
    times = {name: np.zeros((repeats + 1, len(steps))) for name in runners}
    # At random: a way is faster after one that runs the same code, and slower after shadow mode.
    rng, names = np.random.default_rng(55), np.array(list(runners))
    gc.collect()
    gc.disable()
    try:
        with torch.inference_mode():
            for repeat in range(repeats + 1):
                for runner in runners.values():
                    _rewind(runner.block_tables, workload)
                    wait()
                for number, step in enumerate(steps):
                    for name in rng.permutation(names).tolist():
                        execute = runners[name].execute_model
                        began = perf_counter_ns()
                        execute(step)
                        times[name][repeat, number] = (perf_counter_ns() - began) / 1000
                        wait()
    finally:
        gc.enable()
    return {name: own[1:] for name, own in times.items()}


def _rewind(tables: Any, workload: Any) -> None:
    """Bring tables to the state before the first step, whatever they hold."""
    written: set[int] = set()
    for append in workload.setup:
        overwrite = append.overwrite or append.row not in written
        written.add(append.row)
        tables.append_block_ids(append.row, append.block_ids, overwrite=overwrite)
    tables.apply_staged_writes()


def summarize(times: Mapping[str, _Times]) -> dict[str, Any]:
    """Return figures in µs, by way, from times `[repeats, steps]`.

    Each step has the median of its repetitions: `median`, `p99` and `worst` are over steps, and
    `differences` are of these, step by step. `spread` has the least and the greatest median of a
    repetition.
    """
    by_step = {name: np.median(own, axis=0) for name, own in times.items()}
    return {
        "median": {name: _rounded(np.median(own)) for name, own in by_step.items()},
        "p99": {name: _rounded(np.quantile(own, 0.99)) for name, own in by_step.items()},
        "worst": {name: _rounded(own.max()) for name, own in by_step.items()},
        "spread": {
            name: [_rounded(np.median(own, axis=1).min()), _rounded(np.median(own, axis=1).max())]
            for name, own in times.items()
        },
        "differences": {
            f"{name} - {base}": {
                "median": _rounded(np.median(by_step[name] - by_step[base])),
                "worst": _rounded((by_step[name] - by_step[base]).max()),
            }
            for name, base in DIFFERENCES
            if {name, base} <= by_step.keys()
        },
    }


def _rounded(value: Any) -> float:
    return round(float(value), 2)


def page(found: Mapping[str, Any]) -> Document:
    """Return the tables: median and worst step of each case and way, and differences."""
    cases = found["cases"]
    meanings = MEANINGS_OF_INPUTS if found.get("inputs") else MEANINGS
    names = [name for name in meanings if any(name in case["median"] for case in cases.values())]
    lead = (
        f"Host time of a step in µs, vLLM {found['vllm']} on "
        f"{', '.join(found['gpus']) or 'a CPU, interpreted'}; torch {found['torch']}, "
        f"Triton {found['triton']}, Python {found['python']}. Each step has the median of its "
        "repetitions. Cells: median step / worst step."
    )
    rows = [
        (Cell(name), Cell(f"{case['steps']}"), *(_cell(case, way) for way in names))
        for name, case in cases.items()
    ]
    pairs = [f"{name} - {base}" for name, base in DIFFERENCES if {name, base} <= {*names}]
    more = [
        (
            Cell(name),
            *(
                Cell(f"{of['median']:+.2f} / {of['worst']:+.2f}")
                for pair in pairs
                if (of := case["differences"][pair])
            ),
        )
        for name, case in cases.items()
    ]
    ways = tuple((Cell(name), Cell(meanings[name])) for name in names)
    return Document(
        "Host time of the plugin's steps",
        (lead,),
        (
            Section("Ways", (Table(("way", "what is called"), ways, 2),)),
            Section("Times", (Table(("case", "steps", *names), tuple(rows), 1),)),
            Section("Differences", (Table(("case", *pairs), tuple(more), 1),)),
        ),
    )


def _cell(case: Mapping[str, Any], way: str) -> Cell:
    if way not in case["median"]:
        return Cell(ABSENT)
    return Cell(f"{case['median'][way]:.1f} / {case['worst'][way]:.1f}")
