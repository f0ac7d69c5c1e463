"""Run three kinds of real gates, several times each, and judge their verdicts; needs a GPU.

    python studies/gate_demo.py --out gates

The gates run in a scratch git repository with the kernels of this checkout. The three kinds are:
equal code (timed all the same); a variant whose kernel is slower by 3 % of `gpu_us` in one case,
and at least by 0.1 µs; and a variant whose host code is slower by 3 % of `host_us`, due to a loop.
An earlier gate with a far longer loop calibrates both: a host's speed may change by a third within
minutes, and the loop's changes with it. All gates are reported, whatever their verdicts. Writes
each gate's verdicts and a summary to `--out`. Exits with 1 if a gate is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from common import Edit, bt_bench, plant, table, write_report

from bt_bench.report import Document, Section

CASE, VARIANT, OTHER = "medium_batch_1grp", "fused", "baseline"
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
SLOWED = {"equal": None, "kernel": "gpu_us", "host": "host_us"}
"""The metric that is slower, by kind of gate."""
SHARE = 0.03
LEAST_NS = 100.0  # smallest injected slowdown of `gpu_us`
LONG_LOOP = 1000  # turns
OF_CALL = 8  # turns that take as long as the call of the loop's function
# This much of the wait in a kernel is hidden, because it overlaps with programs that start late.
# Waits of 112 ns (four ticks of the device's clock, at random phase) cost an H200 64 and 78 ns.
OVERLAP_NS = 40.0

IMPORT = "import triton.language as tl\n"
IMPORT_TIMER = "from triton.language.extra.cuda import globaltimer\n"
PROGRAM = """\
    program = tl.program_id(1).to(tl.int64)
    if program < num_rows:
        _gather(descriptors, idx_mapping, num_reqs, None, None, BLOCK)
"""
SPIN = """\
    spin_start = globaltimer()
    spin_now = spin_start
    while spin_now - spin_start < {ns}:
        spin_now = globaltimer()
"""
CHECK = "        num_reqs = arguments.check_mapping(\n"
WAIT = """\


def _wait(turns: int) -> None:
    for _ in range(turns):
        pass
"""


def slow_kernel(ns: int) -> tuple[Edit, ...]:
    """Return the edits that make every program of the fused kernel wait by the device's clock."""
    path = "device_code/kernels.py"
    return (path, PROGRAM, SPIN.format(ns=ns) + PROGRAM), (path, IMPORT, IMPORT + IMPORT_TIMER)


def slow_host(turns: int) -> tuple[Edit, ...]:
    """Return the edits that make the variant run a loop before it launches."""
    path = "fusions.py"
    return (path, CHECK, f"        _wait({turns})\n{CHECK}"), (path, "", WAIT)


class Gate(NamedTuple):
    """The outcome of a gate, with the seconds that it took."""

    name: str
    injected: str
    code: int
    seconds: float
    judgements: list[dict[str, Any]]

    def find(self, metric: str) -> dict[str, Any]:
        """Return the judgement on the slowed variant."""
        (found,) = (
            judgement
            for judgement in self.judgements
            if judgement["metric"] == metric and judgement["other"].startswith(f"{VARIANT}@")
        )
        return found

    def slower(self) -> list[str]:
        """Return the figures judged `SLOWER`."""
        found = (each for each in self.judgements if each["verdict"] == "SLOWER")
        return [f"{each['other'].partition('@')[0]} {each['metric']}" for each in found]

    def problems(self) -> list[str]:
        """Return what is wrong: other verdicts than expected, or another exit code."""
        kind = self.name.partition("-")[0]
        if kind not in SLOWED:
            return []
        expected = [f"{VARIANT} {SLOWED[kind]}"] if SLOWED[kind] else []
        if (self.slower(), self.code) == (expected, len(expected)):
            return []
        return [
            f"WRONG: {self.name} ended with {self.code}, and SLOWER are {self.slower()}; expected "
            f"{len(expected)} and {expected}."
        ]


def main() -> int:
    """Run the gates; return 1 if any is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--times", type=int, default=3, help="how often each kind is run")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as repository:
        gates = run_all(Path(repository), args.out.resolve(), args.times)
    problems = [problem for gate in gates for problem in gate.problems()]
    injected = {gate.name: gate.injected for gate in gates}
    write_report(args.out, "demo", summary(gates, problems), injected)
    return 1 if problems else 0


def run_all(repository: Path, out: Path, times: int) -> list[Gate]:
    """Run the calibrating gate, and then each kind in turn."""
    plant(repository)
    (repository / "demo.yaml").write_text(CONFIG, encoding="utf-8")
    user = ("-c", "user.name=demo", "-c", "user.email=demo@localhost")
    for command in (["init", "-q"], ["add", "-A"], [*user, "commit", "-qm", "base"]):
        subprocess.run(["git", "-C", repository, *command], check=True)

    def run(name: str, injected: str, edits: tuple[Edit, ...], *options: str) -> Gate:
        plant(repository, edits)
        verdicts = out / f"{name}.json"
        began = time.monotonic()
        done = bt_bench(
            *("gate", "--config", "demo.yaml", "--base", "HEAD", "--device", "cuda"),
            *("--detect", "3", *options, "--out", out / name),
            *("--format", f"json={verdicts}", "--format", f"md={out / name}.md"),
            cwd=repository,
        )
        if done.returncode not in (0, 1, 3, 4, 5):
            raise SystemExit(f"{name}: the gate ended with {done.returncode}: {done.stderr}")
        print(f"{name}: exit code {done.returncode}", file=sys.stderr)
        judgements = json.loads(verdicts.read_text(encoding="utf-8"))["judgements"]
        return Gate(name, injected, done.returncode, time.monotonic() - began, judgements)

    rounds = ("--rounds", "12", "--max-rounds", "12")
    gates = [run("amount-1", f"a loop of {LONG_LOOP} turns", slow_host(LONG_LOOP), *rounds)]
    ns = max(LEAST_NS, 1e3 * SHARE * gates[0].find("gpu_us")["base_value"])
    share = gates[0].find("host_us")["percent"] / 100
    turns = round((LONG_LOOP + OF_CALL) * SHARE / share - OF_CALL)
    in_kernel = f"{ns:.0f} ns (and {OVERLAP_NS:.0f} that overlap) in every program"
    for number in range(1, times + 1):
        gates += [
            run(f"equal-{number}", "nothing", (), "--time-equal"),
            run(f"kernel-{number}", in_kernel, slow_kernel(round(ns + OVERLAP_NS))),
            run(f"host-{number}", f"a loop of {turns} turns before the launch", slow_host(turns)),
        ]
    return gates


def summary(gates: list[Gate], problems: list[str]) -> Document:
    """Return the page with the injected slowdowns and the verdicts on them."""
    rows = []
    for gate in gates:
        cells = [gate.name, gate.injected]
        for metric in ("gpu_us", "host_us"):
            judgement = gate.find(metric)
            percent, evidence = judgement["percent"], judgement["evidence"]
            change = "not timed" if percent is None else f"{percent:+.2f} %"
            margin = f", margin {100 * evidence['margin']['share']:.2f} %" if evidence else ""
            cells += [judgement["verdict"], change + margin]
        rows.append((*cells, len(gate.slower()), gate.code, f"{gate.seconds:.0f}"))
    figures = ("gpu_us", "", "host_us", "")
    columns = ("Gate", "Injected", *figures, "SLOWER in all", "Exit code", "Seconds")
    lead = (
        f"Verdicts on {VARIANT} in gather_slots/{CASE}; in all there were "
        f"{len(gates[0].judgements)} in each gate."
    )
    outcome = problems or ["All verdicts are as they must be."]
    return Document(
        "Gates of three kinds", (lead,), (Section("Verdicts", (table(columns, rows, 6), *outcome)),)
    )


if __name__ == "__main__":
    sys.exit(main())
