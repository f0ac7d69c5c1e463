"""Compare pairs of runs of equal code, as they are and with a slowdown planted in one figure.

    python studies/equal_pairs.py RUNS --out reports/equal-pairs

RUNS holds the folders of runs of equal code by `bt-bench sweep`. In the order of their names, the
first run is compared with the second, the third with the fourth, and so on. Make the two runs of a
pair one after the other on one machine. Each variant is compared by `bt-bench compare` with its
defaults, which has to exit with 0. Then one primary figure of one case, drawn by `--seed`, is
slowed by twice its printed detection limit, in all samples of the second run that contain it. The
comparison is repeated, and has to exit with 1. Writes `equal-pairs.json` and `equal-pairs.md`.
Exits with 1 if a pair of equal runs does not pass, or if fewer than nine in ten slowdowns of a
variant are found. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import bt_bench
from counting import Outcome, once, page_of, quartiles, rate, report, total
from measured import Measured

from bt_bench.analysis import Verdict
from bt_bench.report import Document
from bt_bench.results import Cache, LaunchPath, Load, Quantity, VariantResult, read_result
from bt_bench.runs.selfcheck.rates import Rate

TIMES_LIMIT = 2.0
PROMISES = {"equal code passes": (1.0, 1.0), "slowdown found": (0.9, 1.0)}

_CONTAINING = {
    Quantity.HOST_US: (Quantity.STEP_US, Quantity.PIPELINED_US, Quantity.EVENT_US),
    Quantity.GPU_US: (Quantity.SPAN_US, Quantity.STEP_US, Quantity.EVENT_US),
    Quantity.STAGE_US: (),
}
"""By primary quantity, the other quantities that take longer if it does."""

Pair = Mapping[str, Any]
"""Two runs of a variant, compared, as `equal-pairs.json` has it.

- base, other, variant, device: folder names of the runs, the variant, and its GPU;
- code, verdicts: exit code without a slowdown, and counts of primary figures by verdict;
- limits: by metric, the printed detection limits of its cases, as shares;
- planted: the comparison with a slowdown, or `None` if no figure has a limit: the figure (`key`,
  `metric`, `base_us`, `limit`), by how much it was slowed (`slower_us`), and the `verdict` on it
  with the exit code (`code`).
"""


def main() -> int:
    """Compare all pairs and write both files; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folders = sorted(each for each in options.runs.iterdir() if (each / "config.yaml").is_file())
    if not folders or len(folders) % 2:
        parser.error(f"{options.runs} has {len(folders)} run folders; expected an even number")
    pairs = []
    for base, other in zip(folders[::2], folders[1::2], strict=True):
        for name in sorted(path.name for path in base.glob("*.json")):
            pairs.append(pair := compare_pair(base / name, other / name, options.seed))
            print(*pair.values(), file=sys.stderr)
    outcomes = {
        variant: total(map(outcome_of, (pair for pair in pairs if pair["variant"] == variant)))
        for variant in dict.fromkeys(pair["variant"] for pair in pairs)
    }
    facts = {
        "schema_version": 2,
        "seed": options.seed,
        "measured": measured([p for folder in folders for p in sorted(folder.glob("*.json"))]),
        "times_limit": TIMES_LIMIT,
        "pairs": pairs,
    }
    return report(options.out, "equal-pairs", facts, outcomes, page, PROMISES)


def outcome_of(pair: Pair) -> Outcome:
    """Return the rates of a pair, and its detection limits."""
    planted, count = pair["planted"], sum(pair["verdicts"].values())
    found = planted is not None and (planted["code"], planted["verdict"]) == (1, "SLOWER")
    rates = {"equal code passes": once(pair["code"] == 0), "slowdown found": once(found)}
    rates |= {each.value: Rate(pair["verdicts"].get(each, 0), count) for each in Verdict}
    return Outcome(rates, dict(pair["limits"]))


def compare_pair(base: Path, other: Path, seed: int) -> Pair:
    """Compare two results as they are, and then with a slowdown in the second one."""
    code, judged = compare(base, other)
    timed = [each for each in judged["judgements"] if each["decides"] and each["evidence"]]
    limits = defaultdict(list)
    for each in timed:
        limits[each["metric"]].append(each["evidence"]["detectable"])
    names = base.parent.name, other.parent.name, base.stem
    chosen = random.Random(f"{seed} {' '.join(names)}").choice(timed) if timed else None
    return {
        **dict(zip(("base", "other", "variant"), names, strict=True)),
        "device": Measured.of([_header(base)]).device,
        "code": code,
        "verdicts": {verdict: count for verdict, count in judged["deciding"].items() if count},
        "limits": limits,
        "planted": _planted(base, other, chosen) if chosen else None,
    }


def _planted(base: Path, other: Path, figure: Mapping[str, Any]) -> dict[str, Any]:
    limit, base_us = figure["evidence"]["detectable"], figure["base_value"]
    place = (figure["operation"], figure["case"], figure["metric"])
    key, slower_us = "/".join(place[:2]), TIMES_LIMIT * limit * base_us
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / other.name
        result = json.loads(other.read_text(encoding="utf-8"))
        slow_down(result, key, Quantity(figure["metric"]), slower_us)
        path.write_text(json.dumps(result), encoding="utf-8")
        code, judged = compare(base, path)
    (verdict,) = (
        each["verdict"]
        for each in judged["judgements"]
        if (each["operation"], each["case"], each["metric"]) == place
    )
    of_figure = {"key": key, "metric": figure["metric"], "base_us": base_us, "limit": limit}
    return {**of_figure, "slower_us": slower_us, "verdict": verdict, "code": code}


def slow_down(result: dict[str, Any], key: str, quantity: Quantity, slower_us: float) -> None:
    """Add a time to a primary quantity of a case, and to every quantity that contains it.

    Slower host code affects its own launch path, whatever the GPU does meanwhile; a slower kernel
    affects all launch paths. Quantities that wait for either take longer, too, and so does the
    control copy.
    """
    (case,) = (each for each in result["cases"] if each["key"] == key)
    for measurement in (*case["measurements"], *case["control"]):
        if not _contains(measurement, quantity):
            continue
        steps = case["workload"]["num_steps"] if measurement["per"] == "window" else 1
        measurement["samples"] = [
            [sample + steps * slower_us for sample in row] for row in measurement["samples"]
        ]


def _contains(measurement: Mapping[str, Any], quantity: Quantity) -> bool:
    is_idle = measurement["load"] == Load.IDLE and measurement["l2"] == Cache.HOT
    taken = Quantity(measurement["quantity"])
    if quantity is Quantity.GPU_US:
        return taken is quantity or taken in _CONTAINING[quantity]
    if measurement["launch_path"] != LaunchPath.JIT:
        return False
    return taken is quantity or (is_idle and taken in _CONTAINING[quantity])


def compare(base: Path, other: Path) -> tuple[int, dict[str, Any]]:
    """Run `bt-bench compare` with its defaults; return the exit code and the report as JSON."""
    done = bt_bench("compare", base, other, "--json")
    if not done.stdout:
        raise SystemExit(f"comparing {base} and {other} ends with {done.returncode}: {done.stderr}")
    return done.returncode, json.loads(done.stdout)


def _header(path: Path) -> VariantResult:
    return read_result(path).model_copy(update={"cases": []})


def measured(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the provenance of result files: commits, sources, machines, first and last run."""
    headers = [_header(path) for path in paths]
    of, created = Measured.of(headers), [header.created for header in headers]
    machines: dict[Any, dict[str, Any]] = {}
    for header in {header.run_id: header for header in headers}.values():
        environment = header.environment
        gpu = environment.gpus[0]
        machine = machines.setdefault((gpu.name, gpu.uuid), {"runs": 0, "device": gpu.name})
        machine["runs"] += 1
        machine |= environment.model_dump(include={"cpu", "torch", "triton"})
    return {
        "commits": list(of.commits),
        "dirty": any(header.environment.dirty for header in headers),
        "machines": list(machines.values()),
        "first": min(created),
        "last": max(created),
        "sources": of.sources,
    }


def page(found: Mapping[str, Any]) -> Document:
    """Return the page, built from the contents of `equal-pairs.json`."""
    of = found["measured"]
    commits = " and ".join(commit[:7] for commit in of["commits"])
    machines = "; ".join(
        f"{each['runs']} on one {each['device']} ({each['cpu']}, torch {each['torch']}, Triton "
        f"{each['triton']})"
        for each in of["machines"]
    )
    lead = (
        f"Runs of commit {commits}{', with changes,' * of['dirty']} from {of['first'][:16]} to "
        f"{of['last'][:16]} UTC: {machines}. The first was compared with the second, the third "
        "with the fourth, and so on, by bt-bench compare with its defaults. Then one primary "
        f"figure of one case, drawn at random (seed {found['seed']}), was slowed by "
        f"{found['times_limit']:g} times the detection limit that was printed for it."
    )
    kinds = found["kinds"]
    verdicts = (
        each for each in Verdict if any(kind["rates"][each]["times"] for kind in kinds.values())
    )
    metrics = dict.fromkeys(name for kind in kinds.values() for name in kind["figures"])
    sections = {
        "Rates, and shares of verdicts on primary figures and counts of equal code": {
            "pairs": lambda kind: str(kind["runs"]),
            **{name: rate(name) for name in PROMISES},
            **{verdict.value: rate(verdict, digits=1) for verdict in verdicts},
        },
        "Detection limits, quartiles with both ends": {name: quartiles(name) for name in metrics},
    }
    return page_of(found, "Pairs of runs of equal code", lead, sections)


if __name__ == "__main__":
    sys.exit(main())
