"""Compare `one_launch` with vLLM 0.33.0 and the other shipped variants in all stock cases.

    python studies/headline.py measure --vllm-source DIR --runs runs
    python studies/headline.py measure --vllm-source DIR --runs runs --cases studies/hundred.txt
    python studies/headline.py measure --vllm-source DIR --runs runs --floors
    python studies/headline.py measure --vllm-source DIR --runs runs --batches
    python studies/headline.py pack runs --out reports/headline/NAME  # --cases, --batches: again

DIR holds an unpacked wheel of vLLM 0.33.0 (docs/vllm.md). `measure` sweeps the stock config
`shapes`, and all other stock configs but `quick`, with few rounds a case: 443 cases, 25 minutes on
one GPU. A shard has a part of the cases; `--resume` continues after an interruption. With
`--floors` the tables of `one_launch` are called in three calls, as vLLM's are, beside vLLM and the
one call, in the stock config `layouts`, too. With `--batches` the preparation of whole batches is
compared, in the stock config `batches`.

`pack` needs no GPU. It writes `samples.npz` with the samples, from which `recompute.py` computes
the table; `facts.json` with commit, machine, versions and what was not measured; and `headline.md`
for people. Both exit with 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from headline_page import page
from headline_runs import (
    BATCHES,
    FLOORS,
    HEADLINE,
    Arms,
    Shard,
    pieces_of,
    run_pieces,
    seconds_of,
)
from measured import Measured

from bt_bench.analysis import Criteria, Matchup, Side, judge
from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.config import load_config
from bt_bench.config.spec import CaseSpec
from bt_bench.protocol import build_workload
from bt_bench.report import print_document, render_document
from bt_bench.results import (
    CONFIG_NAME,
    CompactCase,
    CompactResult,
    Metric,
    Status,
    read_compact_run,
)
from bt_bench.suites.block_tables.vllm.source import VLLM

HERE = Path(__file__).resolve().parent
PAIRS = ("host", "call", "gpu")
"""Quantities that are kept of ours and of vLLM's alone."""


@dataclass(frozen=True)
class Packed:
    """The samples of all cases, and the facts about them; see `headline.py pack`."""

    samples: Mapping[str, Any]
    facts: Mapping[str, Any]


def main() -> int:
    """Measure, or pack what was measured."""
    args = _parse()
    try:
        if args.command == "measure":
            problems = measure(args)
        else:
            problems = pack(args.runs, args.out, _chosen(args.cases), _arms(args))
    except BtBenchError as error:
        sys.exit(str(error))
    for problem in problems:
        print(f"headline: {problem}", file=sys.stderr)
    return int(bool(problems))


def measure(args: argparse.Namespace) -> list[str]:
    """Run the sweeps of a shard; return the problems.

    Raises:
        UsageError: for sweeps that cannot be run.
    """
    chosen, arms = _chosen(args.cases), _arms(args)
    pieces = pieces_of(chosen, args.shard, quick=args.quick, arms=arms)
    cases = sum(len(piece.spec.cases) for piece in pieces)
    print(
        f"headline: {cases} cases in {len(pieces)} sweeps, about {seconds_of(pieces):.0f} s and "
        "what starting them takes",
        file=sys.stderr,
    )
    options = ["--kernels", str(HERE / arms.folder), "--device", args.device]
    options += ["--vllm-source", str(args.vllm_source)]
    return run_pieces(pieces, args.runs, options, resume=args.resume, limit_s=args.seconds)


def pack(
    runs: Path, out: Path, chosen: Sequence[str] | None = None, arms: Arms = HEADLINE
) -> list[str]:
    """Write samples, facts and page of the sweeps below a folder; return the problems.

    Args:
        runs: the folder.
        out: folder for what is written.
        chosen: cases that were asked for, as `CONFIG/CASE`; `None`: all.
        arms: the variants that were measured.

    Raises:
        UsageError: for no result, or a damaged one, and for no or unknown cases.
    """
    pieces = pieces_of(chosen, arms=arms)
    expected = [f"{piece.spec.name}/{case.name}" for piece in pieces for case in piece.spec.cases]
    packed = packed_of(runs, expected, arms, chosen)
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out / "samples.npz", "w") as file:
        for key, array in packed.samples.items():
            info = zipfile.ZipInfo(f"{key}.npy")  # without the time of writing
            info.compress_type = zipfile.ZIP_LZMA  # a quarter smaller than numpy's own
            with file.open(info, "w") as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
    facts = json.dumps(packed.facts, indent=1)
    (out / "facts.json").write_text(f"{facts}\n", encoding="utf-8")
    document = page(packed.samples, packed.facts)
    (out / "headline.md").write_text(render_document(document), encoding="utf-8")
    print_document(document)
    return list(packed.facts["problems"])


def packed_of(
    runs: Path,
    expected: Sequence[str],
    arms: Arms = HEADLINE,
    chosen: Sequence[str] | None = None,
) -> Packed:
    """Read all sweeps below a folder.

    Args:
        runs: the folder.
        expected: cases that they must have, as `CONFIG/CASE`.
        arms: the variants that were measured.
        chosen: the only cases to read; `None`: all.

    Raises:
        UsageError: for no result, or a damaged one.
    """
    names = arms.all
    samples: dict[str, Any] = {"arms": np.array(names)}
    headers = []
    problems: list[str] = []
    sizes: dict[str, dict[str, int]] = {}
    unsupported: list[str] = []
    verdicts: dict[str, Counter[str]] = {what: Counter() for what in arms.metrics}
    for config in sorted(runs.glob(f"*/{CONFIG_NAME}")):
        results = {each.header.variant.name: each for each in read_compact_run(config.parent)}
        spec = load_config(config)
        headers += [result.header for result in results.values()]
        problems += _problems(config.parent.name, results, spec.variants)
        for what, found in _judged(results, arms).items():
            verdicts[what] += found
        by_name = {
            arm: {case.case: case for case in result.cases} for arm, result in results.items()
        }
        for case in spec.cases:
            name = f"{spec.name}/{case.name}"
            if chosen is not None and name not in chosen:
                continue
            if name in sizes:
                problems.append(f"{config.parent.name}: {name} is in another run, too")
            of_arm = {arm: found.get(case.name) for arm, found in by_name.items()}
            theirs = of_arm.get(VLLM)
            if theirs is not None and theirs.status is Status.UNSUPPORTED:
                unsupported.append(name)
            sizes[name] = _sizes(case)
            for what, metric in arms.metrics.items():
                kept = [of_arm.get(arm) for arm in (names[:2] if what in PAIRS else names)]
                _add(samples, f"{name} {what}", metric, kept)
    if not sizes:
        raise UsageError(f"{runs}: has no results of sweeps; expected what `measure` left there")
    samples["cases"] = np.array([*sizes])
    problems += [f"{name}: is in no run" for name in expected if name not in sizes]
    for name in sizes:
        both = (0,) if name in unsupported else (0, 1)
        lacking = [
            f"{what} by {names[arm]}"
            for what in arms.metrics
            for arm in both
            if not (samples[f"{name} {what}"][arm] >= 0).any()
        ]
        if lacking:
            is_empty = len(lacking) == len(arms.metrics) * len(both)
            which = "" if is_empty else f" of {', '.join(lacking)}"
            problems.append(f"{name}: has no samples{which}")
    facts = {
        "measured": asdict(Measured.of(headers)),
        "machines": sorted({_machine(header.environment) for header in headers}),
        "hosts": sorted({str(header.environment.host) for header in headers}),
        "arms": names,
        "ours": arms.lead,
        "samples_sha256": digest(samples),
        "verdicts": {what: dict(found.most_common()) for what, found in verdicts.items()},
        "unsupported": unsupported,
        "problems": [*problems, *_mixed(headers)],
        "sizes": sizes,
    }
    return Packed(samples, facts)


def digest(samples: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all samples, as hexadecimal."""
    found = hashlib.sha256()
    for key in sorted(samples):
        found.update(key.encode())
        found.update(samples[key].tobytes())
    return found.hexdigest()


def _chosen(path: Path | None) -> list[str] | None:
    """Read the cases of a file; `None` without one.

    Raises:
        UsageError: for a file that cannot be read.
    """
    try:
        return None if path is None else path.read_text(encoding="utf-8").split()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; expected lines CONFIG/CASE") from error


def _add(
    samples: dict[str, Any], key: str, metric: Metric, cases: Sequence[CompactCase | None]
) -> None:
    """Add the samples of a case in one quantity: [arm, round, step] in ns, -1 where unmeasured."""
    taken = [
        case.measured(metric) if case is not None and case.status is Status.OK else None
        for case in cases
    ]
    rounds = sorted({number for each in taken if each is not None for number in each.rounds})
    steps = max((each.samples.shape[1] for each in taken if each is not None), default=1)
    array = np.full((len(cases), len(rounds), steps), -1, dtype=np.int32)
    instances = np.zeros(len(rounds), dtype=np.int8)
    for row, each in enumerate(taken):
        if each is not None:
            places = np.searchsorted(rounds, each.rounds)
            array[row, places] = np.rint(each.samples * 1000)
            log = cases[row].instances  # type: ignore[union-attr]
            instances[places] = [log[number] for number in each.rounds]
    samples[key] = array
    samples[f"{key} instances"] = instances


def _judged(results: Mapping[str, CompactResult], arms: Arms) -> dict[str, Counter[str]]:
    """Return what `bt-bench compare` says of ours against vLLM's, by quantity."""
    if not {arms.ours, VLLM} <= results.keys():
        return {}
    ours, theirs = (Side(arm, results[arm]) for arm in (arms.ours, VLLM))
    found = {}
    for what, metric in arms.metrics.items():
        if all(
            case.measured(metric) is None for side in (ours, theirs) for case in side.result.cases
        ):
            continue
        criteria = Criteria(metrics=[metric.name], allow_partial=True)
        judged = judge([Matchup(theirs, ours)], criteria).judgements
        found[what] = Counter(str(each.verdict.value) for each in judged)
    return found


def _sizes(case: CaseSpec) -> dict[str, int]:
    """Return a case's sizes; none of a window of a trace, which takes minutes to build."""
    if case.parameters.workload == "trace":
        return {}
    workload: Any = build_workload(case.parameters)
    sizes = workload.sizes()
    layout = getattr(workload, "table_layout", None) or workload.layout
    found = {
        "groups": layout.num_groups,
        "requests": max(sizes["num_reqs"]),
        "tokens": max(sizes["num_tokens"]),
    }
    if "num_rows_written" in sizes:  # batches do not tell
        found["rows_written"] = max(sizes["num_rows_written"])
    return found


def _machine(env: Any) -> str:
    gpu = env.gpus[0].name if env.gpus else "no GPU"
    return (
        f"{gpu}, driver {env.driver}, {env.cpu}, {env.cpu_count} logical CPUs, "
        f"Python {env.python}, torch {env.torch}, Triton {env.triton}"
    )


def _mixed(headers: Sequence[Any]) -> list[str]:
    """Return what runs that are packed together should have in common, but do not."""
    facts = {
        "machine": {_machine(header.environment) for header in headers},
        "host": {str(header.environment.host) for header in headers},
        "commit": {
            f"{h.environment.commit}{' changed' * bool(h.environment.dirty)}" for h in headers
        },
    }
    return [
        f"runs are not of one {name}: {'; '.join(sorted(values))}"
        for name, values in facts.items()
        if len(values) > 1
    ]


def _problems(run: str, results: Mapping[str, CompactResult], planned: Sequence[str]) -> list[str]:
    """Return missing variants, unfinished runs, and failed cases."""
    found = [f"{run}: has no results of {name}" for name in planned if name not in results]
    if not all(result.header.complete for result in results.values()):
        found.append(f"{run}: did not come to its end")
    return found + [
        f"{run}, {case.key}: {name} failed: {case.reason}"
        for name, result in results.items()
        for case in result.cases
        if case.status is Status.FAILED
    ]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("measure", help="run the sweeps").add_argument
    add("--vllm-source", type=Path, required=True, metavar="DIR",
        help="an unpacked wheel of vLLM 0.33.0 (docs/vllm.md)")  # fmt: skip
    add("--runs", type=Path, required=True, metavar="DIR", help="for run folders")
    add("--cases", type=Path, metavar="FILE", help="lines CONFIG/CASE; default: all")
    add("--shard", type=_shard, default=Shard(), metavar="I/N", help="a part of the cases")
    add("--seconds", type=float, metavar="S", help="stop then, and keep what is done")
    add("--device", choices=("auto", "cuda", "cpu"), default="cuda")
    add("--resume", action="store_true", help="go on with what was begun")
    add("--quick", action="store_true", help="few rounds, to see that it works")
    add = commands.add_parser("pack", help="write samples, facts and page").add_argument
    add("runs", type=Path, help="that `measure` was given")
    add("--out", type=Path, required=True, metavar="DIR")
    add("--cases", type=Path, metavar="FILE", help="that `measure` was given")
    for command in commands.choices.values():
        _add_comparisons(command)
    return parser.parse_args()


def _add_comparisons(command: argparse.ArgumentParser) -> None:
    add = command.add_mutually_exclusive_group().add_argument
    add("--floors", action="store_true", help="the tables in three calls, in layouts, too")
    add("--batches", action="store_true", help="the preparation of batches, in their config")


def _arms(args: argparse.Namespace) -> Arms:
    return BATCHES if args.batches else FLOORS if args.floors else HEADLINE


def _shard(text: str) -> Shard:
    try:
        return Shard.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
