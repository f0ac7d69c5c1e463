"""Measures a whole step in one launch beside vLLM's own code, and says which aims are reached.

    python benchmarks/headline.py --vllm-source DIR --vllm-source DIR --out reports/h200/headline

Each DIR holds an unpacked wheel of vLLM, 0.16.0 and 0.33.0 (docs/vllm.md). Needs a GPU, and some
four minutes. Writes the run folders `steps` (of `headline.yaml`, with the arms of
`benchmarks/steps`) and `trace` (of `headline_trace.yaml`), `memory.json`, and from these
`headline.json` and `headline.md`; `--render` writes the last two anew, from what is there. Ends
with 1 if `one_launch` does not reach an aim, or that is not known since an arm of vLLM is missing,
or anything went wrong; whatever was measured is written all the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headline_figures import Headline, headline
from headline_memory import Footprint, measure_memory
from headline_runs import NEW, Run
from headline_text import document

from bt_bench.errors import BtBenchError, ExitCode
from bt_bench.report import print_document, render_document
from bt_bench.results.folders import RunFolder
from bt_bench.results.reading import read_run
from bt_bench.results.result import VariantResult
from bt_bench.suites.block_tables.vllm.source import find_sources

HERE = Path(__file__).resolve().parent
STEPS, TRACE, MEMORY = "steps", "trace", "memory.json"
QUICK = ("plan.case_seconds=1", "plan.instances=1", "plan.warmup_rounds=1", "plan.profile_rounds=2")
QUICK_TRACE = ("window.steps=16",)


def main() -> int:
    """Measures, unless it has been done, and writes the page."""
    args = _parse()
    problems = []
    try:
        if not args.render:
            problems = measure(args.out, args.vllm_source, quick=args.quick)
        found = read(args.out, problems)
    except FileExistsError:
        sys.exit(f"{args.out} exists, and a run is never overwritten; choose another --out")
    except BtBenchError as error:
        sys.exit(str(error))
    page = document(found)
    (args.out / "headline.json").write_text(json.dumps(asdict(found), indent=1) + "\n", "utf-8")
    (args.out / "headline.md").write_text(render_document(page), "utf-8")
    print_document(page)
    return 0 if found.succeeded() else 1


def measure(out: Path, sources: Sequence[Path], *, quick: bool) -> list[str]:
    """Runs both sweeps and counts memory; returns what went wrong.

    Args:
        out: folder for all of it.
        sources: of vLLM; the trace takes that of 0.33.0 alone.
        quick: few rounds: shows that everything works, and no more.

    Raises:
        FileExistsError: when the folder is there already.
        UsageError: for a folder that is not a source of vLLM.
    """
    found = find_sources(sources).found
    out.mkdir(parents=True)
    of_steps = ["--kernels", str(HERE / "steps"), *_options(sources, QUICK if quick else ())]
    newest = [source.root for source in found if f"vllm_{source.release}" == NEW]
    of_trace = _options(newest if sources else (), (*QUICK, *QUICK_TRACE) if quick else ())
    problems = [
        *_sweep(HERE / "headline.yaml", out / STEPS, of_steps),
        *_sweep(HERE / "headline_trace.yaml", out / TRACE, of_trace),
    ]
    try:
        footprints, pinned_by = measure_memory(HERE / "headline.yaml", sources)
    except (BtBenchError, RuntimeError) as error:
        return [*problems, f"memory: {error}"]
    counted = {"pinned_by": pinned_by, "footprints": [asdict(f) for f in footprints]}
    (out / MEMORY).write_text(json.dumps(counted, indent=1) + "\n", "utf-8")
    return problems


def read(out: Path, problems: Sequence[str] = ()) -> Headline:
    """The figures of what a folder holds; whatever is not there is missing.

    Args:
        out: that `measure` wrote to.
        problems: what went wrong then.

    Raises:
        UsageError: for a result that is damaged.
    """
    steps, trace = (Run.of(_results(out / name)) for name in (STEPS, TRACE))
    counted: dict[str, Any] = {"pinned_by": "", "footprints": []}
    if (out / MEMORY).is_file():
        counted = json.loads((out / MEMORY).read_text("utf-8"))
    footprints = [Footprint(**fields) for fields in counted["footprints"]]
    return headline(steps, trace, footprints, counted["pinned_by"], problems)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--vllm-source",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="an unpacked wheel of vLLM; may be repeated (docs/vllm.md)",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="must not exist")
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it works")
    parser.add_argument("--render", action="store_true", help="measure nothing; read DIR")
    return parser.parse_args()


def _options(sources: Sequence[Path], overrides: Sequence[str]) -> list[str]:
    options = [part for source in sources for part in ("--vllm-source", str(source))]
    return options + [part for override in overrides for part in ("--set", override)]


def _sweep(config: Path, out: Path, options: Sequence[str]) -> list[str]:
    """Runs a sweep, with its progress on stderr; returns what went wrong as a whole."""
    command = [sys.executable, "-m", "bt_bench", "sweep", str(config), "--out", str(out), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    # A case that failed is in the results.
    if done.returncode in (ExitCode.OK, ExitCode.CHECK_FAILED):
        return []
    sys.stderr.write(done.stdout)
    return [f"{out.name}: bt-bench sweep ended with {done.returncode}"]


def _results(folder: Path) -> list[VariantResult]:
    return read_run(RunFolder(folder)) if folder.is_dir() else []


if __name__ == "__main__":
    sys.exit(main())
