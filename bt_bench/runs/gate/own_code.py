"""Refusal to judge a tree in a process that runs code of that tree."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import bt_bench
from bt_bench.base.errors import ForeignCodeError

_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")


def refuse_code_of(top: Path) -> None:
    """Refuse to judge a tree if this process has modules of it, such as by PYTHONPATH.

    A tree that bt-bench itself lies in, and runs from, is not refused: there is nobody else to
    judge it.

    Args:
        top: folder of the tree.

    Raises:
        ForeignCodeError: naming the file.
    """
    installed = [Path(sysconfig.get_path(name)).resolve() for name in _INSTALLED]
    within = f"{str(top).rstrip(os.sep)}{os.sep}"

    def is_of_the_tree(file: str) -> bool:
        return file.startswith(within) and not any(map(Path(file).is_relative_to, installed))

    if is_of_the_tree(os.path.realpath(bt_bench.__file__)):
        return
    folders: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # Some modules are made by others, such as by torch, with a name for a file.
        if not isinstance(file, str) or not os.path.isabs(file):  # noqa: PTH117
            continue
        # Of hundreds of modules, most lie in the same few folders.
        folder, last = os.path.split(file)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        real = f"{folders[folder]}{os.sep}{last}"
        real = os.path.realpath(real) if os.path.islink(real) else real  # noqa: PTH114
        if is_of_the_tree(real):
            raise ForeignCodeError(
                f"{real}, which is of the tree to be judged, runs in the process that judges it, "
                f"as module {name!r}; keep the tree off PYTHONPATH, and name folders that variants "
                "import from in BT_BENCH_PYTHONPATH"
            )
