"""Run commands, write reports, and plant faults in copies of the kernels, for studies."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bt_bench.report import Cell, Document, Table, print_document, render_document

ROOT = Path(__file__).resolve().parent.parent
MAIN = "from bt_bench.cli import main; main()"

Edit = tuple[str, str, str]
"""A file of `bt_kernels`, a text that occurs in it once, and the replacement."""


def environment(*folders: Path) -> dict[str, str]:
    """Return the environment of a command that imports from `folders` first.

    It drops the caller's `BT_BENCH_` options, and has kernels compiled rather than interpreted.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("BT_BENCH_")}
    kept.pop("TRITON_INTERPRET", None)
    paths = [*map(str, folders), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def bt_bench(
    *arguments: str | Path,
    folders: Sequence[Path] = (),
    code: str = MAIN,
    cwd: Path | None = None,
    timeout: float | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run bt-bench in a process; return its exit code and its output.

    Args:
        arguments: the command with its options.
        folders: folders to import from first.
        code: Python code that runs the command.
        cwd: folder to run it in.
        timeout: limit in seconds.
        variables: additional variables of the environment.

    Raises:
        subprocess.TimeoutExpired: if it takes longer than `timeout`.
    """
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment(*folders) | variables,
        timeout=timeout,
    )


def has_gpu() -> bool:
    """Return whether torch finds a GPU; only a subprocess creates a CUDA context."""
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def plant(folder: Path, edits: Iterable[Edit] = ()) -> Path:
    """Copy this checkout's kernels into a folder, in place of an earlier copy, and edit them.

    Args:
        folder: the folder, in which `kernels` is written.
        edits: the edits; one with an empty text appends to its file.

    Returns:
        The copy, to import `bt_kernels` from.

    Raises:
        SystemExit: if an edit's text does not occur once.
    """
    copy = folder / "kernels"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "kernels", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in edits:
        path = copy / "bt_kernels" / name
        text = path.read_text(encoding="utf-8")
        if old and text.count(old) != 1:
            raise SystemExit(f"{name} has {text.count(old)} times: {old!r}; adapt the study")
        text = text.replace(old, new) if old else text + new
        ast.parse(text)
        path.write_text(text, encoding="utf-8")
    return copy


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], num_text_columns: int) -> Table:
    """Return a table of the rows' values as text."""
    cells = tuple(tuple(Cell(str(value)) for value in row) for row in rows)
    return Table(tuple(columns), cells, num_text_columns)


def write_report(out: Path, name: str, page: Document, found: object) -> None:
    """Write `name.json` with what was found and `name.md` with its page; print the page.

    Args:
        out: folder for both, created if necessary.
        name: their name.
        page: the page.
        found: anything that JSON can hold.
    """
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1)
    (out / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    (out / f"{name}.md").write_text(render_document(page), encoding="utf-8")
    print_document(page)
