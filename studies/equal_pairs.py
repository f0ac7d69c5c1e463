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
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measured import Measured

from bt_bench.analysis import median, percentile
from bt_bench.report import Cell, Document, Section, Table, print_document, render_document
from bt_bench.results import Cache, LaunchPath, Load, Quantity, VariantResult, read_result

NAME = "equal-pairs"
TIMES_LIMIT = 2.0
LEAST_FOUND = 0.9
EXITS = (0, 1)  # expected with equal runs, and with a planted slowdown

_CONTAINING = {
    Quantity.HOST_US: (Quantity.STEP_US, Quantity.PIPELINED_US, Quantity.EVENT_US),
    Quantity.GPU_US: (Quantity.SPAN_US, Quantity.STEP_US, Quantity.EVENT_US),
    Quantity.STAGE_US: (),
}
"""By primary quantity, the other quantities that take longer if it does."""


@dataclass(frozen=True)
class Planted:
    """A planted slowdown and the result of `compare`.

    Args:
        key: operation and case.
        metric: metric of the slowed figure.
        base_us: its median in the first run.
        limit: the printed detection limit, as a share.
        slower_us: time added to each sample.
        verdict: verdict on the slowed figure.
        code: exit code.
    """

    key: str
    metric: str
    base_us: float
    limit: float
    slower_us: float
    verdict: str
    code: int


@dataclass(frozen=True)
class Pair:
    """Two runs of a variant, compared.

    Args:
        base: folder name of the first run.
        other: folder name of the second run.
        variant: the variant.
        device: name of the GPU of both runs.
        code: exit code of the comparison without a slowdown.
        verdicts: number of primary figures and counts by verdict.
        limits: by metric, the printed detection limits of its cases, as shares.
        planted: the comparison with a slowdown; `None` if no figure had a limit.
    """

    base: str
    other: str
    variant: str
    device: str
    code: int
    verdicts: Mapping[str, int]
    limits: Mapping[str, Sequence[float]]
    planted: Planted | None

    @property
    def is_equal(self) -> bool:
        """Return whether the comparison without a slowdown passes."""
        return self.code == EXITS[0]

    @property
    def is_found(self) -> bool:
        """Return whether the planted slowdown fails the comparison, by its own verdict."""
        planted = self.planted
        return planted is not None and (planted.code, planted.verdict) == (EXITS[1], "SLOWER")


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
            pairs.append(compare_pair(base / name, other / name, options.seed))
            print(_line(pairs[-1]), file=sys.stderr)
    headers = [_header(path) for folder in folders for path in sorted(folder.glob("*.json"))]
    found = document(pairs, headers, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1)
    (options.out / f"{NAME}.json").write_text(f"{text}\n", encoding="utf-8")
    made = page(found)
    (options.out / f"{NAME}.md").write_text(render_document(made), encoding="utf-8")
    print_document(made)
    return int(not is_kept(pairs))


def _header(path: Path) -> VariantResult:
    return read_result(path).model_copy(update={"cases": []})


def compare_pair(base: Path, other: Path, seed: int) -> Pair:
    """Compare two results as they are, and then with a slowdown in the second one."""
    code, judged = _compare(base, other)
    timed = [each for each in judged["judgements"] if each["decides"] and each["evidence"]]
    limits: dict[str, list[float]] = {}
    for each in timed:
        limits.setdefault(each["metric"], []).append(each["evidence"]["detectable"])
    names = base.parent.name, other.parent.name, base.stem
    planted = None
    if timed:
        figure = random.Random(f"{seed} {' '.join(names)}").choice(timed)
        planted = _planted(base, other, figure)
    verdicts = {verdict: count for verdict, count in judged["deciding"].items() if count}
    return Pair(*names, Measured.of([_header(base)]).device, code, verdicts, limits, planted)


def _planted(base: Path, other: Path, figure: Mapping[str, Any]) -> Planted:
    limit = figure["evidence"]["detectable"]
    slower_us = TIMES_LIMIT * limit * figure["base_value"]
    key = f"{figure['operation']}/{figure['case']}"
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / other.name
        result = json.loads(other.read_text(encoding="utf-8"))
        slow_down(result, key, Quantity(figure["metric"]), slower_us)
        path.write_text(json.dumps(result), encoding="utf-8")
        code, judged = _compare(base, path)
    (verdict,) = (
        each["verdict"]
        for each in judged["judgements"]
        if (f"{each['operation']}/{each['case']}", each["metric"]) == (key, figure["metric"])
    )
    return Planted(key, figure["metric"], figure["base_value"], limit, slower_us, verdict, code)


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


def _compare(base: Path, other: Path) -> tuple[int, dict[str, Any]]:
    """Run `bt-bench compare` with its defaults; return the exit code and the report as JSON."""
    command = [sys.executable, "-m", "bt_bench", "compare", str(base), str(other), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{' '.join(command)} exits with {done.returncode}: {done.stderr}")
    judged: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, judged


def is_kept(pairs: Sequence[Pair]) -> bool:
    """Return whether all equal pairs pass, and nine in ten slowdowns of each variant are found."""
    by_variant = _by_variant(pairs)
    return all(pair.is_equal for pair in pairs) and all(
        sum(pair.is_found for pair in of_one) >= LEAST_FOUND * len(of_one)
        for of_one in by_variant.values()
    )


def document(pairs: Sequence[Pair], headers: Sequence[VariantResult], seed: int) -> dict[str, Any]:
    """Return all results, for `equal-pairs.json`."""
    of, runs = Measured.of(headers), {header.run_id: header for header in headers}
    return {
        "schema_version": 1,
        "seed": seed,
        "measured": {
            "commits": list(of.commits),
            "dirty": any(header.environment.dirty for header in headers),
            "machines": list(_machines(list(runs.values()))),
            "first": min(header.created for header in headers),
            "last": max(header.created for header in headers),
            "sources": dict(of.sources),
        },
        "times_limit": TIMES_LIMIT,
        "kept": is_kept(pairs),
        "pairs": [asdict(pair) for pair in pairs],
    }


def _machines(runs: Sequence[VariantResult]) -> Iterator[dict[str, Any]]:
    """Yield the GPUs of the runs, with their hosts' processors and versions."""
    by_gpu: dict[Any, list[VariantResult]] = {}
    for run in runs:
        gpu = run.environment.gpus[0]
        by_gpu.setdefault((gpu.name, gpu.uuid), []).append(run)
    for (name, _), of_gpu in by_gpu.items():
        environment = of_gpu[0].environment
        versions = {"torch": environment.torch, "triton": environment.triton}
        yield {"runs": len(of_gpu), "device": name, "cpu": environment.cpu} | versions


def read(found: Mapping[str, Any]) -> list[Pair]:
    """Return the pairs of an `equal-pairs.json`."""
    pairs = []
    for each in found["pairs"]:
        planted = each["planted"]
        pairs.append(Pair(**(each | {"planted": Planted(**planted) if planted else None})))
    return pairs


def page(found: Mapping[str, Any]) -> Document:
    """Return the page, built from the contents of `equal-pairs.json`."""
    pairs, of = read(found), found["measured"]
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
        f"{found['times_limit']:g} times the detection limit that was printed for it.",
    )
    sections = (
        Section("Exit codes", (_codes(pairs),)),
        Section("Verdicts on primary figures and counts of equal runs", (_verdicts(pairs),)),
        Section("Detection limits, in percent", (_limits(pairs),)),
        Section("Slowdowns that were planted", (_slowdowns(pairs),)),
    )
    return Document("Pairs of runs of equal code", lead, sections)


def _codes(pairs: Sequence[Pair]) -> Table:
    columns = ("Variant", "Pairs", "Equal: exit 0", "Others", "Slowed: exit 1", "Others")
    rows = []
    for variant, of_one in _by_variant(pairs).items():
        equal, found = (sum(found) for found in zip(*_outcomes(of_one), strict=True))
        others = (
            Counter(each.code for each in of_one if not each.is_equal),
            Counter(_code(each.planted) for each in of_one if not each.is_found),
        )
        texts = (variant, len(of_one), equal, _counted(others[0]), found, _counted(others[1]))
        rows.append(tuple(Cell(str(text)) for text in texts))
    return Table(columns, tuple(rows), 1)


def _outcomes(pairs: Sequence[Pair]) -> Iterator[tuple[bool, bool]]:
    yield from ((pair.is_equal, pair.is_found) for pair in pairs)


def _code(planted: Planted | None) -> str:
    return "nothing planted" if planted is None else f"{planted.code} ({planted.verdict})"


def _counted(found: Counter[Any]) -> str:
    return ", ".join(f"{count} × {code}" for code, count in sorted(found.items())) or "–"


def _verdicts(pairs: Sequence[Pair]) -> Table:
    names = list(dict.fromkeys(verdict for pair in pairs for verdict in pair.verdicts))
    rows = []
    for variant, of_one in _by_variant(pairs).items():
        counts = [sum(pair.verdicts.get(name, 0) for pair in of_one) for name in names]
        rows.append((Cell(variant), *(Cell(str(count)) for count in counts)))
    return Table(("Variant", *names), tuple(rows), 1)


def _limits(pairs: Sequence[Pair]) -> Table:
    rows = []
    for variant, of_one in _by_variant(pairs).items():
        for metric in dict.fromkeys(name for pair in of_one for name in pair.limits):
            limits = [limit for pair in of_one for limit in pair.limits.get(metric, ())]
            marks = [min(limits), percentile(limits, 25), median(limits)]
            marks += [percentile(limits, 75), max(limits)]
            texts = [variant, metric, str(len(limits)), *(f"{100 * each:.1f}" for each in marks)]
            rows.append(tuple(map(Cell, texts)))
    columns = ("Variant", "Metric", "Figures", "Least", "Quarter", "Half", "Three quarters", "Most")
    return Table(columns, tuple(rows), 2)


def _slowdowns(pairs: Sequence[Pair]) -> Table:
    columns = (
        "Runs",
        "GPU",
        "Variant",
        "Figure",
        "Base (µs)",
        "Limit (%)",
        "Slower by (µs)",
        "Verdict",
    )
    rows = []
    for pair in pairs:
        if (planted := pair.planted) is not None:
            texts = (
                *(f"{pair.base}, {pair.other}", pair.device, pair.variant),
                f"{planted.key} {planted.metric}",
                *(f"{planted.base_us:.3f}", f"{100 * planted.limit:.1f}"),
                *(f"{planted.slower_us:.3f}", f"{planted.verdict}, exit {planted.code}"),
            )
            rows.append(tuple(map(Cell, texts)))
    return Table(columns, tuple(rows), 4)


def _by_variant(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair.variant, []).append(pair)
    return found


def _line(pair: Pair) -> str:
    planted = "nothing" if pair.planted is None else f"{pair.planted.key} {pair.planted.metric}"
    return (
        f"{pair.base}, {pair.other}, {pair.variant}: exit {pair.code}; slowed {planted}: "
        f"{_code(pair.planted)}"
    )


if __name__ == "__main__":
    sys.exit(main())
