"""Runs NVIDIA's compute-sanitizer over the kernels; needs a GPU and `compute-sanitizer`.

    python benchmarks/sanitize.py --out reports/sanitize

Two tools, memcheck (accesses outside of any allocation) and initcheck (reads of memory that
nothing has written), each over the tests that are marked `sanitize`, which must be clean, and over
a planted error (`benchmarks/planted.py`), which must be found. The four run side by side: most of
their time is Python's and the tool's. Writes what the tools said to `--out`, and ends with 1 if one
of them ended as it must not.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOUND = 9  # exit code of the sanitizer when it has found an error
TESTS = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "sanitize", "tests/kernels"]
# Without it, tables lie in torch's large blocks, and what is read past one is still allocated.
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
SETTINGS = {"memcheck": UNCACHED, "initcheck": {}}
LONGEST_S = 400.0
KEPT_LINES = 12


def main() -> int:
    """Runs the four, and writes a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for what the tools say")
    args = parser.parse_args()
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        print("compute-sanitizer is not on PATH; it comes with the CUDA toolkit", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    runs = [
        (tool, settings, what, command, expected)
        for tool, settings in SETTINGS.items()
        for what, command, expected in (
            ("marked tests", TESTS, 0),
            ("planted error", ["benchmarks/planted.py", tool], FOUND),
        )
    ]
    lines = []
    good = True
    with ThreadPoolExecutor(len(runs)) as pool:
        ended = pool.map(lambda run: _timed([sanitizer, "--tool", run[0]], run[1], run[3]), runs)
        for (tool, _, what, _, expected), (code, said, seconds) in zip(runs, ended, strict=True):
            right = code == expected
            good &= right
            verdict = "as it must" if right else f"WRONG: exit code {expected} was expected"
            line = f"{tool}, {what}: exit code {code}, {verdict} ({seconds:.0f} s)"
            print(line, flush=True)
            lines += [line, *(f"    {text}" for text in _shortened(said)), ""]
    (args.out / "sanitize.txt").write_text("\n".join(lines), encoding="utf-8")
    return 0 if good else 1


def _timed(
    sanitizer: list[str], settings: dict[str, str], command: list[str]
) -> tuple[int, str, float]:
    """Exit code of one command, what it said, and how many seconds it took."""
    began = time.monotonic()
    code, said = _run(sanitizer, settings, command)
    return code, said, time.monotonic() - began


def _run(sanitizer: list[str], settings: dict[str, str], command: list[str]) -> tuple[int, str]:
    """Runs one command of this interpreter under the sanitizer."""
    environment = os.environ | settings | {"BT_BENCH_TEST_GPU": "1"}
    environment.pop("TRITON_INTERPRET", None)
    try:
        done = subprocess.run(
            [*sanitizer, f"--error-exitcode={FOUND}", sys.executable, *command],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        said = expired.stdout or b""
        return 124, said.decode(errors="replace") if isinstance(said, bytes) else said
    return done.returncode, done.stdout


def _shortened(said: str) -> list[str]:
    """What a tool said, without host backtraces and this machine's paths; the middle left out."""
    said = said.replace(str(ROOT), ".").replace(str(Path.home()), "~")
    said = re.sub(r'File "[^"]*site-packages/', 'File "', said)
    lines = [line for line in said.splitlines() if "Host Frame" not in line]
    if len(lines) <= 2 * KEPT_LINES:
        return lines
    left_out = len(lines) - 2 * KEPT_LINES
    return [*lines[:KEPT_LINES], f"… {left_out} lines left out …", *lines[-KEPT_LINES:]]


if __name__ == "__main__":
    sys.exit(main())
