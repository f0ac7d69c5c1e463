"""Shows each fault of a set from `fifth` on by legal calls on it and on the reference.

    python tests/unseen/run_demos.py SET planted|wrong [NAME...] [--instead]

With `--instead` the shipped variant takes the place of the faulty one, and nothing may show.
"""

# ruff: noqa: T201
from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")
HERE = Path(__file__).resolve().parent
# Their calls are made by what the fourth set has for that.
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "kernels"), str(HERE / "fourth")]

from common import Differs  # noqa: E402
from support.planted import plant  # noqa: E402


def module(path: Path):
    """Load a file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def variant_of(path: Path, folder: Path, *, instead: bool):
    """The variant of a file, or the shipped one that it is of."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if instead and path.suffix == ".patch":
        base = f"bt_kernels.variants.{lines[0].removeprefix('Variant:').strip()}"
    elif instead:
        base = next(
            line.split()[1] for line in lines if line.startswith("from bt_kernels.variants.")
        )
    elif path.suffix == ".patch":
        return module(plant(path, folder)).Variant
    else:
        return module(path).Variant
    return importlib.import_module(base).Variant


def main() -> None:
    """Run demos, and tell which faults show."""
    of, kind, *names = [each for each in sys.argv[1:] if each != "--instead"]
    demos = module(HERE / of / f"demos_{kind}.py").DEMOS
    paths = [path for path in sorted((HERE / of / kind).iterdir()) if path.is_file()]
    shown = 0
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for path in paths:
            if names and path.stem not in names:
                continue
            try:
                demos[path.stem](variant_of(path, Path(folder), instead="--instead" in sys.argv))
                told = "does not show"
            except Differs as error:
                told, shown = f"shows: {str(error)[:150]}", shown + 1
            print(f"{path.stem}: {told}", flush=True)
    print(f"{shown} show")


if __name__ == "__main__":
    main()
