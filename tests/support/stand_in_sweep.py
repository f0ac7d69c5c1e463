"""A program in place of `bt-bench sweep --shard`, for tests of engines: quick, and a witness.

It keeps the contract of a run folder: it begins or continues one, a case at a time. It witnesses in
the file `violations` if another process has the same folder or the same device at the same time.
"""

from __future__ import annotations

from pathlib import Path

CASES = 6  # of a shard

# `sitecustomize` comes before `-m bt_bench` does; what imports bt_bench otherwise goes on.
_CODE = """\
import sys

if sys.orig_argv[1:3] == ["-m", "bt_bench"]:
    import fcntl, os, random, time
    from pathlib import Path

    words = sys.orig_argv[3:]
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "none")
    folder = Path(words[-1])

    def claim(path):
        file = path.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with (folder.parent / "violations").open("a") as violations:
                violations.write(f"{path.name} {os.getpid()}\\n")
        return file

    if words[-2] == "--out":
        folder.mkdir()
        time.sleep(random.uniform(0, 0.1))
        (folder / "config.yaml").touch()
    held = claim(folder / "held"), claim(folder.parent / f"device-{device}")
    cases = folder / "cases"
    done = cases.read_text().splitlines() if cases.exists() else []
    for case in range(len(done), %d):
        with (folder.parent / "begun").open("a") as begun:
            begun.write(f"{os.getpid()} {folder.name} {case} {device}\\n")
        time.sleep(random.uniform(0.1, 0.3))
        with cases.open("a") as file:
            file.write(f"{case} {device}\\n")
    os._exit(0)
"""


def stand_in(folder: Path) -> str:
    """Writes the program; the value of PYTHONPATH that puts it in place."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_CODE % CASES)
    return str(folder)


def cases_of(shards: Path) -> dict[str, list[str]]:
    """Cases of each shard, in the order in which they were measured."""
    found = {}
    for path in sorted(shards.glob("*-of-*/cases")):
        found[path.parent.name] = [line.split()[0] for line in path.read_text().splitlines()]
    return found
