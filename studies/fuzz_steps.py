"""Compare random steps with an oracle in plain torch, on a GPU or in Triton's interpreter.

    python studies/fuzz_steps.py --steps 50000 --processes 8 --out reports/h100/fuzz

A session plays some sixty steps on one object: eager, captured and replayed steps, and single
operations. Sessions cover 1 to 8 groups, up to 1,024 rows and 16,384 tokens, all kinds of lengths,
dummies, rows that occur twice or do not exist, windows, context parallelism, and buffers of the
caller. Input tables and slots are filled with random values before a step, and all buffers are
compared as a whole after it (`studies/fuzz/`). Exits with 1 if anything differs, and prints the
command that repeats the session.
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
from importlib import import_module
from pathlib import Path
from typing import Any

from common import ROOT
from fuzz.processes import Played, play_all

from bt_bench.worker.machine.environment import read_environment

STEPS_OF_A_SESSION = 60
LAYOUTS = 48  # shared by all sessions in turn, since each layout compiles its own kernels
VARIANTS = ("one_launch", "one_launch", "one_launch", "one_launch_graph", "fused")


def main() -> int:
    """Fuzz, print the differences, and write a summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=50_000, help="at least so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="that share the GPU")
    parser.add_argument("--device", default=None, help="default: cuda, or cpu without a GPU")
    parser.add_argument("--variant", action="append", help="may be repeated; default: a mix")
    parser.add_argument("--kernels", type=Path, default=ROOT / "kernels", help="that are fuzzed")
    parser.add_argument("--session", type=int, help="play this one alone")
    parser.add_argument("--out", type=Path, help="folder for fuzz.json")
    args = parser.parse_args()
    sessions = range(-(-args.steps // STEPS_OF_A_SESSION))
    if args.session is not None:
        sessions = range(args.session, args.session + 1)
    began = time.monotonic()
    summary = fuzz(args, sessions)
    summary |= {"seconds": round(time.monotonic() - began, 1), **_facts(args)}
    _say(summary, args)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "fuzz.json").write_text(json.dumps(summary, indent=1) + "\n")
    return 1 if summary["num_differences"] or summary["failures"] else 0


def fuzz(args: argparse.Namespace, sessions: range) -> dict[str, Any]:
    """Play the sessions in several processes, those of a layout in one; return the summary."""
    by_layout = [
        of_layout
        for layout in range(LAYOUTS)
        if (of_layout := [each for each in sessions if each % LAYOUTS == layout])
    ]
    return play_all(_play_all, by_layout, args, processes=args.processes, step="kind: ")


def _play_all(args: argparse.Namespace, sessions: Sequence[int]) -> Played:
    """Play sessions; return the device, counts of their features, and their differences."""
    sys.path.insert(0, str(args.kernels.resolve()))
    import torch

    torch.set_num_threads(1)
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cpu":  # before the kernels are imported
        os.environ["TRITON_INTERPRET"] = "1"
    seen: Counter[str] = Counter()
    found: list[Any] = []
    for number in sessions:
        try:
            counted, differences = _play(args, number, device)
        except Exception as error:
            error.add_note(f"in session {number}")
            raise
        seen.update(counted)
        found += [{"session": number, **difference} for difference in differences]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return name, seen, found


def _play(args: argparse.Namespace, number: int, device: Any) -> tuple[dict[str, int], list[Any]]:
    """Play a session; return counts of its features, and its differences."""
    import numpy as np
    from fuzz.draw import INTERPRETED, ON_GPU, layout_of
    from fuzz.session import STEPS_INTERPRETED, Session

    limits = ON_GPU if device.type == "cuda" else INTERPRETED
    layout = layout_of(np.random.default_rng((args.seed, number % LAYOUTS)), limits)
    rng = np.random.default_rng((args.seed, 1_000 + number))
    name = str(rng.choice(args.variant or VARIANTS))
    variant = import_module(f"bt_kernels.variants.{name}").Variant
    session = Session(variant, layout, device, rng)
    steps = STEPS_OF_A_SESSION if device.type == "cuda" else STEPS_INTERPRETED
    found = [asdict(difference) | {"variant": name} for difference in session.play(steps)]
    session.seen[f"variant: {name}"] = steps
    session.seen[f"groups: {layout.num_groups}"] = steps
    return dict(session.seen), found


def _facts(args: argparse.Namespace) -> dict[str, Any]:
    environment = read_environment("cpu")
    return {
        "seed": args.seed,
        "date": time.strftime("%Y-%m-%d"),
        **environment.model_dump(include={"commit", "dirty", "torch", "triton"}),
    }


def _say(summary: dict[str, Any], args: argparse.Namespace) -> None:
    print(
        f"{summary['num_differences']} differences in {summary['steps']:,} steps on "
        f"{summary['device']}, {summary['seconds']:.0f} s"
    )
    for name, count in summary["of_these"].items():
        print(f"  {name}: {count:,}")
    print(*summary["differences"], sep="\n")
    print(*summary["failures"], sep="\n", file=sys.stderr)
    for difference in summary["differences"][:1]:
        session = f"--seed {args.seed} --session {difference['session']}"
        print(f"Repeat the first: python {Path(__file__).name} {session}")


if __name__ == "__main__":
    sys.exit(main())
