"""Compare vLLM's block tables with ours in one process, in sequences of an engine's calls.

    python studies/beside_vllm.py --vllm-source WHEEL --sequences 2000 --processes 2
    python studies/beside_vllm.py --vllm-source WHEEL --steps 20000 --processes 8

A sequence builds vLLM's class, from the files of an unpacked wheel, and `bt_kernels.BlockTables`
with a layout of a model's preset (`bt-bench workload` prints them) or without any group, and makes
with both all calls that vLLM's runners and speculators make (`studies/beside/`). After each step,
all buffers are compared as a whole: source and input tables, slots, numbers of blocks, the caller's
buffers, and what was returned. On the CPU, kernels run in Triton's interpreter, without context
parallelism, and calls are repeated instead of captured. Exits with 1 if anything differs, and
prints the command that repeats the sequence. `--plant` plants a fault in ours, which must be found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import has_gpu
from fuzz.processes import Played, play_all

from bt_bench.base.errors import UsageError
from bt_bench.worker.machine.environment import read_environment

RELEASE = "0.33.0"
STEPS_OF_A_SEQUENCE = {"cpu": 6, "cuda": 50}
FAULTS = ("slot", "window", "tail", "rows", "apply")
BATCHES = 20  # one for each layout, each of which compiles its own kernels


def main() -> int:
    """Play, print the differences, and write a summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vllm-source", type=Path, required=True, help="an unpacked wheel")
    parser.add_argument("--sequences", type=int, default=0, help="at least so many")
    parser.add_argument("--steps", type=int, default=0, help="at least so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="that share the GPU")
    parser.add_argument("--device", help="default: cuda, or cpu without a GPU")
    parser.add_argument("--plant", choices=FAULTS, help="a fault of ours")
    parser.add_argument("--session", type=int, help="play this sequence alone")
    parser.add_argument("--out", type=Path, help="folder for beside-vllm.json")
    args = parser.parse_args()
    source_of(args.vllm_source)
    args.device = args.device or ("cuda" if has_gpu() else "cpu")
    num_sequences = max(
        args.sequences, -(-args.steps // STEPS_OF_A_SEQUENCE[args.device.partition(":")[0]]), 1
    )
    sessions = range(num_sequences)
    if args.session is not None:
        sessions = range(args.session, args.session + 1)
    began = time.monotonic()
    summary = compare(args, sessions)
    summary |= {"seconds": round(time.monotonic() - began, 1), **_facts(args)}
    _say(summary, args)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "beside-vllm.json").write_text(json.dumps(summary, indent=1) + "\n")
    return 1 if summary["num_differences"] or summary["failures"] else 0


def source_of(folder: Path) -> Any:
    """Return the source of vLLM in a folder; exit if it holds none, or another release."""
    from bt_bench.suites.block_tables.vllm.source import find_sources  # not earlier: see play_batch

    try:
        (source,) = find_sources([folder]).found
    except UsageError as error:
        raise SystemExit(str(error)) from None
    if source.release != RELEASE:
        raise SystemExit(f"--vllm-source {folder} has vLLM {source.release}; expected {RELEASE}")
    return source


def compare(args: argparse.Namespace, sessions: range) -> dict[str, Any]:
    """Play the sequences in several processes, those of a layout in one; return the summary."""
    batches = [
        batch
        for first in range(BATCHES)
        if (batch := [number for number in sessions if number % BATCHES == first])
    ]
    played = play_all(play_batch, batches, args, processes=args.processes, step="step: ")
    from beside.draw import LEFT_OUT  # not earlier: see `play_batch`

    counts = played["of_these"]
    left_out = {
        name: {"count": counts.pop(f"left out: {name}", 0), "why": why}
        for name, why in LEFT_OUT.items()
    }
    return {"sequences": len(sessions), **played, "left_out": left_out}


def play_batch(args: argparse.Namespace, sessions: Sequence[int]) -> Played:
    """Play sequences; return the device, counts, and the differences."""
    if args.device == "cpu":  # before the kernels are imported
        os.environ["TRITON_INTERPRET"] = "1"
    import torch
    from beside.faults import FAULTS as PLANTED

    from bt_bench.suites.block_tables.vllm.loading import load_block_tables
    from bt_bench.worker.machine.interpreter import speed_up_interpreter
    from bt_kernels import BlockTables

    torch.set_num_threads(1)
    if args.device == "cpu":
        speed_up_interpreter()
    theirs = load_block_tables(source_of(args.vllm_source))
    ours = PLANTED[args.plant] if args.plant else BlockTables
    device = torch.device(args.device)
    seen: Counter[str] = Counter()
    found: list[Any] = []
    for number in sessions:
        try:
            counted, differences = play(theirs, ours, args.seed, number, device)
        except Exception as error:
            error.add_note(f"in sequence {number}")
            raise
        seen.update(counted)
        found += [{"session": number, **asdict(difference)} for difference in differences]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return name, seen, found


def play(
    theirs: type[Any], ours: type[Any], seed: int, number: int, device: Any
) -> tuple[Counter[str], list[Any]]:
    """Play a sequence; return counts of its features, and its differences."""
    import numpy as np
    from beside.draw import INTERPRETED, LAYOUTS, ON_GPU, layout_of
    from beside.session import Session

    limits = ON_GPU if device.type == "cuda" else INTERPRETED
    rng = np.random.default_rng((seed, number))
    left_out: Counter[str] = Counter()
    drawn = layout_of(rng, LAYOUTS[number % len(LAYOUTS)], limits, left_out)
    session = Session(theirs, ours, drawn, device, rng, left_out)
    found = list(session.play(STEPS_OF_A_SEQUENCE[device.type]))
    layout = drawn.layout
    seen = session.seen
    seen[f"layout: {drawn.name}"] += 1
    for name, true in (
        ("with context parallelism", layout.cp_size > 1),
        ("with a window", layout.cp_size == 1 and any(layout.sliding_window_reach)),
        ("with a group without slots", not all(layout.slot_mapping_enabled)),
        ("with random values before each step", session.dirty),
    ):
        seen[f"sequences {name}"] += bool(true)
    seen.update({f"left out: {name}": count for name, count in left_out.items()})
    return seen, found


def _facts(args: argparse.Namespace) -> dict[str, Any]:
    environment = read_environment("cpu")
    return {
        "vllm": RELEASE,
        "seed": args.seed,
        "date": time.strftime("%Y-%m-%d"),
        **({"planted": args.plant} if args.plant else {}),
        **environment.model_dump(include={"commit", "dirty", "torch", "triton"}),
    }


def _say(summary: dict[str, Any], args: argparse.Namespace) -> None:
    print(
        f"{summary['num_differences']} differences in {summary['sequences']:,} sequences, of "
        f"{summary['steps']:,} steps, on {summary['device']}, {summary['seconds']:.0f} s"
    )
    for name, count in summary["of_these"].items():
        print(f"  {name}: {count:,}")
    for found in summary["left_out"].values():
        print(f"  left out {found['count']:,} times: {found['why']}")
    print(*summary["differences"], sep="\n")
    print(*summary["failures"], sep="\n", file=sys.stderr)
    for difference in summary["differences"][:1]:
        options = f"--vllm-source {args.vllm_source} --device {args.device} --seed {args.seed}"
        planted = f" --plant {args.plant}" if args.plant else ""
        session = f"--session {difference['session']}"
        print(
            f"Repeat the first: python studies/{Path(__file__).name} {options}{planted} {session}"
        )


if __name__ == "__main__":
    sys.exit(main())
