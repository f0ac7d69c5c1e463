"""Search for a variant's worst steps, compared with vLLM and the other shipped variants.

    python studies/worst.py --vllm-source DIR --out worst
    python studies/worst.py --vllm-source DIR --out worst --shard 1/4 --seconds 500
    python studies/worst.py --out worst --render

DIR holds an unpacked wheel of vLLM 0.33.0 (docs/vllm.md). Sweeps the stock config `shapes`, and all
other stock configs but `quick`, with few rounds a case: some 440 cases. The expected duration is
printed to stderr. Needs a GPU. A shard has a part of the cases; the page covers the runs of all
shards in `--runs`. After an interruption at any moment, `--resume` continues. Writes `worst.json`
with the figures of all cases, `worst.md` with the aims and the worst cases, and `worst.svg` with a
picture; `--render` rewrites them from existing runs. Exits with 1 if an aim is missed or unknown,
or anything goes wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worst_aims import Worst, worst_of
from worst_arms import EACH, NEW
from worst_copy import read_copy
from worst_picture import picture
from worst_runs import CONFIGS, Shard, expected_of, pieces_of, read_runs, run_pieces, seconds_of
from worst_text import document

from bt_bench.analysis import PlainCopy
from bt_bench.base.errors import BtBenchError
from bt_bench.report import print_document, render_document

HERE = Path(__file__).resolve().parent
COPY = "copy.json"
DIGITS = 5  # significant digits of stored figures


def main() -> int:
    """Measure unless `--render` is given, and write the page."""
    args = _parse()
    runs = args.runs or args.out / "runs"
    try:
        problems = [] if args.render else measure(args, runs)
        copy = _copy(args, runs)
        configs = args.config or CONFIGS
        expected = expected_of(configs, args.select, args.variant, quick=args.quick)
        if configs != CONFIGS or args.select or args.quick:
            problems = [*problems, "this is a selection, or in brief: it decides nothing"]
        judged = args.variant, args.against
        found = worst_of(read_runs(runs), copy, *judged, problems, expected)
    except BtBenchError as error:
        sys.exit(str(error))
    write(found, args.out)
    return 0 if found.succeeded() else 1


def measure(args: argparse.Namespace, runs: Path) -> list[str]:
    """Run the sweeps of a shard, and time plain copies once; return the problems.

    Raises:
        UsageError: for sweeps that cannot be run.
    """
    configs = args.config or CONFIGS
    pieces = pieces_of(configs, args.select, args.variant, args.shard, quick=args.quick)
    cases = sum(len(piece.spec.cases) for piece in pieces)
    print(
        f"worst: {cases} cases in {len(pieces)} sweeps, about {seconds_of(pieces):.0f} s and what "
        "starting them takes",
        file=sys.stderr,
    )
    options = ["--kernels", str(HERE / "steps"), "--device", args.device]
    options += [part for source in args.vllm_source for part in ("--vllm-source", str(source))]
    problems = []
    if args.bandwidth is None and args.device != "cpu" and not (runs / COPY).is_file():
        runs.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(HERE / "worst_copy.py"), "--out", str(runs / COPY)]
        done = subprocess.run(command, check=False)
        problems += [f"copies: worst_copy.py ended with {done.returncode}"] * bool(done.returncode)
    swept = run_pieces(pieces, runs, options, resume=args.resume, limit_s=args.seconds)
    return [*problems, *swept]


def write(found: Worst, out: Path) -> None:
    """Write figures, page and picture, and print the page."""
    out.mkdir(parents=True, exist_ok=True)
    page = document(found)
    (out / "worst.json").write_text(stored(found), encoding="utf-8")
    (out / "worst.md").write_text(render_document(page), encoding="utf-8")
    (out / "worst.svg").write_text(picture(found), encoding="utf-8")
    print_document(page)


def stored(found: Worst) -> str:
    """Return all figures as JSON, with a line for each case."""
    fields = asdict(found)
    cases = fields.pop("cases")
    head = json.dumps(_short(fields), indent=1).removesuffix("\n}")
    lines = [f"  {json.dumps(name)}: {json.dumps(_short(cases[name]))}" for name in cases]
    return head + ',\n "cases": {\n' + ",\n".join(lines) + "\n }\n}\n"


def _short(value: Any) -> Any:
    """Round all figures to `DIGITS` digits, and drop unknown values from mappings."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _short(each) for key, each in value.items() if each is not None}
    return [_short(each) for each in value] if isinstance(value, list | tuple) else value


def _copy(args: argparse.Namespace, runs: Path) -> PlainCopy | None:
    if args.bandwidth is not None:
        return PlainCopy.of_bandwidth(args.bandwidth)
    return read_copy(runs / COPY) if (runs / COPY).is_file() else None


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--vllm-source", type=Path, action="append", default=[], metavar="DIR",
        help="an unpacked wheel of vLLM; may be repeated (docs/vllm.md)")  # fmt: skip
    add("--out", type=Path, required=True, metavar="DIR", help="for figures, page and picture")
    add("--runs", type=Path, metavar="DIR", help="for run folders; default: DIR/runs in --out")
    add("--config", action="append", metavar="CONFIG",
        help=f"may be repeated; default: {', '.join(CONFIGS)}")  # fmt: skip
    add("-k", dest="select", metavar="PATTERNS", help="cases, as in bt-bench sweep")
    add("--variant", default=EACH,
        help=f"that is judged; default: {EACH}, which is one_launch staged by a call per request, "
        "as vLLM is")  # fmt: skip
    add("--against", default=NEW, metavar="VARIANT",
        help=f"that it is judged against; vLLM's by its release; default: {NEW}")  # fmt: skip
    add("--shard", type=_shard, default=Shard(), metavar="I/N", help="a part of the cases")
    add("--seconds", type=_positive, metavar="S", help="stop then, and keep what is done")
    add("--bandwidth", type=_positive, metavar="GB/S",
        help="of a plain copy, in place of measuring it: bytes read and written")  # fmt: skip
    add("--device", choices=("auto", "cuda", "cpu"), default="cuda")
    add("--resume", action="store_true", help="go on with what was begun")
    add("--quick", action="store_true", help="few rounds, to see that it works")
    add("--render", action="store_true", help="measure nothing; read what is there")
    return parser.parse_args()


def _shard(text: str) -> Shard:
    try:
        return Shard.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
