"""What is said of a user's suite that is wrong where it runs, and of checks that check nothing."""

from __future__ import annotations

import pytest
from examples.tools import bench
from support.suites import changed


def check(folder, *options):
    return bench("check", "tiny", "--device", "cpu", *options, suite=folder)


def test_it_passes_as_it_is(folder):
    assert check(folder).code == 0


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "suite.py",
            "return Tokens_(",
            "raise KeyError('x')\n        return Tokens_(",
            "failed: KeyError",
        ),
        ("suite.py", '"num_rows": [len', '"rows": 1 / 0, "num_rows": [len', "sizes of suite"),
        ("suite.py", 'return {"one"', '1 / 0\n        return {"one"', "conformance of suite"),
        ("driver.py", "import torch\n", "import torchh\n", "driver of suite 'copying' failed"),
        ("driver.py", "class CopyDriver(Driver)", "class CopyDriver", "expected a Driver"),
        ("driver.py", "def rewind", "def rewound", "CopyDriver has no method rewind"),
        ("driver.py", "def inputs_of", "def input_of", "has 'input_of', which is never used; did"),
        (
            "suite.py",
            "return 8 * self.rows",
            "return 8 / 0",
            "num_bytes of the parameters of suite",
        ),
        ("suite.py", "def conformance", "def conform", "did you mean 'conformance'"),
        ("suite.py", "def sizes", "def size", "did you mean 'sizes'"),
        ("suite.py", "def num_bytes", "def num_byte", "did you mean 'num_bytes'"),
        ("suite.py", "len(step) for step in self.steps]", "1]", "has 1 values of 'num_rows'; exp"),
        (
            "suite.py",
            "import numpy",
            "import torch\nimport numpy",
            "torch is loaded with the suite; import it in the functions that need it",
        ),
        (
            "driver.py",
            'return {"out": self.variant.out}',
            "return {}",
            "outputs() and state() of CopyDriver have no element",
        ),
        (
            "copy_kernels/variants/reference.py",
            "self.out[: len(tokens)] = tokens",
            "pass",
            "the reference has changed neither outputs() nor state()",
        ),
        (
            "copy_kernels/variants/reference.py",
            "self.out[: len(tokens)] = tokens",
            "1 / 0",
            "reference.py:10: the reference or its driver of suite 'copying' failed: ZeroDiv",
        ),
    ],
)
def test_an_error_of_a_suite_names_its_file(folder, name, old, new, said):
    changed(folder, name, old, new)
    outcome = check(folder)
    assert outcome.code == 2, outcome
    assert said in outcome.err
    assert "internal error" not in outcome.err
    assert str(folder) in outcome.err


def test_a_driver_of_another_suite_is_never_used(folder):
    """Its workloads would be driven by their own suite, whatever this one says."""
    changed(folder, "suite.py", "return Tokens_(", "return other()(")
    changed(folder, "suite.py", "class Tokens(", OTHER_WORKLOAD)
    outcome = check(folder)
    assert outcome.code == 2, outcome
    assert "is of suite 'block_tables', which would drive it" in outcome.err


OTHER_WORKLOAD = """\
def other():
    from bt_bench.suites.block_tables.workloads import Workload
    return lambda steps, rows: Workload(None, "int64", (), steps)


class Tokens("""


def test_an_error_in_the_driver_is_said_to_be_of_the_suite(folder):
    changed(folder, "driver.py", "return partial(", "step.nothing\n        return partial(")
    changed(folder, "driver.py", "def call(self, operation, step):", CALL_OF_VARIANTS)
    outcome = check(folder)
    assert outcome.code == 5, outcome
    assert "(driver.py:" in outcome.out
    assert ", of the suite itself)" in outcome.out


CALL_OF_VARIANTS = """\
def call(self, operation, step):
        if type(self.variant).__module__.endswith("reference"):
            return partial(self.variant.copy, step)"""


def test_a_forgotten_rewind_is_found(folder):
    changed(folder, "driver.py", "self.variant.out.copy_(self._start)", "pass")
    changed(
        folder,
        "driver.py",
        'def outputs(self):\n        return {"out": self.variant.out}',
        "def outputs(self):\n        return {}\n\n    def state(self):\n"
        '        return {"out": self.variant.out}',
    )
    outcome = check(folder)
    assert outcome.code == 5
    assert "out, as rewind() of the driver left it,[0] is" in outcome.out


def test_floats_that_are_changed_in_place_are_compared(folder):
    """Garbage of NaN would make wrong arithmetic on it equal."""
    for name in ("reference", "baseline", "second"):
        path = f"copy_kernels/variants/{name}.py"
        changed(folder, path, "dtype=torch.int64", "dtype=torch.bfloat16")
        factor = 3 if name == "second" else 2
        changed(folder, path, "= tokens", f"*= {factor}")
    outcome = check(folder)
    assert "ok      baseline · 4 checks of 4 workloads" in outcome.out
    assert "FAILED  second" in outcome.out
    assert "FAILED  baseline" not in outcome.out


def test_a_result_of_another_suite_is_not_compared(folder, tmp_path):
    out = tmp_path / "run"
    options = "--device", "cpu", "--operations", "copy", "--out", out
    assert bench("sweep", "tiny", *options, suite=folder).code == 0
    text = (out / "comparison.md").read_text()
    assert "nothing is staged" in " ".join(text.split())
    other = tmp_path / "other.json"
    other.write_text((out / "second.json").read_text().replace('"copying"', '"pages"'))
    refused = bench("compare", out / "baseline.json", other, suite=None)
    assert refused.code == 4
    assert "suite copying against pages" in refused.err
