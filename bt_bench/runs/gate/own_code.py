"""Whether the process that judges a tree runs code of that tree."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import bt_bench
from bt_bench.errors import UsageError

_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")
# What workers import, where these are no processes of their own, as in tests.
_OF_USERS = "bt_bench_"


def refuse_code_of(top: Path) -> None:
    """Refuse to judge a tree that this process has modules of, such as by PYTHONPATH.

    A tree that bt-bench itself lies in, and runs from, is not refused: there is nobody else to
    judge it.

    Args:
        top: folder of the tree.

    Raises:
        UsageError: naming the file.
    """
    if Path(bt_bench.__file__).resolve().is_relative_to(top):
        return
    installed = [Path(sysconfig.get_path(name)).resolve() for name in _INSTALLED]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # Some modules are made by others, such as by torch, with a name for a file.
        if not isinstance(file, str) or not Path(file).is_absolute() or name.startswith(_OF_USERS):
            continue
        path = Path(file).resolve()
        if path.is_relative_to(top) and not any(map(path.is_relative_to, installed)):
            raise UsageError(
                f"{path}, which is of the tree to be judged, runs in the process that judges it, "
                f"as module {name!r}; keep the tree off PYTHONPATH, and name folders that variants "
                "import from in BT_BENCH_PYTHONPATH"
            )
