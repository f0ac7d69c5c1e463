"""Tables where kernels can neither be launched nor interpreted."""

from __future__ import annotations

import os
import subprocess
import sys

# The first process forks the second: each would import torch for a second. Triton
# reads the variable when it is imported, which torch does not do.
SCRIPT = """\
import gc
import os
import sys
import torch

gc.freeze()
child = os.fork()
if not child:
    os.environ["TRITON_INTERPRET"] = "1"
elif os.waitpid(child, 0)[1] != 0:
    sys.exit("interpreted, there are none")
from bt_kernels import TableLayout
from bt_kernels.variants.fused import Variant

Variant(TableLayout((16,), (4,), 2, 16), torch.device("cpu"))
"""


def test_tables_say_what_to_do_without_a_gpu_and_without_the_interpreter():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "RuntimeError: no kernel can run: Triton finds no GPU" in ended.stderr
    assert "set TRITON_INTERPRET=1 before anything imports triton" in ended.stderr
    assert "interpreted, there are none" not in ended.stderr
