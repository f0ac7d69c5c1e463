"""Records process-rounds of equal code: what a gate's statistics are tried on.

    python benchmarks/record_rounds.py --rounds 100 --config origin --out recording.json

Every arm of every round is measured by a process of its own, in random order; all arms are the
working tree's kernels. Stops after `--seconds`, with the rounds that there are then; the file is
whole after every batch of processes. Ends with 1 if there are fewer rounds than asked for.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from bt_bench.cli.progress import progress_on_stderr
from bt_bench.config.load import load_config
from bt_bench.results.rounds import GateArm
from bt_bench.runs.gate.recording import record
from bt_bench.runs.gate.sides import RoundsRequest, Side
from bt_bench.runs.gate.wanted import choose_metrics
from bt_bench.suites.block_tables import operations as ops
from bt_bench.variants.catalogue import choose, find_variants
from bt_bench.worker.main import serve


def main() -> int:
    """Records, and says what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--arms", default="base,head,control")
    parser.add_argument("--config", default="origin")
    parser.add_argument("--variants", help="A,B,… in place of those of the config")
    parser.add_argument("--metric", action="append", default=[], help="default: as of a gate")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--workers", type=int, help="processes that are there at once")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    started = time.monotonic()
    spec = load_config(args.config, variants=args.variants and args.variants.split(","))
    if args.device == "cpu":
        spec = spec.model_copy(update={"operations": [ops.STAGE]})
    side = Side("working tree", tuple(choose(spec.variants, find_variants())))
    arms = [GateArm(name) for name in args.arms.split(",")]
    request = RoundsRequest(
        spec=spec,
        sides=dict.fromkeys(arms, side) | {GateArm.BASE: side, GateArm.HEAD: side},
        metrics=choose_metrics(args.metric, spec.operations, args.device),
        device=args.device,
        serve=serve,
        workers=args.workers,
        seed=args.seed,
    )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with progress_on_stderr("recording") as progress:
        recording = record(
            request,
            args.rounds,
            args.out,
            ["python", "benchmarks/record_rounds.py", *sys.argv[1:]],
            progress,
            lambda longest: time.monotonic() - started + longest > args.seconds,
        )
    rounds, subjects = len(recording.rounds), len(recording.subjects)
    missing = sum(v is None for r in recording.rounds for row in r.values.values() for v in row)
    seconds = time.monotonic() - started
    print(
        f"{rounds} rounds of {len(request.sides)} arms and {subjects} subjects in {seconds:.0f} s: "
        f"{args.out}; {missing} values are missing"
    )
    return 0 if rounds >= args.rounds else 1


if __name__ == "__main__":
    sys.exit(main())
