"""Whether another commit of the harness measures the same: both run in turn, process by process.

    python benchmarks/in_turn.py --base 35c41d3 --turns 6 --out reports/h200/in-turn

In each turn both trees run the same commands, in random order: `calibrate --quick`, and short
sweeps of the configs `origin` and `headline`. A figure of this tree is compared with that of the
other tree in the same turn; the logarithms of their ratios are one observation per turn. A figure
is resolved as different if its interval excludes 1, by Student's t over turns, corrected by Holm's
method over the figures of its command, and if it differs by more than its floor. Needs a GPU, and
some 75 s a turn.

Writes `in-turn.json` with every figure, and `in-turn.md`; `--render` writes the page anew. Ends
with 1 if a figure is resolved as different, or a command takes longer.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bt_bench.analysis import Correction, Entry, Estimate, Judgement, Verdict, median
from bt_bench.analysis.judging import judge_entries, margin_of, tick_error
from bt_bench.analysis.statistics.estimates import trimmed_estimate
from bt_bench.report import Cell, Document, Section, Table, print_document, render_document
from bt_bench.report.formats.texts import change_text, interval_text, value_text
from bt_bench.results import Metric, compacted, metric_named, read_run
from bt_bench.suites.block_tables import operations as ops

ROOT = Path(__file__).resolve().parent.parent
SIDES = ("base", "this")
SECONDS = "seconds"
ALPHA = 0.01
FEWEST_TURNS = 5

_SHORT = tuple(
    part
    for change in ("case_seconds=1", "instances=2", "profile_rounds=6")
    for part in ("--set", f"plan.{change}")
)
SWEEPS = {
    "origin": (
        *("sweep", "origin", "--operations", "step", "--variants", "baseline,fused"),
        *("-k", "medium_batch_4grp", *_SHORT),
    ),
    "headline": (
        *("sweep", "benchmarks/headline.yaml", "--variants", "fused,one_launch"),
        *("-k", "eight", *_SHORT),
    ),
}
CALIBRATE = ("calibrate", "--quick", "--json")

Figures = dict[str, float]  # by `case variant metric`, or by the name of a calibration's figure


def main() -> int:
    """Runs both trees in turn, and writes what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", help="commit, or folder with the other tree")
    parser.add_argument("--turns", type=int, default=6, help=f"at least {FEWEST_TURNS}; default: 6")
    parser.add_argument("--seed", type=int, default=1, help="of the order; default: 1")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--render", action="store_true", help="measure nothing; read DIR")
    args = parser.parse_args()
    stored = args.out / "in-turn.json"
    if not args.render:
        if args.base is None or args.turns < FEWEST_TURNS:
            parser.error(f"expected --base, and --turns of {FEWEST_TURNS} or more")
        args.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            trees = {"base": _tree(args.base, Path(scratch)), "this": ROOT}
            measure(trees, args.base, args.turns, args.seed, stored)
    found = json.loads(stored.read_text(encoding="utf-8"))
    if len(found["turns"]) < FEWEST_TURNS:
        sys.exit(f"{stored} has {len(found['turns'])} turns; expected {FEWEST_TURNS} or more")
    judgements = judge_all(found["turns"])
    page = document(found, judgements)
    (args.out / "in-turn.md").write_text(render_document(page), encoding="utf-8")
    print_document(page)
    return 1 if different(judgements) else 0


def measure(trees: Mapping[str, Path], base: str, turns: int, seed: int, stored: Path) -> None:
    """Runs all commands of all turns; `stored` is whole after each turn."""
    rng = random.Random(seed)
    found: dict[str, Any] = {"schema_version": 1, "base": base, "environment": None, "turns": []}
    for number in range(turns):
        turn: dict[str, dict[str, Figures]] = {}
        for command in ("calibrate", *SWEEPS):
            turn[command] = {}
            for side in rng.sample(SIDES, len(SIDES)):
                figures, environment = _figures(trees[side], command)
                turn[command][side] = figures
                found["environment"] = found["environment"] or environment
                seconds = figures[SECONDS]
                print(f"turn {number + 1}: {command} {side} {seconds:.1f} s", file=sys.stderr)
        found["turns"].append(turn)
        stored.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def judge_all(turns: Sequence[Mapping[str, Mapping[str, Figures]]]) -> dict[str, list[Judgement]]:
    """Per command a judgement on each figure that all turns of both trees have."""
    return {
        command: judge_entries(_entries(turns, command), Correction.HOLM, ALPHA)
        for command in turns[0]
    }


def different(judgements: Mapping[str, Sequence[Judgement]]) -> list[Judgement]:
    """The figures that are resolved as different; of durations those that are longer."""
    return [
        each
        for found in judgements.values()
        for each in found
        if each.verdict is Verdict.SLOWER
        or (each.verdict is Verdict.FASTER and each.metric != SECONDS)
    ]


def _entries(turns: Sequence[Mapping[str, Mapping[str, Figures]]], command: str) -> list[Entry]:
    sides = [[turn[command][side] for turn in turns] for side in SIDES]
    names = [
        name for name in sides[0][0] if all(each.get(name) for of_side in sides for each in of_side)
    ]
    entries = []
    for name in names:
        base, this = ([figures[name] for figures in of_side] for of_side in sides)
        metric = _metric(name)
        estimate = trimmed_estimate(np.log(np.array(this) / np.array(base)), share=0.0)
        if estimate is None or base == this:  # too few turns, or nothing to tell apart
            continue
        tick = tick_error(metric.tick, np.array(median(base)), np.array(median(this)))
        estimate = replace(estimate, error=max(estimate.error, float(tick)))
        entry = Entry(ops.STEP, name, metric, *SIDES, median(base), median(this))
        entry.outcome = estimate
        entry.margin = margin_of(metric, entry.base_value, configured=0.0)
        entries.append(entry)
    return entries


def _metric(name: str) -> Metric:
    """The metric of a figure; those of a calibration have no floor."""
    if " " not in name:
        return Metric(name, "s" if name == SECONDS else "us")
    return metric_named(name.rpartition(" ")[2])


def overall(turns: Sequence[Mapping[str, Mapping[str, Figures]]], command: str) -> Estimate | None:
    """The mean log ratio over all figures of a command, with one observation per turn."""
    names = [entry.case for entry in _entries(turns, command) if entry.case != SECONDS]
    means = []
    for turn in turns:
        base, this = (turn[command][side] for side in SIDES)
        means.append(sum(math.log(this[name] / base[name]) for name in names) / len(names))
    return trimmed_estimate(means, share=0.0)


def document(found: Mapping[str, Any], judgements: Mapping[str, Sequence[Judgement]]) -> Document:
    """The page: a line per command, and the figures that moved most."""
    turns, environment = found["turns"], found["environment"]
    rows = []
    for command, of_command in judgements.items():
        figures = [each for each in of_command if each.metric != SECONDS]
        seconds = [each for each in of_command if each.metric == SECONDS]
        mean = overall(turns, command)
        interval = mean.interval(0.95) if mean else None
        ends = [math.exp(interval.low), math.exp(interval.high)] if interval else [None, None]
        rows.append(
            (
                Cell(command),
                Cell(str(len(figures))),
                Cell(str(len(different({command: figures})))),
                Cell(_resolves(figures)),
                Cell(change_text(math.exp(mean.location) if mean else None)),
                Cell(interval_text(*ends)),
                *(Cell(value_text(each.base_value, "s")) for each in seconds),
                *(Cell(value_text(each.other_value, "s")) for each in seconds),
                *(Cell(interval_text(each.low, each.high)) for each in seconds),
            )
        )
    columns = ("Command", "Figures", "Different", "Resolves (%)", "Mean (%)", "95 % (%)")
    columns += ("Base (s)", "This (s)", "Longer by (%)")
    moved = sorted(
        (each for of_command in judgements.values() for each in of_command),
        key=lambda each: -abs(math.log(each.ratio or 1.0)),
    )
    moved_rows = tuple(
        (
            Cell(each.case),
            Cell(value_text(each.base_value, each.unit)),
            Cell(value_text(each.other_value, each.unit)),
            Cell(change_text(each.ratio)),
            Cell(interval_text(each.low, each.high)),
            Cell(each.verdict.value),
        )
        for each in moved[:12]
    )
    gpu = environment["gpus"][0]["name"] if environment["gpus"] else "no GPU"
    lead = (
        f"{len(turns)} turns on one {gpu}, torch {environment['torch']}, Triton "
        f"{environment['triton']}; base: {found['base']}. Each command of each tree is a process "
        "of its own. Changes are of this tree against the base, positive for more.",
        "Different are figures whose interval, corrected by Holm's method over the figures of the "
        f"command at alpha {ALPHA:g}, lies beyond their floor. What is resolved is half the length "
        "of that interval, of the median figure: smaller changes of one figure are not seen. The "
        "mean is over all figures of a command, with one observation per turn.",
    )
    return Document(
        "Two trees in turn",
        lead,
        (
            Section("Commands", (Table(columns, tuple(rows), 1),)),
            Section(
                "Figures that moved most",
                (
                    Table(
                        ("Figure", "Base", "This", "Change (%)", "Interval (%)", "Verdict"),
                        moved_rows,
                        1,
                    ),
                ),
            ),
        ),
    )


def _resolves(figures: Sequence[Judgement]) -> str:
    """Half the length of the interval of the median figure, in percent."""
    halves = [math.log(each.high / each.low) / 2 for each in figures if each.low and each.high]
    return f"{100 * math.expm1(median(halves)):.0f}" if halves else "–"


def _tree(base: str, scratch: Path) -> Path:
    """The other tree: a folder as it is, or a commit that is checked out."""
    if Path(base).is_dir():
        return Path(base).resolve()
    archive = subprocess.run(["git", "archive", base], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(scratch)], input=archive.stdout, check=True)
    return scratch


def _figures(tree: Path, command: str) -> tuple[Figures, dict[str, Any]]:
    """The figures of one process, with how long it took; and its environment."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        arguments = CALIBRATE if command == "calibrate" else (*SWEEPS[command], "--out", str(out))
        paths = [str(tree), str(tree / "kernels"), os.environ.get("PYTHONPATH", "")]
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "bt_bench", *arguments],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - started
        if command == "calibrate" and done.stdout.startswith("{"):  # 5: a promise is not kept
            said = json.loads(done.stdout)
            return _of_calibration(said["calibration"]) | {SECONDS: seconds}, said["environment"]
        if done.returncode:
            sys.exit(f"{command} in {tree} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        results = read_run(out)
    figures: Figures = {}
    for result in results:
        for case in compacted(result).cases:
            for name, taken in case.taken.items():
                figures[f"{case.case} {result.variant.name} {name}"] = median(
                    np.median(taken.samples, axis=0)
                )
    environment: dict[str, Any] = results[0].environment.model_dump(mode="json")
    return figures | {SECONDS: seconds}, environment


def _of_calibration(calibration: Mapping[str, Any]) -> Figures:
    found = {each["name"]: median(each["samples"]) for each in calibration["figures"]}
    for line in calibration["lines"]:
        for length, samples in zip(line["set_us"], line["reported_us"], strict=True):
            if samples:
                found[f"{line['method']}_{length:g}"] = median(samples)
    return found


if __name__ == "__main__":
    sys.exit(main())
