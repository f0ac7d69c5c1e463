"""Compare vLLM's preparation of batches with ours in one process, in sequences of steps.

    python studies/beside_inputs.py --vllm-source WHEEL --sequences 3000 --processes 2
    python studies/beside_inputs.py --vllm-source WHEEL --sequences 500 --variant VARIANT

A sequence draws an engine (`studies/beside/input_session.py`): sizes, drafts, prompt tails, rows
twice in a batch, padding, steps without tokens, dummy batches. vLLM's own functions, from the files
of an unpacked wheel, and a variant of ours prepare the same batches. After each step, all
persistent buffers are compared whole, stale tails included, and so is what was returned. Outputs
that are new in each step are kept to the end of the sequence, and compared again. On a GPU, a
captured graph reads the buffers, and in every other sequence the device is late: steps are compared
at the end. On the CPU, kernels run in Triton's interpreter. Exits with 1 if anything differs, and
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

from beside_vllm import RELEASE
from common import has_gpu
from fuzz.processes import Played, play_all

from bt_bench.base.errors import UsageError
from bt_bench.worker.machine.environment import read_environment

STEPS_OF_A_SEQUENCE = {"cpu": 6, "cuda": 40}
SEQUENCES_OF_A_BATCH = 5


def main() -> int:
    """Play, print the differences, and write a summary."""
    from beside.input_faults import FAULTS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vllm-source", type=Path, required=True, help="an unpacked wheel")
    parser.add_argument("--variant", default="separate", help="of ours; default: separate")
    parser.add_argument("--sequences", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="that share the GPU")
    parser.add_argument("--device", help="default: cuda, or cpu without a GPU")
    parser.add_argument("--plant", choices=FAULTS, metavar="FAULT", help="a fault of ours")
    parser.add_argument("--session", type=int, help="play this sequence alone")
    parser.add_argument("--out", type=Path, help="folder for beside-inputs.json")
    args = parser.parse_args()
    _classes(args)  # refuses what cannot be played before anything is
    args.device = args.device or ("cuda" if has_gpu() else "cpu")
    sessions = range(args.sequences)
    if args.session is not None:
        sessions = range(args.session, args.session + 1)
    began = time.monotonic()
    batches = [
        sessions[first : first + SEQUENCES_OF_A_BATCH]
        for first in range(0, len(sessions), SEQUENCES_OF_A_BATCH)
    ]
    summary: dict[str, Any] = {"asked": len(sessions)}
    summary |= play_all(
        play_batch, batches, args, processes=args.processes, step="step: ", unit="batches"
    )
    summary |= {"seconds": round(time.monotonic() - began, 1), **_facts(args)}
    _say(summary, args)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "beside-inputs.json").write_text(json.dumps(summary, indent=1) + "\n")
    return 1 if summary["num_differences"] or summary["failures"] else 0


def play_batch(args: argparse.Namespace, sessions: Sequence[int]) -> Played:
    """Play sequences; return the device, counts, and the differences."""
    if args.device == "cpu":  # before the kernels are imported
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    from bt_bench.worker.machine.interpreter import speed_up_interpreter

    torch.set_num_threads(1)
    if args.device == "cpu":
        speed_up_interpreter()
    theirs, ours = classes_of(args.vllm_source, args.variant, args.plant)
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
        seen["sequences"] += 1
        found += [{"session": number, **asdict(difference)} for difference in differences]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return name, seen, found


def classes_of(source: Path, variant: str, fault: str | None = None) -> tuple[type, type]:
    """Return vLLM's functions as a variant, and a variant of ours, perhaps with a fault.

    Raises:
        SystemExit: for a folder without the release, or a variant that does not exist.
    """
    from bt_bench.protocol import SuiteRef, load_suite
    from bt_bench.suites.block_tables.vllm.source import INPUT_MODULES, find_sources
    from bt_bench.variants import find_variants, load_apart

    suite = load_suite(SuiteRef(name="batch_preparation"))
    try:
        (found,) = find_sources([source], INPUT_MODULES).found
        variants = find_variants(suite=suite)
    except UsageError as error:
        raise SystemExit(str(error)) from None
    if found.release != RELEASE:
        raise SystemExit(f"--vllm-source {source} has vLLM {found.release}; expected {RELEASE}")
    if variant not in variants:
        raise SystemExit(f"--variant {variant}: expected one of {', '.join(sorted(variants))}")
    from beside.input_faults import FAULTS

    from bt_bench.suites.batch_preparation.vllm.adapter import adapt

    ours = load_apart(variants[variant])
    return adapt(found), FAULTS[fault](ours) if fault else ours


def play(
    theirs: type, ours: type, seed: int, number: int, device: Any
) -> tuple[Counter[str], list[Any]]:
    """Play a sequence; return counts of its features, and its differences."""
    import numpy as np
    from beside.input_session import InputSession

    rng = np.random.default_rng((seed, number))
    session = InputSession(theirs, ours, rng, device, STEPS_OF_A_SEQUENCE[device.type])
    found = list(session.play())
    return session.seen, found


def _classes(args: argparse.Namespace) -> None:
    from bt_bench.suites.block_tables.vllm.source import INPUT_MODULES, find_sources

    try:
        find_sources([args.vllm_source], INPUT_MODULES)
    except UsageError as error:
        raise SystemExit(str(error)) from None


def _facts(args: argparse.Namespace) -> dict[str, Any]:
    environment = read_environment("cpu")
    return {
        "vllm": RELEASE,
        "variant": args.variant,
        "seed": args.seed,
        "date": time.strftime("%Y-%m-%d"),
        **({"planted": args.plant} if args.plant else {}),
        **environment.model_dump(include={"commit", "dirty", "torch", "triton"}),
    }


def _say(summary: dict[str, Any], args: argparse.Namespace) -> None:
    print(
        f"{summary['num_differences']} differences in {summary['of_these'].get('sequences', 0):,} "
        f"sequences of {summary['asked']:,}, of {summary['steps']:,} steps, "
        f"on {summary['device']}, {summary['seconds']:.0f} s"
    )
    for name, count in summary["of_these"].items():
        print(f"  {name}: {count:,}")
    print(*summary["differences"], sep="\n")
    print(*summary["failures"], sep="\n", file=sys.stderr)
    for difference in summary["differences"][:1]:
        options = f"--vllm-source {args.vllm_source} --variant {args.variant}"
        options += f" --device {args.device} --seed {args.seed}"
        planted = f" --plant {args.plant!r}" if args.plant else ""
        session = f"--session {difference['session']}"
        print(f"Repeat the first: python studies/beside_inputs.py {options}{planted} {session}")


if __name__ == "__main__":
    sys.exit(main())
