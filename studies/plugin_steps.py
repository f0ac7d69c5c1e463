"""Drive the plugin by the runner of vLLM, beside vLLM's own class; or time its steps.

    python studies/plugin_steps.py --vllm-source WHEEL --steps 100000 --processes 8 --out DIR
    python studies/plugin_steps.py --vllm-source WHEEL --inputs --steps 20000 --out DIR
    python studies/plugin_steps.py --vllm-source WHEEL --times --out DIR

Two runners make the same steps: one has the plugin's tables, the other vLLM's own. With the wheel,
class and methods of the runner are vLLM's; without it, stand-ins written for tests. Steps are of
all kinds: decodes, chunked prefills, drafts, windows, redirected writes, dummy runs, early returns,
context parallelism, readers between the calls, and on a GPU captured graphs. Whole buffers and
results are compared after each step, on the device. In some sequences a wrong bit is planted that
shadow mode must find, an operation of ours fails, or the plugin is taken out. Exits with 1 if
anything differs, or less was played than asked. Results are written after each batch, so an
interruption (Ctrl-C, SIGTERM, --seconds) keeps what was played.

With `--inputs` the runners prepare whole batches, and the plugin does so by BT_KERNELS_INPUTS=on
(`studies/engine_steps/batch_session.py`): tokens, prompts, drafts, lookahead, padding. All fields
of the batches are compared, too. Wrong bits are planted in each of the outputs.

With `--times` it measures the host time of steps of traces (`studies/engine_steps/times.py`), or
with `--inputs` that of whole batches (`studies/engine_steps/batch_times.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from beside_vllm import RELEASE, source_of
from common import ROOT, has_gpu
from fuzz.processes import Played, play_all

from bt_bench.base.errors import UsageError
from bt_bench.worker.machine.environment import read_environment

sys.path.insert(0, str(ROOT / "tests"))  # for the runner

STEPS = {"cpu": 3000, "cuda": 100_000}
STEPS_OF_A_SEQUENCE = {"cpu": 20, "cuda": 250}
NUM_LAYOUTS = 20
SEQUENCES_OF_A_BATCH = 4
NAME, NAME_OF_INPUTS = "plugin-steps", "plugin-inputs"
STAND_IN = "stand-in"
FOLDER = "vllm/v1/worker/gpu"  # of vLLM's files that are used


def main() -> int:
    """Play or time, print the outcome, and write it."""
    args = parse()
    # As by Ctrl-C: what was played is kept.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    if args.times:
        return time_steps(args)
    return compare(args)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; exit if the source is not a wheel of the release."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vllm-source", type=Path, help="an unpacked wheel; default: a stand-in")
    parser.add_argument("--steps", type=int, help="at least so many; default: 100,000, CPU: 3,000")
    parser.add_argument("--steps-of-a-sequence", type=int, help="default: 250, on the CPU 20")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="that share the GPU")
    parser.add_argument("--device", help="default: cuda, or cpu without a GPU")
    parser.add_argument("--seconds", type=float, help="begin no sequence after so long")
    parser.add_argument("--session", type=int, help="play this sequence alone")
    parser.add_argument("--warmup", action="store_true", help="compile all kernels of each layout")
    parser.add_argument("--out", type=Path, help=f"folder for {NAME}.json, or the times")
    parser.add_argument("--inputs", action="store_true", help="prepare whole batches")
    parser.add_argument("--times", action="store_true", help="measure host time instead")
    parser.add_argument("--configs", nargs="+", help="configs with traces (--times); default: all")
    parser.add_argument("--select", help="patterns of case names (--times), as in bt-bench -k")
    parser.add_argument("--window", type=int, help="at most so many steps of a trace (--times)")
    parser.add_argument("--repeats", type=int, default=20, help="of each trace (--times)")
    args = parser.parse_args(arguments)
    if args.vllm_source is not None:
        source_of(args.vllm_source)
    args.device = args.device or ("cuda" if has_gpu() else "cpu")
    kind = args.device.partition(":")[0]
    args.steps = STEPS[kind] if args.steps is None else args.steps
    args.steps_of_a_sequence = args.steps_of_a_sequence or STEPS_OF_A_SEQUENCE[kind]
    args.deadline = None if args.seconds is None else time.time() + args.seconds
    return args


def compare(args: argparse.Namespace) -> int:
    """Play sequences in several processes; return the exit code."""
    sessions = range(max(1, -(-args.steps // args.steps_of_a_sequence)))
    if args.session is not None:
        sessions = range(args.session, args.session + 1)
    by_layout = [sessions[first::NUM_LAYOUTS] for first in range(min(NUM_LAYOUTS, len(sessions)))]
    # Those of all layouts first, since each has kernels of its own.
    batches = [
        batch
        for first in range(0, len(by_layout[0]), SEQUENCES_OF_A_BATCH)
        for numbers in by_layout
        if (batch := numbers[first : first + SEQUENCES_OF_A_BATCH])
    ]
    began, about = time.monotonic(), facts(args)

    def finished(played: dict[str, Any]) -> dict[str, Any]:
        summary = {
            "asked": len(sessions) * args.steps_of_a_sequence,
            **played,
            "seconds": round(time.monotonic() - began, 1),
            **about,
        }
        if args.out:
            name = NAME_OF_INPUTS if args.inputs else NAME
            write(args.out / f"{name}.json", json.dumps(summary, indent=1) + "\n")
        return summary

    played = play_all(
        play_batch,
        batches,
        args,
        processes=args.processes,
        step="step: ",
        keep=finished,
        unit="batches",
    )
    summary = finished(played)
    say(summary, args)
    planted, found = (
        summary["of_these"].get(name, 0)
        for name in ("planted bits", "planted bits that shadow mode found")
    )
    complete = summary["steps"] >= summary["asked"] and planted == found
    return 0 if complete and not summary["num_differences"] and not summary["failures"] else 1


def play_batch(args: argparse.Namespace, sessions: Sequence[int]) -> Played:
    """Play sequences of one layout; return the device, counts, and the differences."""
    prepare_process(args)
    import torch

    from bt_kernels.engines.batches import BatchInputs
    from bt_kernels.engines.plugin.deferring import DeferringTables

    if not args.warmup:  # kernels are compiled once they are needed
        DeferringTables.warmup = BatchInputs.warmup = lambda _: 0.0  # type: ignore[method-assign]
    device = torch.device(args.device)
    seen: Counter[str] = Counter()
    found: list[Any] = []
    if args.inputs:
        from engine_steps.batch_session import batch_package as package
    else:
        from engine_steps.package import engine_package as package
    with package(args.vllm_source) as module:
        runner = module("model_runner").GPUModelRunner
        for number in sessions:
            if args.deadline is not None and time.time() > args.deadline:
                break
            try:
                counted, differences = play(runner, args, number, device)
            except Exception as error:
                error.add_note(f"in sequence {number}")
                raise
            seen.update(counted)
            found += [{"session": number, **asdict(difference)} for difference in differences]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return name, seen, found


def play(
    runner: type[Any], args: argparse.Namespace, number: int, device: Any
) -> tuple[Counter[str], list[Any]]:
    """Play a sequence; return counts of its features, and its differences."""
    import numpy as np
    from beside.draw import INTERPRETED, LAYOUTS, ON_GPU, layout_of
    from engine_steps.session import EngineSession

    rng = np.random.default_rng((args.seed, number, 55))
    if args.inputs:
        from engine_steps.batch_session import BatchSession

        batches = BatchSession(runner, device, rng, args.steps_of_a_sequence)
        different = list(batches.play())
        return batches.seen + Counter(sequences=1), different
    which, on_gpu = number % len(LAYOUTS), device.type == "cuda"
    if on_gpu:
        # Few numbers of rows for each layout, since each pair has kernels of its own.
        rows = ON_GPU.rows[which % 4 :: 3]
        limits = ON_GPU._replace(rows=rows)
    else:
        # Only vLLM's kernel cannot be interpreted with context parallelism.
        limits = INTERPRETED._replace(ranks=args.vllm_source is None)
    drawn = layout_of(rng, LAYOUTS[which], limits, Counter())
    session = EngineSession(
        *(runner, drawn, device, rng, args.steps_of_a_sequence),
        captures=on_gpu and args.vllm_source is not None,  # the stand-in waits for the GPU
    )
    found = list(session.play())
    layout, seen = drawn.layout, session.seen
    seen["sequences"] += 1
    seen[f"layout: {drawn.name}"] += 1
    for name, true in (
        ("with context parallelism", layout.cp_size > 1),
        ("with a window", layout.cp_size == 1 and any(layout.sliding_window_reach)),
        ("with a group without slots", not all(layout.slot_mapping_enabled)),
    ):
        seen[f"sequences {name}"] += bool(true)
    return seen, found


def prepare_process(args: argparse.Namespace) -> None:
    """Have kernels interpreted on the CPU, before they are imported."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.insert(0, str(ROOT / "tests"))
    if args.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    from bt_bench.worker.machine.interpreter import speed_up_interpreter

    torch.set_num_threads(1)
    if args.device == "cpu":
        speed_up_interpreter()


def time_steps(args: argparse.Namespace) -> int:
    """Measure the host time of steps; return the exit code."""
    prepare_process(args)
    from engine_steps.times import page

    if args.inputs:
        from engine_steps.batch_times import measure
    else:
        from engine_steps.times import measure
    from bt_bench.report import render_document

    found: dict[str, Any] = {**facts(args), "cases": {}, "failures": []}

    def keep() -> None:
        if args.out:
            name = f"{NAME_OF_INPUTS}-times" if args.inputs else "plugin-times"
            write(args.out / f"{name}.json", json.dumps(found, indent=1) + "\n")
            write(args.out / f"{name}.md", render_document(page(found)))

    try:
        for name, case in measure(args, found):
            found["cases"][name] = case
            keep()
            print(f"{name}: {json.dumps(case['median'])}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        found["failures"].append("interrupted")
    except UsageError as error:
        raise SystemExit(str(error)) from None
    keep()
    print(render_document(page(found)))
    print(*found["failures"], sep="\n", file=sys.stderr)
    return 1 if found["failures"] or not found["cases"] else 0


def facts(args: argparse.Namespace) -> dict[str, Any]:
    """Return where and from what the results are."""
    environment = read_environment("cpu" if args.device == "cpu" else "cuda")
    return {
        "vllm": RELEASE if args.vllm_source else STAND_IN,
        "vllm_sha256": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name in ("block_table.py", "model_runner.py")
            if args.vllm_source and (path := args.vllm_source / FOLDER / name).is_file()
        },
        "seed": args.seed,
        "processes": args.processes,
        "date": time.strftime("%Y-%m-%d"),
        **environment.model_dump(
            mode="json",
            include={
                *("commit", "dirty", "torch", "triton", "python", "cuda", "driver", "cpu"),
                *("cpu_count", "cpu_governor", "helpers"),
            },
        ),
        "gpus": [gpu.name for gpu in environment.gpus],
    }


def write(path: Path, text: str) -> None:
    """Write a file at once, so that an interruption leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def say(summary: dict[str, Any], args: argparse.Namespace) -> None:
    """Print what was played and found."""
    print(
        f"{summary['num_differences']} differences in {summary['steps']:,} steps "
        f"({summary['asked']:,} asked) with vLLM {summary['vllm']}, on {summary['device']}, "
        f"{summary['seconds']:.0f} s"
    )
    for name, count in summary["of_these"].items():
        print(f"  {name}: {count:,}")
    print(*summary["differences"], sep="\n")
    print(*summary["failures"], sep="\n", file=sys.stderr)
    for difference in summary["differences"][:1]:
        source = f"--vllm-source {args.vllm_source} " if args.vllm_source else ""
        options = f"--steps-of-a-sequence {args.steps_of_a_sequence} --seed {args.seed}"
        print(
            f"Repeat the first: python studies/{Path(__file__).name} {source}--device "
            f"{args.device} {options} --session {difference['session']}"
        )


if __name__ == "__main__":
    sys.exit(main())
