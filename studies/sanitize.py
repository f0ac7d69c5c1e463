"""Run NVIDIA's compute-sanitizer over the kernels; needs a GPU and `compute-sanitizer`.

    python studies/sanitize.py --out reports/sanitize

Runs two tools: memcheck (accesses outside any allocation) and initcheck (reads of memory that
nothing has written). The tests marked `sanitize` must be clean under both, and the planted errors
(`studies/planted.py`) must be found. The tests are split over several processes, and all run at
once, since Python and the tool take most of the time. Writes the tools' output to `--out`. Exits
with 1 if a run ends with an unexpected exit code.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from common import ROOT, environment

FOUND = 9  # exit code of the sanitizer when it has found an error
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
MARKED = ("-m", "sanitize", "tests/kernels")
PARTS = 6  # processes for each tool, which share the marked tests
# With caching, tables lie in torch's large blocks, and a read past a table stays inside its block.
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
SETTINGS = {"memcheck": UNCACHED, "initcheck": {}}
ON_GPU = {"BT_BENCH_TEST_GPU": "1", "PYTHONUNBUFFERED": "1"}
LONGEST_S = 400.0
KEPT_LINES = 12


class Run(NamedTuple):
    """A Python command to run under a tool, with the exit code to expect."""

    tool: str
    what: str
    command: tuple[str, ...]
    expected: int


def main() -> int:
    """Run all tools and tests, and write a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for what the tools say")
    args = parser.parse_args()
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        print("compute-sanitizer is not on PATH; it comes with the CUDA toolkit", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    tests = _marked()
    runs = []
    for tool in SETTINGS:
        for part in range(1, PARTS + 1):
            what = f"part {part} of {PARTS} of {len(tests)} tests"
            runs.append(Run(tool, what, (*PYTEST, *tests[part - 1 :: PARTS]), 0))
        runs.append(Run(tool, "planted error", ("studies/planted.py", tool), FOUND))
    # The summary names unfinished runs, in case this script is interrupted.
    found = {run: (None, f"{run.tool}, {run.what}: not ended") for run in runs}
    with ThreadPoolExecutor(len(runs)) as pool:
        ended = {pool.submit(_sanitized, sanitizer, run): run for run in runs}
        for future in as_completed(ended):
            run = ended[future]
            found[run] = future.result()
            print(found[run][1].partition("\n")[0], flush=True)
            text = "\n".join(text for _, text in found.values())
            (args.out / "sanitize.txt").write_text(text, encoding="utf-8")
    return 0 if all(code == run.expected for run, (code, _) in found.items()) else 1


def _marked() -> list[str]:
    """Return the names of the tests marked `sanitize`."""
    listed = subprocess.run(
        [sys.executable, *PYTEST, "--collect-only", *MARKED],
        cwd=ROOT,
        env=environment() | ON_GPU,
        capture_output=True,
        text=True,
        check=False,
    )
    tests = [line for line in listed.stdout.splitlines() if "::" in line]
    if listed.returncode != 0 or not tests:
        sys.exit(f"pytest does not list the tests to run:\n{listed.stdout}{listed.stderr}")
    return tests


def _sanitized(sanitizer: str, run: Run) -> tuple[int, str]:
    """Run a command under its tool; return the exit code, 124 after a timeout, and a summary."""
    command = (sanitizer, "--tool", run.tool, f"--error-exitcode={FOUND}")
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            code = subprocess.run(
                [*command, sys.executable, *run.command],
                cwd=ROOT,
                env=environment() | SETTINGS[run.tool] | ON_GPU,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=LONGEST_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = 124
        log.seek(0)
        said = log.read()
    seconds = time.monotonic() - began
    verdict = "as it must"
    if code != run.expected:
        verdict = f"WRONG: exit code {run.expected} was expected"
    line = f"{run.tool}, {run.what}: exit code {code}, {verdict} ({seconds:.0f} s)"
    return code, "\n".join([line, *(f"    {text}" for text in _shortened(said)), ""])


def _shortened(said: str) -> list[str]:
    """Shorten a tool's output: drop host backtraces, this machine's paths and the middle."""
    said = said.replace(str(ROOT), ".").replace(str(Path.home()), "~")
    said = re.sub(r'File "[^"]*site-packages/', 'File "', said)
    lines = [line for line in said.splitlines() if "Host Frame" not in line]
    if len(lines) <= 2 * KEPT_LINES:
        return lines
    left_out = len(lines) - 2 * KEPT_LINES
    return [*lines[:KEPT_LINES], f"… {left_out} lines left out …", *lines[-KEPT_LINES:]]


if __name__ == "__main__":
    sys.exit(main())
