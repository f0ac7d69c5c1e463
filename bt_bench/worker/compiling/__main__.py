"""Entry point of the compiling process: `python -m bt_bench.worker.compiling FOLDER`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from bt_bench.base import no_collection

# All objects that these imports make stay alive; collecting would take a quarter of their time.
with no_collection(collect_first=False):
    from bt_bench.worker.compiling.main import main

gc.freeze()
main(Path(sys.argv[1]))
