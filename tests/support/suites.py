"""The smallest suite of a user's own, without staging: copies sampled tokens."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

SUITE = '''\
"""Copies sampled tokens into the batch's buffer."""
from __future__ import annotations
from dataclasses import dataclass
from typing import Literal
import numpy as np
from pydantic import Field
from bt_bench.protocol import Operation, Suite, Traffic, Workload, WorkloadParameters


@dataclass(frozen=True)
class Tokens_(Workload):
    steps: tuple[np.ndarray, ...]
    rows: int

    def sizes(self):
        return {"num_rows": [len(step) for step in self.steps]}

    def traffic(self, operation):
        return [Traffic(8 * len(step), 8 * len(step)) for step in self.steps]


class Tokens(WorkloadParameters):
    """Tokens of some rows."""
    workload: Literal["tokens"] = "tokens"
    rows: int = Field(default=4, ge=1, le=1024, description="rows")

    def build(self):
        return Tokens_(tuple(np.arange(self.rows) + n for n in range(2)), self.rows)

    def num_bytes(self):
        return 8 * self.rows


class Copying(Suite):
    protocol = 1
    name = "copying"
    title = "Copies"
    operations = (Operation("copy", title="Copy"),)
    parameters = (Tokens,)
    package = "copy_kernels"

    def driver(self):
        from .driver import CopyDriver
        return CopyDriver

    def conformance(self, seed):
        return {"one": Tokens(rows=1).build(), "odd": Tokens(rows=37).build()}


SUITE = Copying()
'''

DRIVER = '''\
"""How copies are driven."""
from functools import partial
import torch
from bt_bench.protocol import Driver


class CopyDriver(Driver):
    def __init__(self, variant, workload, device):
        self.variant = variant(workload.rows, device)
        self._start = self.variant.out.clone()

    @classmethod
    def inputs_on(cls, device, workload):
        return [torch.tensor(step, device=device) for step in workload.steps]

    def call(self, operation, step):
        return partial(self.variant.copy, step)

    def rewind(self):
        self.variant.out.copy_(self._start)

    def outputs(self):
        return {"out": self.variant.out}

    def inputs_of(self, step):
        return {"tokens": step}

    def results(self, operation, step):
        return {"out": self.variant.out[: len(step)]}
'''

VARIANT = '''\
"""Copies by torch."""
import torch


class Variant:
    def __init__(self, rows, device):
        self.out = torch.zeros(rows + 1, dtype=torch.int64, device=device)

    def copy(self, tokens):
        self.out[: len(tokens)] = tokens
        return self.out[: len(tokens)]
'''


@contextmanager
def suites_here() -> Iterator[None]:
    """Lets code of users' suites run in the process of the tests, as it does in a worker."""
    with patch("bt_bench.protocol.hosting._here", True):
        yield


def as_sent(value: Any) -> Any:
    """What a worker finds in place of a value that it is sent; where suites run."""
    return pickle.loads(pickle.dumps(value))


def write_suite(folder: Path) -> Path:
    """Writes the suite into a new folder, with a right variant and the reference; returns it."""
    variants = folder / "copy_kernels" / "variants"
    variants.mkdir(parents=True)
    (folder / "suite.py").write_text(SUITE)
    (folder / "driver.py").write_text(DRIVER)
    for package in (variants, variants.parent):
        (package / "__init__.py").write_text("")
    for name in ("reference", "baseline", "second"):
        (variants / f"{name}.py").write_text(VARIANT)
    (folder / "configs").mkdir()
    (folder / "configs" / "tiny.yaml").write_text(
        "description: Two sizes\nplan: {rounds: 3}\n"
        "cases: [{name: 'n{rows}', product: {rows: [1, 5]}}]\n"
    )
    return folder


def changed(folder: Path, name: str, old: str, new: str) -> None:
    """Replaces a text in a file of the suite, which must have it."""
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
