"""Run three kinds of real gates, several times each, and judge their verdicts; needs a GPU.

    python studies/gate_demo.py --out gates

The gates run in a scratch git repository with the kernels of this checkout. The three kinds are:
equal code (timed all the same); a variant whose kernel is slower by 3 % of `gpu_us` in one case,
and at least by 0.1 µs; and a variant whose host code is slower by 3 % of `host_us`, due to a loop.
An earlier gate with a far longer loop calibrates the loop's length: a host's speed may change by a
third within minutes, and the loop's changes with it. All gates are reported, whatever their
verdicts. Writes each gate's verdicts and a summary to `--out`. Exits with 1 if a gate is wrong.
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
operations: [gather_slots]
defaults:
  workload: uniform
  block_size: 16
  max_num_reqs: 256
  max_num_batched_tokens: 8192
  max_model_len: 4096
cases:
  - {{name: {CASE}, groups: 1, requests: 128, tokens: 2048}}
"""
OPTIONS = {"equal": ("--time-equal",)}
SHARE = 0.03
LEAST_NS = 100.0  # smallest injected slowdown of `gpu_us`
SPIN = """\
    spin_start = globaltimer()
    spin_now = spin_start
    while spin_now - spin_start < {ns}:
        spin_now = globaltimer()
"""
WAIT = """\


def _wait(turns: int) -> None:
    for _ in range(turns):
        pass
"""
LONG_LOOP = 1000  # turns
OF_CALL = 8  # turns that take as long as the call of the loop's function
# This much of the wait in a kernel is hidden, because it overlaps with programs that start late.
# Waits of 112 ns (four ticks of the device's clock, at random phase) cost an H200 64 and 78 ns.
OVERLAP_NS = 40.0


@dataclass(frozen=True)
class Gate:
    """The outcome of a gate."""

    kind: str
    name: str
    injected: str
    code: int
    seconds: float
    judgements: list[dict[str, Any]]

    def find(self, metric: str, variant: str = VARIANT) -> dict[str, Any]:
        """Return the judgement on the slowed case."""
        for judgement in self.judgements:
            place = judgement["operation"], judgement["case"], judgement["metric"]
            if place == (OPERATION, CASE, metric) and judgement["other"].startswith(f"{variant}@"):
                return judgement
        raise SystemExit(f"{self.name}: no verdict on {variant} {OPERATION}/{CASE} {metric}")

    def slower(self, metric: str | None = None, variant: str | None = None) -> list[str]:
        """Return the figures judged `SLOWER`, filtered by metric and variant."""
        return [
            f"{j['other'].partition('@')[0]} {j['operation']}/{j['case']} {j['metric']}"
            for j in self.judgements
            if j["verdict"] == "SLOWER"
            and metric in (None, j["metric"])
            and (variant is None or j["other"].startswith(f"{variant}@"))
        ]


def main() -> int:
    """Run the gates; return 1 if any is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--times", type=int, default=3, help="how often each kind is run")
    kinds = ("equal", "kernel", "host")
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    gates: list[Gate] = []
    with tempfile.TemporaryDirectory() as scratch:
        repository = Repository(Path(scratch) / "repository")
        runner = Gates(repository, args.out.resolve())
        amounts = Amounts(repository, runner)
        for time_ in range(1, args.times + 1):
            for kind in args.kinds:
                injected = amounts.inject(kind)
                gates.append(runner.run(kind, time_, injected, *OPTIONS.get(kind, ())))
                repository.restore()
        gates += amounts.gates
    problems = [problem for gate in gates for problem in wrong(gate)]
    page = summary(gates, problems)
    (args.out / "demo.md").write_text(render_document(page), encoding="utf-8")
    print_document(page)
    return 1 if problems else 0


class Amounts:
    """The slowdowns to inject, calibrated by extra gates that are kept in `gates`."""

    def __init__(self, repository: Repository, runner: Gates) -> None:
        self._repository = repository
        self._runner = runner
        self.gates: list[Gate] = []
        self._ns: float | None = None
        self._turns: int | None = None

    def inject(self, kind: str) -> str:
        """Slow the code for a kind of gate; return a description of the change."""
        if kind == "kernel":
            ns = self._ns = self._ns or self._kernel_ns()
            self._repository.slow_kernel(round(ns + OVERLAP_NS))
            return f"{ns:.0f} ns (and {OVERLAP_NS:.0f} that overlap) in every program"
        if kind == "host":
            turns = self._turns = self._turns or self._host_turns()
            self._repository.slow_host(turns)
            return f"a loop of {turns} turns before the launch"
        return "nothing"

    def _kernel_ns(self) -> float:
        gate = self._measure("nothing, to learn the time of the kernel")
        return max(LEAST_NS, float(1e3 * SHARE * gate.find("gpu_us")["base_value"]))

    def _host_turns(self) -> int:
        self._repository.slow_host(LONG_LOOP)
        gate = self._measure(f"a loop of {LONG_LOOP} turns, to learn what one takes")
        self._repository.restore()
        share = float(gate.find("host_us")["percent"]) / 100
        return round((LONG_LOOP + OF_CALL) * SHARE / share - OF_CALL)

    def _measure(self, injected: str) -> Gate:
        options = ("--time-equal", "--rounds", "12", "--max-rounds", "12")
        self.gates.append(self._runner.run("amount", len(self.gates) + 1, injected, *options))
        return self.gates[-1]


def wrong(gate: Gate) -> list[str]:
    """Return the problems of a gate: unexpected verdicts and exit codes."""
    if gate.kind == "amount":
        return []
    metric = {"kernel": "gpu_us", "host": "host_us"}.get(gate.kind)
    if metric is None:
        problems = [f"{gate.name}: {what} came out slower" for what in gate.slower()]
    else:
        judgement = gate.find(metric)
        problems = [f"{gate.name}: {what} came out slower" for what in gate.slower(variant=OTHER)]
        if judgement["verdict"] != "SLOWER":
            problems.append(f"{gate.name}: {metric} is {judgement['verdict']}; expected SLOWER")
        if gate.kind == "host":
            problems += [f"{gate.name}: {what} came out slower" for what in gate.slower("gpu_us")]
    if gate.code != (expected := 0 if metric is None else 1):
        problems.append(f"{gate.name}: ended with {gate.code}; expected {expected}")
    return problems


class Repository:
    """A scratch git repository with the kernels of this checkout."""

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
        """Revert all changes to the kernels."""
        self._git("checkout", "-q", "--", "kernels")

    def slow_kernel(self, ns: int) -> None:
        """Make every program of the fused kernel wait `ns` by the device's clock."""
        path = self.path / "kernels/bt_kernels/device_code/kernels.py"
        text = path.read_text(encoding="utf-8")
        head, name, rest = text.partition("def gather_slots_kernel(")
        start = "    program = tl.program_id(1).to(tl.int64)\n"
        if not name or start not in rest:
            raise SystemExit(f"{path}: gather_slots_kernel has another beginning; adapt the demo")
        slowed = head + name + rest.replace(start, SPIN.format(ns=ns) + start, 1)
        first_import = "import triton.language as tl\n"
        extra = "from triton.language.extra.cuda import globaltimer\n"
        self._write(path, slowed.replace(first_import, first_import + extra, 1))

    def slow_host(self, turns: int) -> None:
        """Make the variant run a loop of `turns` turns before it launches."""
        path = self.path / "kernels/bt_kernels/fusions.py"
        text = path.read_text(encoding="utf-8")
        start = (
            "        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)\n"
        )
        head, name, rest = text.partition("class FusedGatherSlots(")
        if not name or start not in rest:
            raise SystemExit(f"{path}: FusedGatherSlots is another one now; adapt the demo")
        slowed = head + name + rest.replace(start, f"        _wait({turns})\n{start}", 1) + WAIT
        self._write(path, slowed)

    def _write(self, path: Path, text: str) -> None:
        ast.parse(text)
        path.write_text(text, encoding="utf-8")

    def _git(self, *arguments: str) -> None:
        subprocess.run(["git", "-C", str(self.path), *arguments], check=True)


class Gates:
    """A runner of gates on the repository's working tree."""

    def __init__(self, repository: Repository, out: Path) -> None:
        self._repository = repository
        self._out = out

    def run(self, kind: str, time_: int, injected: str, *options: str) -> Gate:
        """Run a gate, and keep its verdicts in the output folder."""
        name = f"{kind}-{time_}"
        started = time.monotonic()
        verdicts = self._out / f"{name}.json"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "bt_bench", "gate", "--config", "demo.yaml"),
                *("--base", "HEAD", "--device", "cuda", "--detect", "3", *options),
                *("--out", f"{self._out / name}", "--format", f"json={verdicts}"),
                *("--format", f"md={self._out / name}.md"),
            ],
            cwd=self._repository.path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            check=False,
        )
        if done.returncode not in (0, 1, 3, 4, 5):
            raise SystemExit(f"{name}: the gate ended with {done.returncode}")
        judgements = json.loads(verdicts.read_text(encoding="utf-8"))["judgements"]
        return Gate(kind, name, injected, done.returncode, time.monotonic() - started, judgements)


def summary(gates: list[Gate], problems: list[str]) -> Document:
    """Return the page with the injected slowdowns and the verdicts on them."""
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
    figures = ("gpu_us", "", "host_us", "")
    columns = ("Gate", "Injected", *figures, "SLOWER in all", "Exit code", "Seconds")
    wrong_ones = tuple(f"WRONG: {problem}." for problem in problems)
    outcome = wrong_ones or ("All verdicts are as they must be.",)
    sections = (Section("Verdicts", (Table(columns, tuple(rows), 6), *outcome)),)
    return Document("Gates of three kinds", (lead,), sections)


if __name__ == "__main__":
    sys.exit(main())
