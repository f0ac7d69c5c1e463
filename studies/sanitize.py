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
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOUND = 9  # exit code of the sanitizer when it has found an error
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
MARKED = ["-m", "sanitize", "tests/kernels"]
PARTS = 6  # processes for each tool, which share the marked tests
# With caching, tables lie in torch's large blocks, and a read past a table stays inside its block.
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
SETTINGS = {"memcheck": UNCACHED, "initcheck": {}}
LONGEST_S = 400.0
KEPT_LINES = 12


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
    parts = [tests[start::PARTS] for start in range(min(PARTS, len(tests)))]
    runs = [
        (tool, settings, what, command, expected)
        for tool, settings in SETTINGS.items()
        for what, command, expected in (
            *(
                (f"part {n} of {len(parts)} of {len(tests)} tests", [*PYTEST, *part], 0)
                for n, part in enumerate(parts, start=1)
            ),
            ("planted error", ["studies/planted.py", tool], FOUND),
        )
    ]
    found: dict[int, list[str]] = {}
    good = True
    with ThreadPoolExecutor(len(runs)) as pool, tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"{tool}, {what}.log" for tool, _, what, _, _ in runs]
        print(f"what the tools say meanwhile is in {folder}", file=sys.stderr, flush=True)
        ended = {
            pool.submit(_timed, [sanitizer, "--tool", run[0]], run[1], run[3], log): number
            for number, (run, log) in enumerate(zip(runs, logs, strict=True))
        }
        for future in as_completed(ended):
            number = ended[future]
            tool, _, what, _, expected = runs[number]
            code, said, seconds = future.result()
            right = code == expected
            good &= right
            verdict = "as it must" if right else f"WRONG: exit code {expected} was expected"
            line = f"{tool}, {what}: exit code {code}, {verdict} ({seconds:.0f} s)"
            print(line, flush=True)
            found[number] = [line, *(f"    {text}" for text in _shortened(said)), ""]
            # The summary lists unfinished runs, in case this script is interrupted.
            missing = [
                f"{runs[n][0]}, {runs[n][2]}: not ended" for n in ended.values() if n not in found
            ]
            lines = [line for n in sorted(found) for line in found[n]]
            (args.out / "sanitize.txt").write_text("\n".join([*lines, *missing]), encoding="utf-8")
    return 0 if good else 1


def _marked() -> list[str]:
    """Return the names of the tests marked `sanitize`."""
    listed = subprocess.run(
        [sys.executable, *PYTEST, "--collect-only", *MARKED],
        cwd=ROOT,
        env=os.environ | {"BT_BENCH_TEST_GPU": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    tests = [line for line in listed.stdout.splitlines() if "::" in line]
    if listed.returncode != 0 or not tests:
        sys.exit(f"pytest does not list the tests to run:\n{listed.stdout}{listed.stderr}")
    return tests


def _timed(
    sanitizer: list[str], settings: dict[str, str], command: list[str], log: Path
) -> tuple[int, str, float]:
    """Run one command; return its exit code, its output, and the seconds it took."""
    began = time.monotonic()
    code = _run(sanitizer, settings, command, log)
    said = log.read_text(encoding="utf-8", errors="replace")
    return code, said, time.monotonic() - began


def _run(sanitizer: list[str], settings: dict[str, str], command: list[str], log: Path) -> int:
    """Run a Python command under the sanitizer; return its exit code, 124 after a timeout."""
    environment = os.environ | settings | {"BT_BENCH_TEST_GPU": "1", "PYTHONUNBUFFERED": "1"}
    environment.pop("TRITON_INTERPRET", None)
    with log.open("wb") as file:
        try:
            done = subprocess.run(
                [*sanitizer, f"--error-exitcode={FOUND}", sys.executable, *command],
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 124
    return done.returncode


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
