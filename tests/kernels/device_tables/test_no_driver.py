"""Tables where kernels can neither be launched nor interpreted."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """\
import torch
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
    interpreted = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment | {"TRITON_INTERPRET": "1"}, check=False
    )
    assert interpreted.returncode == 0
