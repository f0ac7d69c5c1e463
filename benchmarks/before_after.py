"""Times the shipped variants beside their own versions of another commit, in one interleaved run.

    python benchmarks/before_after.py --base HEAD~1 --out reports/h200/before-after
    python benchmarks/before_after.py --base HEAD~1 --variants one_launch --out reports/one-launch

Each variant `X` runs beside `X_before`, which is `X` with the `bt_kernels` of the base, a copy of
its own. Needs a GPU. Writes the run folder to `--out`, and beside it `before-after.md` with the
verdicts of `bt-bench compare`. Ends with 1 if a variant is slower than before by more than is
allowed: 5 % in `host_us`, and 2 % or 0.2 µs in `gpu_us`, whichever is more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bt_bench.report import (
    Cell,
    Document,
    Section,
    Table,
    print_document,
    render_document,
)

ROOT = Path(__file__).resolve().parent.parent
VARIANTS = ("baseline", "fused_apply", "fused_gather_slots", "fused")
ALLOWED_SHARE = {"host_us": 0.05, "gpu_us": 0.02}
ALLOWED_US = {"host_us": 0.0, "gpu_us": 0.2}


@dataclass(frozen=True)
class Change:
    """A figure of one variant before and after.

    Args:
        variant: its name.
        case: case and operation.
        metric: such as `gpu_us/jit/hot`.
        before_us: median before.
        after_us: median after.
        ratio: after over before, as `compare` estimates it.
        low: lower end of its interval.
        high: upper end.
    """

    variant: str
    case: str
    metric: str
    before_us: float
    after_us: float
    ratio: float
    low: float
    high: float

    def allowed(self) -> bool:
        """Whether it did not get slower by more than is allowed."""
        name = self.metric.split("/")[0]
        more_us = (self.ratio - 1) * self.before_us
        return self.ratio - 1 <= ALLOWED_SHARE[name] or more_us <= ALLOWED_US[name]


def main() -> int:
    """Runs both, compares, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", required=True, help="commit, or folder that holds bt_kernels")
    parser.add_argument(
        "--variants",
        default=",".join(VARIANTS),
        help=f"shipped variants, with commas between; default: {','.join(VARIANTS)}",
    )
    parser.add_argument("--config", default="origin", help="sweep config; default: origin")
    parser.add_argument("--out", type=Path, required=True, help="run folder; must not exist")
    args = parser.parse_args()
    variants = args.variants.split(",")
    with tempfile.TemporaryDirectory() as scratch:
        folder = _write_before(args.base, Path(scratch), variants)
        names = [name for variant in variants for name in (variant, f"{variant}_before")]
        _bt_bench(
            *("sweep", args.config, "--kernels", str(folder), "--variants", ",".join(names)),
            *("--out", str(args.out)),
        )
    changes = [change for variant in variants for change in _changes(args.out, variant)]
    summary = page(args.base, changes)
    (args.out / "before-after.md").write_text(render_document(summary), encoding="utf-8")
    print_document(summary)
    return 0 if changes and all(change.allowed() for change in changes) else 1


def page(base: str, changes: list[Change]) -> Document:
    """The table, slowest first, and what it comes to."""
    slower = [change for change in changes if not change.allowed()]
    lead = (
        f"{len(changes)} figures in one interleaved run; {len(slower)} got slower by more than "
        "allowed (5 % in host_us; 2 % or 0.2 µs in gpu_us)."
    )
    columns = ("variant", "case", "metric", "", "before µs", "after µs", "after / before")
    rows = tuple(
        (
            Cell(change.variant),
            Cell(change.case),
            Cell(change.metric),
            Cell("" if change.allowed() else "SLOWER"),
            Cell(f"{change.before_us:.2f}"),
            Cell(f"{change.after_us:.2f}"),
            Cell(f"{change.ratio:.3f} ({change.low:.3f} to {change.high:.3f})"),
        )
        for change in sorted(changes, key=lambda change: -change.ratio)
    )
    title = f"Before and after: kernels of {base}, and of this tree"
    return Document(title, (lead,), (Section("Figures", (Table(columns, rows, 4),)),))


def _write_before(base: str, scratch: Path, variants: list[str]) -> Path:
    """Variant files `X_before.py`, each beside a copy of the base's `bt_kernels` of its own."""
    source = Path(base) / "bt_kernels"
    if not source.is_dir():
        archive = subprocess.run(
            ["git", "archive", base, "kernels"], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(scratch)], input=archive.stdout, check=True)
        source = scratch / "kernels" / "bt_kernels"
    folder = scratch / "before"
    for variant in variants:
        package = f"bt_kernels_before_{variant}"
        copy = folder / "_packages" / package
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for path in copy.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace("bt_kernels", package), encoding="utf-8")
        (folder / f"{variant}_before.py").write_text(
            f'"""{variant}, before."""\n\n'
            "import sys\nfrom pathlib import Path\n\n"
            'sys.path.insert(0, str(Path(__file__).parent / "_packages"))\n'
            f"from {package}.variants.{variant} import Variant\n",
            encoding="utf-8",
        )
    return folder


def _changes(folder: Path, variant: str) -> list[Change]:
    """What `bt-bench compare` says of one variant."""
    said = _bt_bench(
        *("compare", str(folder / f"{variant}_before.json"), str(folder / f"{variant}.json")),
        *("--metric", "host_us*", "--metric", "gpu_us*", "--fail-on", "none", "--json"),
    )
    return [
        Change(
            variant,
            f"{entry['case']} {entry['operation']}",
            entry["metric"],
            entry["base_value"],
            entry["other_value"],
            *(entry[name] for name in ("ratio", "low", "high")),
        )
        for entry in json.loads(said)["judgements"]
        if entry["ratio"] is not None
    ]


def _bt_bench(*arguments: str) -> str:
    """Runs a command of the tool, with progress on stderr; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "bt_bench", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 5):
        sys.exit(f"bt-bench {arguments[0]} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
