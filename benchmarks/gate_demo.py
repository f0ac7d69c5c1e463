"""Three real gates, each of which must come to the right verdict; needs a GPU.

    python benchmarks/gate_demo.py --out gates

In a git repository of their own, with the kernels of this checkout: equal code (timed all the
same); a variant slowed inside its kernel, by `max(3 %, twice the margin)` of `gpu_us` in one case;
and one slowed on the host, by twice the margin of `host_us`. Margins are those of the first gate.
Writes what each gate concluded and a summary to `--out`. Ends with 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bt_bench.report import (
    Cell,
    Document,
    Section,
    Table,
    print_document,
    render_document,
)

ROOT = Path(__file__).resolve().parent.parent
CASE, OPERATION, VARIANT, OTHER = "medium_batch_1grp", "gather_slots", "fused", "baseline"
CONFIG = f"""\
name: demo
variants: [{OTHER}, {VARIANT}]
operations: [gather_slots, step]
defaults:
  workload: uniform
  block_size: 16
  max_num_reqs: 256
  max_num_batched_tokens: 8192
  max_model_len: 4096
cases:
  - {{name: {CASE}, groups: 1, requests: 128, tokens: 2048}}
  - {{name: medium_batch_4grp, groups: 4, requests: 128, tokens: 2048}}
"""
LEAST_SHARE = 0.03  # of `gpu_us`
SPIN = """\
    spin_start = globaltimer()
    spin_now = spin_start
    while spin_now - spin_start < {ns}:
        spin_now = globaltimer()
"""
WAITING = '''

class _Waiting(Variant):
    """Waits on the host before it launches."""

    def _wait(self):
        end = time.perf_counter_ns() + {ns}
        while time.perf_counter_ns() < end:
            pass

    def gather_and_compute_slot_mappings(self, *arguments, **options):
        self._wait()
        return super().gather_and_compute_slot_mappings(*arguments, **options)

    def prepare_step(self, *arguments, **options):
        self._wait()
        return super().prepare_step(*arguments, **options)


Variant = _Waiting
'''


@dataclass(frozen=True)
class Gate:
    """How one gate ended."""

    name: str
    injected: str
    code: int
    seconds: float
    judgements: list[dict[str, Any]]

    def find(self, metric: str, variant: str = VARIANT) -> dict[str, Any]:
        """The judgement on the case that is slowed."""
        for judgement in self.judgements:
            place = judgement["operation"], judgement["case"], judgement["metric"]
            if place == (OPERATION, CASE, metric) and judgement["other"].startswith(f"{variant}@"):
                return judgement
        raise SystemExit(f"{self.name}: no verdict on {variant} {OPERATION}/{CASE} {metric}")

    def slower(self, metric: str | None = None, variant: str | None = None) -> list[str]:
        """What came out slower."""
        return [
            f"{j['other'].partition('@')[0]} {j['operation']}/{j['case']} {j['metric']}"
            for j in self.judgements
            if j["verdict"] == "SLOWER"
            and metric in (None, j["metric"])
            and (variant is None or j["other"].startswith(f"{variant}@"))
        ]


def main() -> int:
    """Runs the gates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", default="12,20,32")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        repository = Repository(Path(scratch) / "repository")
        gates = Gates(repository, args.out.resolve(), args.rounds)
        equal = gates.run("equal", "nothing", "--time-equal")
        gpu_ns = injected_ns(equal.find("gpu_us"), LEAST_SHARE)
        repository.slow_kernel(gpu_ns)
        kernel = gates.run("kernel", f"{gpu_ns} ns in every program of the kernel")
        repository.restore()
        host_ns = injected_ns(equal.find("host_us"), 0.0)
        repository.slow_host(host_ns)
        host = gates.run("host", f"{host_ns} ns before the launch")
    problems = wrong(equal, kernel, host)
    page = summary([equal, kernel, host], problems)
    (args.out / "demo.md").write_text(render_document(page), encoding="utf-8")
    print_document(page)
    return 1 if problems else 0


def injected_ns(judgement: dict[str, Any], least: float) -> int:
    """Twice the margin of a metric, or a least share of it."""
    share = max(least, 2 * judgement["evidence"]["margin"]["share"])
    return round(share * judgement["base_value"] * 1e3)


def wrong(equal: Gate, kernel: Gate, host: Gate) -> list[str]:
    """What did not come out as it must."""
    problems = [f"equal: {what} came out slower" for what in equal.slower()]
    if equal.code not in (0, 3):
        problems.append(f"equal: ended with {equal.code}; expected 0")
    for gate, metric in ((kernel, "gpu_us"), (host, "host_us")):
        judgement = gate.find(metric)
        if judgement["verdict"] != "SLOWER":
            problems.append(f"{gate.name}: {metric} is {judgement['verdict']}; expected SLOWER")
        if gate.code != 1:
            problems.append(f"{gate.name}: ended with {gate.code}; expected 1")
        problems += [f"{gate.name}: {what} came out slower" for what in gate.slower(variant=OTHER)]
    problems += [f"host: {what} came out slower" for what in host.slower("gpu_us")]
    return problems


class Repository:
    """A repository with the kernels of this checkout."""

    def __init__(self, path: Path) -> None:
        self.path = path
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "kernels", path / "kernels", ignore=ignored)
        (path / "demo.yaml").write_text(CONFIG, encoding="utf-8")
        self._git("init", "-q")
        self._git("add", "-A")
        self._git(
            "-c", "user.name=demo", "-c", "user.email=demo@localhost", "commit", "-qm", "base"
        )

    def restore(self) -> None:
        """Takes back what was changed."""
        self._git("checkout", "-q", "--", "kernels")

    def slow_kernel(self, ns: int) -> None:
        """Every program of the fused kernel waits by the device's clock."""
        path = self.path / "kernels/bt_kernels/device_code/kernels.py"
        text = path.read_text(encoding="utf-8")
        head, name, rest = text.partition("def gather_slots_kernel(")
        start = "    group = tl.program_id(0).to(tl.int64)\n"
        if not name or start not in rest:
            raise SystemExit(f"{path}: gather_slots_kernel has another beginning; adapt the demo")
        slowed = head + name + rest.replace(start, SPIN.format(ns=ns) + start, 1)
        first_import = "import triton.language as tl\n"
        extra = "from triton.language.extra.cuda import globaltimer\n"
        self._write(path, slowed.replace(first_import, first_import + extra, 1))

    def slow_host(self, ns: int) -> None:
        """The variant waits before it launches."""
        path = self.path / f"kernels/bt_kernels/variants/{VARIANT}.py"
        text = path.read_text(encoding="utf-8")
        before, found, after = text.partition("\nfrom bt_kernels")
        self._write(path, before + "\nimport time\n" + found + after + WAITING.format(ns=ns))

    def _write(self, path: Path, text: str) -> None:
        ast.parse(text)
        path.write_text(text, encoding="utf-8")

    def _git(self, *arguments: str) -> None:
        subprocess.run(["git", "-C", str(self.path), *arguments], check=True)


class Gates:
    """Runs gates on what the repository's working tree has now."""

    def __init__(self, repository: Repository, out: Path, rounds: str) -> None:
        self._repository = repository
        self._out = out
        self._rounds = rounds

    def run(self, name: str, injected: str, *options: str) -> Gate:
        """One gate; what it concluded is kept."""
        started = time.monotonic()
        verdicts = self._out / f"{name}.json"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "bt_bench", "gate", "--config", "demo.yaml"),
                *("--base", "HEAD", "--device", "cuda", "--rounds", self._rounds, *options),
                *("--out", f"out-{name}", "--format", f"json={verdicts}"),
                *("--format", f"md={self._out / name}.md"),
            ],
            cwd=self._repository.path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            check=False,
        )
        if done.returncode not in (0, 1, 3, 4, 5):
            raise SystemExit(f"{name}: the gate ended with {done.returncode}")
        judgements = json.loads(verdicts.read_text(encoding="utf-8"))["judgements"]
        return Gate(name, injected, done.returncode, time.monotonic() - started, judgements)


def summary(gates: list[Gate], problems: list[str]) -> Document:
    """What was injected, and what came of it."""
    lead = (
        f"Verdicts on {VARIANT} in {OPERATION}/{CASE}; in all there were "
        f"{len(gates[0].judgements)} in each gate."
    )
    rows = []
    for gate in gates:
        cells = [gate.name, gate.injected]
        for metric in ("gpu_us", "host_us"):
            judgement = gate.find(metric)
            percent = judgement["percent"]
            change = "not timed" if percent is None else f"{percent:+.2f} %"
            evidence = judgement["evidence"]
            margin = f", margin {100 * evidence['margin']['share']:.2f} %" if evidence else ""
            cells += [judgement["verdict"], change + margin]
        cells += [str(len(gate.slower())), str(gate.code), f"{gate.seconds:.0f}"]
        rows.append(tuple(map(Cell, cells)))
    columns = ("Gate", "Injected", "gpu_us", "", "host_us", "")
    columns += ("SLOWER in all", "Exit code", "Seconds")
    wrong_ones = tuple(f"WRONG: {problem}." for problem in problems)
    outcome = wrong_ones or ("All verdicts are as they must be.",)
    sections = (Section("Verdicts", (Table(columns, tuple(rows), 6), *outcome)),)
    return Document("Three gates", (lead,), sections)


if __name__ == "__main__":
    sys.exit(main())
