"""Sample the resident memory of a sweep over many cases: of the parent, and of its worker.

    python studies/memory.py --cases 1000

Sweeps that many tiny workloads (one case each, with a seed of its own) and samples both processes
while they run. Prints the memory at every tenth of the cases. Exits with 1 if either grows by more
than 10 % from the first tenth to the last.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CONFIG = """\
name: many
variants: [baseline, fused]
operations: [step]
plan: {{rounds: 8, min_rounds: 8, warmup_rounds: 0, instances: 2, profile_rounds: 2,
       graph_rounds: 2}}
defaults: {{groups: 1, requests: 2, tokens: 4, max_num_reqs: 4, max_num_batched_tokens: 8,
           max_model_len: 64}}
cases:
  - name: "many"
    product: {{seed: [{seeds}]}}
"""
MOST_GROWTH = 0.10
LINE = re.compile(r"\[(\d+)/\d+\]")


def main() -> int:
    """Run the sweep, print a table, and judge the growth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "many.yaml"
        seeds = ", ".join(map(str, range(args.cases)))
        config.write_text(CONFIG.format(seeds=seeds), encoding="utf-8")
        marks = sample(config, Path(scratch) / "run", max(1, args.cases // 10))
    print("cases  parent (MiB)  worker (MiB)")
    for done, parent, worker in marks:
        print(f"{done:5}  {parent:12.1f}  {worker:12.1f}")
    growths = [last / first - 1 for first, last in zip(marks[0][1:], marks[-1][1:], strict=True)]
    print(f"growth: parent {100 * growths[0]:.1f} %, worker {100 * growths[1]:.1f} %")
    return 1 if max(growths) > MOST_GROWTH else 0


def sample(config: Path, out: Path, every: int) -> list[tuple[int, float, float]]:
    """Sweep, and return cases done and MiB of parent and worker, at every `every` cases."""
    command = [sys.executable, "-m", "bt_bench", "sweep", str(config), "--out", str(out)]
    marks = []
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            found = LINE.match(line)
            if found is None:
                sys.stderr.write(line)
            elif int(found[1]) % every == 0:
                worker = max(map(resident_mib, children(process.pid)), default=0.0)
                marks.append((int(found[1]), resident_mib(process.pid), worker))
    if process.returncode:
        raise SystemExit(process.returncode)
    return marks


def children(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB; 0 if it is not known."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(found[1]) / 1024 if found else 0.0


if __name__ == "__main__":
    sys.exit(main())
