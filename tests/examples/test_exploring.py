"""Suites without an explorer of their own are explored by what their drivers offer."""

from __future__ import annotations

import json

import pytest
from examples.tools import bench
from examples.wrong_variants import SUITE, write_wrong
from support.repositories import write

from bt_bench.runs import faults

FUSED = (SUITE / "page_kernels/variants/fused.py").read_text(encoding="utf-8")
ROWS = "        num_reqs = idx_mapping.shape[0]\n"

# What the common check does not find: it has one instance at a time, and goes through it once.
UNSEEN = {
    "shares_lengths": (
        "instances of one size have the same staged lengths",
        "    def build(self",
        "    of_size = {}\n\n"
        "    def __init__(self, page_table, page_size):\n"
        "        super().__init__(page_table, page_size)\n"
        "        self.staged = self.of_size.setdefault(page_table.shape[0], self.staged)\n\n"
        "    def build(self",
    ),
    "remembers_tensors": (
        "a batch whose tensor was there before is not built again",
        ROWS,
        ROWS + "        self.known = getattr(self, 'known', {})\n"
        "        if id(idx_mapping) in self.known:\n"
        "            return self._views(num_reqs)\n"
        "        self.known[id(idx_mapping)] = idx_mapping\n",
    ),
}
KNOWN = (
    "ignores_the_mapping",
    "changes_an_input",
    "stale_lengths",
    "returns_copies",
    "reads_past_the_table",
)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """A folder of wrong variants."""
    folder = write_wrong(tmp_path_factory.mktemp("wrong"), *KNOWN)
    for name, (_, old, new) in UNSEEN.items():
        assert FUSED.count(old) == 1
        write(folder, {f"{name}.py": FUSED.replace(old, new)})
    return folder


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(faults, "SHRINK_SECONDS", 0.5)


def explored(outcome):
    assert outcome.out, outcome.err
    return {one["variant"]: one for one in outcome.json()["explored"]}


def test_right_variants_pass():
    outcome = bench("check", "quick", "--scenario", "0-5", "--json")
    assert outcome.code == 0, outcome
    found = explored(outcome)
    assert {name: one["status"] for name, one in found.items()} == {"baseline": "ok", "fused": "ok"}
    assert found["fused"]["scenarios"] == 6


@pytest.mark.parametrize("name", [*KNOWN, *UNSEEN])
def test_a_wrong_variant_is_found(wrong, name):
    options = "--kernels", wrong, "--variants", name, "--scenario", "0-40", "--json"
    outcome = bench("check", "quick", *options)
    assert outcome.code == 5, outcome
    found = explored(outcome)[name]["found"]
    assert found["lines"][0].partition("workload ")[2]
    codes = {"reads_past_the_table": "out_of_bounds", "ignores_the_mapping": "race"}
    assert found["reason"]["code"] == codes.get(name, "wrong_result"), found
    if name == "shares_lengths":
        assert len({line.partition(":")[0] for line in found["lines"]}) == 2, found
    if name == "remembers_tensors":
        assert any("rewind" in line or "more time" in line for line in found["lines"]), found


@pytest.mark.parametrize("name", UNSEEN)
def test_the_common_check_does_not_find_it(wrong, name):
    options = "--kernels", wrong, "--variants", name, "-k", "decode*"
    outcome = bench("check", "quick", *options)
    assert outcome.code == 0, outcome


# A suite of floats

FLOAT_SUITE = '''\
"""Softmax of rows."""
from dataclasses import dataclass, replace
from typing import Literal
import numpy as np
from bt_bench.protocol import Operation, Suite, Workload, WorkloadParameters


@dataclass(frozen=True)
class Rows(Workload):
    steps: tuple

    def varied(self, rng):
        return replace(self, steps=tuple(made(rng, *step.shape) for step in self.steps))


class Parameters(WorkloadParameters):
    """Rows."""
    workload: Literal["rows"] = "rows"

    def build(self):
        return Rows((made(np.random.default_rng(0), 2, 5),))


def made(rng, rows, columns):
    found = rng.normal(0, 3, (rows, columns)).astype(np.float32)
    found[0] = -np.inf  # of which the softmax is NaN
    return found


class Floats(Suite):
    protocol = 1
    name = "floats"
    title = "Softmax"
    operations = (Operation("softmax", title="Softmax"),)
    parameters = (Parameters,)
    package = "float_kernels"

    def driver(self):
        from .driver import FloatDriver
        return FloatDriver

    def conformance(self, seed):
        rng = np.random.default_rng(seed)
        return {"small": Rows(tuple(made(rng, rows, 5) for rows in (3, 1, 4)))}


SUITE = Floats()
'''
FLOAT_DRIVER = '''\
"""How it is driven."""
from functools import partial
import torch
from bt_bench.protocol import Driver


class FloatDriver(Driver):
    tolerances = {"weights": (1e-4, 1e-6)}

    def __init__(self, variant, workload, device):
        self.variant = variant(6, 5, device)

    @classmethod
    def inputs_on(cls, device, workload):
        return [torch.tensor(step, device=device) for step in workload.steps]

    def call(self, operation, step):
        return partial(self.variant.softmax, step)

    def rewind(self):
        pass

    def outputs(self):
        return {"weights": self.variant.weights}

    def inputs_of(self, step):
        return {}  # torch.equal knows no equal NaN

    def results(self, operation, step):
        return {"weights": self.variant.weights[: len(step)]}
'''
FLOAT_VARIANT = '''\
"""Softmax."""
import torch


class Variant:
    def __init__(self, rows, columns, device):
        self.weights = torch.zeros(rows, columns, device=device)
        self.calls = 0

    def softmax(self, step):
        self.calls += 1
        found = torch.softmax(step{wide}, 1)
        self.weights[: len(step)] = found{off}
        return self.weights[: len(step)]
'''
FLOAT_VARIANTS = {
    "reference": ("", ""),
    "baseline": (".double()", ""),
    "near": ("", " * (1 + 2e-5)"),
    "off_later": ("", " * (1 + 1e-2 * (self.calls > 3))"),
    "not_nan": ("", ".nan_to_num(0)"),
}


@pytest.fixture
def floats(tmp_path):
    """A suite with an output in floating point, and a tolerance for it."""
    files = {"suite.py": FLOAT_SUITE, "driver.py": FLOAT_DRIVER}
    files |= {f"float_kernels/{name}__init__.py": "" for name in ("", "variants/")}
    for name, (wide, off) in FLOAT_VARIANTS.items():
        text = FLOAT_VARIANT.format(wide=wide, off=off)
        files[f"float_kernels/variants/{name}.py"] = text
    files["configs/quick.yaml"] = "description: One\nplan: {rounds: 3}\ncases: [{name: one}]\n"
    write(tmp_path / "floats", files)
    return tmp_path / "floats"


def test_floats_are_compared_within_their_tolerance(floats):
    assert (
        "ok      off_later · 2 checks of 2 workloads" in bench("check", "quick", suite=floats).out
    )
    outcome = bench("check", "quick", "--scenario", "0-20", "--json", suite=floats)
    assert outcome.code == 5, json.dumps(outcome.json(), indent=1)
    found = explored(outcome)
    assert {n: one["status"] for n, one in found.items()} == {
        "baseline": "ok",
        "near": "ok",
        "off_later": "failed",
        "not_nan": "failed",
    }
    message = found["off_later"]["found"]["reason"]["message"]
    assert "weights[" in message
    assert "within 0.0001 of its size and 1e-06" in message
    assert "expected nan" in found["not_nan"]["found"]["reason"]["message"]


def test_reports_claim_no_more_than_the_tolerance_of_a_suite(floats, tmp_path):
    run = tmp_path / "run"
    chosen = ("--variants", "baseline,near", "--out", run)
    swept = bench("sweep", "quick", *chosen, suite=floats)
    assert swept.code == 0, swept
    (case,) = json.loads((run / "near.json").read_text())["cases"]
    assert case["check"]["within_tolerance"] == ["weights"]
    shown = bench("show", run, suite=None).out
    title = shown.splitlines()[0]
    assert title.endswith(": 2 variants equal the reference within the suite's tolerances")
    exactly = "weights within the suite's tolerances and all else bit for bit."
    assert f"All equal the reference, {exactly}" in " ".join(shown.split())
    compared = bench("compare", run, suite=None).out.splitlines()[0]
    assert compared.endswith(", all equal to the reference within the suite's tolerances")
