"""Suites that could make any variant look right, and faults of a suite that others would bear."""

from __future__ import annotations

import pytest
from support.suites import changed, suites_here

from bt_bench.base.errors import UsageError
from bt_bench.config import load_config
from bt_bench.protocol import find_suite, load_suite
from bt_bench.protocol.hosted import HostedParameters
from bt_bench.results import Plan
from bt_bench.variants import find_variants, load_apart
from bt_bench.worker import CheckCase, CheckConformance
from bt_bench.worker.measuring.bench import CpuBench
from bt_bench.worker.process.executor import Executor, LocalRunner


def check(folder, operations=("copy",), rounds=1):
    """Checks a right variant as a worker does, on a workload of the suite and on one of a config.

    Returns:
        Why it has failed on each; `None` if it has not.
    """
    with suites_here():
        suite = load_suite(find_suite(str(folder), folder.parent))
        case = load_config("tiny", suite=str(folder)).cases[1]
        variant = load_apart(find_variants(suite=suite)["baseline"])
        plan = Plan(check_rounds=rounds)
        runner = LocalRunner(Executor({"baseline": [variant]}, CpuBench(), plan, suite=suite))
        asked = tuple(suite.by_name[name] for name in operations)
        found = []
        if suite.conformance(0):
            task = CheckConformance("odd", asked)
            found.append(runner.run(task, ["baseline"]).value["baseline", asked[0]])
        checked = runner.run(CheckCase(case, asked), ["baseline"])
        found.append(checked.value.outcomes["baseline", asked[0]])
        return [outcome.reason for outcome in found]


def refusal(folder, *options, **named):
    with pytest.raises(UsageError) as caught:
        check(folder, *options, **named)
    assert not str(caught.value).startswith("case")
    return str(caught.value)


def line_of(folder, name, text):
    """Where a text is, as messages have it."""
    lines = (folder / name).read_text().splitlines()
    return f"{folder / name}:{1 + next(at for at, line in enumerate(lines) if text in line)}: "


def test_a_suite_that_tells_the_truth_is_not_refused(folder):
    assert check(folder) == [None, None]


NEVER_CALLS = """\
def call(self, operation, step):
        return partial(self.variant.out[: len(step)].copy_, step)"""

OWN_REFERENCE = """\
def __init__(self, variant, workload, device):
        from copy_kernels.variants.reference import Variant
        self.variant = Variant(workload.rows, device)"""

REFERENCE_BESIDE = """\
def __init__(self, variant, workload, device):
        from copy_kernels.variants.reference import Variant
        self.variant = variant(workload.rows, device)
        self.right = Variant(workload.rows, device)"""

INIT = "def __init__(self, variant, workload, device):\n        self.variant = variant("
CALL = "def call(self, operation, step):\n        return partial(self.variant.copy, step)"
MADE = """\
def made(rng, rows):
    return tuple(rng.integers(99, size=rows) for _ in range(2))


"""
VARIED = "    def varied(self, rng):\n        return Tokens_(made(rng, self.rows), self.rows)\n\n"
DIGEST = "    def digest(self):\n        return str(self.rows)\n\n"
TRAFFIC = "[Traffic(8 * len(step), 8 * len(step)) for step in self.steps]"
OUTPUTS = 'def outputs(self):\n        return {"out": self.variant.out}'
TRUTH = "self.out[: len(tokens)] = tokens"

IDLE = "its check cannot fail: a variant that does nothing passes, calls copy"
STALE = "its check cannot fail: a variant that returns the results of the step before passes"


def test_a_driver_that_never_calls_the_variant_is_refused(folder):
    changed(folder, "driver.py", CALL, NEVER_CALLS)
    said = refusal(folder)
    assert said.startswith(line_of(folder, "driver.py", "def call") + IDLE)
    assert "the driver never calls a method of the variant that it is given" in said


def test_a_driver_that_always_has_the_reference_is_refused(folder):
    changed(folder, "driver.py", INIT + "workload.rows, device)", OWN_REFERENCE)
    assert refusal(folder).startswith(line_of(folder, "driver.py", "def call") + IDLE)


def test_a_driver_that_compares_the_reference_is_refused(folder):
    changed(folder, "driver.py", INIT + "workload.rows, device)", REFERENCE_BESIDE)
    changed(
        folder, "driver.py", CALL, CALL.replace("return", "self.right.copy(step)\n        return")
    )
    changed(folder, "driver.py", OUTPUTS, OUTPUTS.replace("variant.out", "right.out"))
    changed(folder, "driver.py", "def results", "def _results")
    said = refusal(folder)
    assert said.startswith(line_of(folder, "driver.py", "def outputs") + IDLE)
    assert "compare the outputs of the variant's calls" in said


def test_steps_that_all_have_one_result_are_refused(folder):
    changed(folder, "suite.py", "np.arange(self.rows) + n for", "np.arange(self.rows) for")
    assert STALE in refusal(folder)


def test_one_workload_that_tells_them_apart_is_enough(folder):
    """The others may be empty, or have one step."""
    changed(
        folder,
        "suite.py",
        "return Tokens_(tuple(np.arange(self.rows) + n for n in range(2)), self.rows)",
        "steps = 2 if self.rows == 37 else 1\n"
        "        return Tokens_(tuple(np.arange(self.rows) + n for n in range(steps)), self.rows)",
    )
    assert check(folder) == [None, None]


def test_where_no_workload_has_two_steps_there_are_no_last_results(folder):
    changed(folder, "suite.py", "for n in range(2)", "for n in range(1)")
    assert check(folder) == [None, None]


def test_a_suite_without_conformance_workloads_is_tried_on_a_case(folder):
    changed(folder, "suite.py", "def conformance", "def _conformance")
    assert check(folder) == [None]


def test_a_driver_that_never_calls_is_refused_on_a_case_as_well(folder):
    changed(folder, "suite.py", "def conformance", "def _conformance")
    changed(folder, "driver.py", CALL, NEVER_CALLS)
    assert IDLE in refusal(folder)


STATE = OUTPUTS.replace('return {"out": self.variant.out}', "return {}\n\n    def state(self):")
STATE += '\n        return {"out": self.variant.out}'
UNNAMED = "self.out[: len(self.next)] = self.next"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([("driver.py", OUTPUTS, STATE)], id="in place, as state"),
        pytest.param(
            [
                ("driver.py", "self._start = ", "self.variant.next = None\n        self._start = "),
                (
                    "driver.py",
                    CALL,
                    "def prepare(self, operation, step):\n        self.variant.next = step\n\n    "
                    + CALL.replace("self.variant.copy, step", "self.variant.copy, None"),
                ),
                ("copy_kernels/variants/reference.py", TRUTH, UNNAMED),
                ("copy_kernels/variants/baseline.py", TRUTH, UNNAMED),
                ("copy_kernels/variants/reference.py", "[: len(tokens)]\n", "[: len(self.next)]\n"),
                ("copy_kernels/variants/baseline.py", "[: len(tokens)]\n", "[: len(self.next)]\n"),
            ],
            id="what a call reads is not among its arguments",
        ),
        pytest.param(
            [
                (
                    "copy_kernels/variants/reference.py",
                    "    def copy(self, tokens):",
                    "    def copy(self, tokens):\n        return self._copied(tokens)\n\n"
                    "    def _copied(self, tokens):",
                ),
                ("driver.py", "partial(self.variant.copy, step)", "lambda: self._do(step)"),
                (
                    "driver.py",
                    "    def rewind",
                    "    def _do(self, step):\n        return self.variant.copy(step)\n\n"
                    "    def rewind",
                ),
            ],
            id="by ways of its own",
        ),
        pytest.param(
            [
                (
                    "suite.py",
                    "    def traffic",
                    "    def varied(self, rng):\n"
                    "        steps = tuple(rng.integers(99, size=len(s)) for s in self.steps)\n"
                    "        return Tokens_(steps, self.rows)\n\n    def traffic",
                ),
                ("suite.py", "    rows: int\n", "    rows: int\n    other: object = object()\n"),
                ("suite.py", "    def sizes", DIGEST + "    def sizes"),
            ],
            id="with contents that vary, and a digest of its own",
        ),
        pytest.param(
            [
                ("suite.py", "    def traffic", VARIED + "    def traffic"),
                (
                    "suite.py",
                    'return {"one": Tokens(rows=1).build(), "odd": Tokens(rows=37).build()}',
                    'return {"odd": Tokens_(made(np.random.default_rng(seed), 37), 37)}',
                ),
                ("suite.py", "class Tokens(Wo", MADE + "class Tokens(Wo"),
            ],
            id="with contents that vary by the seed that made them",
        ),
    ],
)
def test_suites_of_many_kinds_are_not_refused(folder, changes):
    for name, old, new in changes:
        changed(folder, name, old, new)
    assert check(folder) == [None, None]


TRIAL = """
from bt_bench.protocol import Trial


class Kind(Trial):
    def __init__(self, reference, workload, device, rng, paths):
        self._workload = workload
        self._paths = paths
        self._device = device
    num_steps = property(lambda self: len(self._workload.steps))
    def begin(self, variant, guard):
        return CopyDriver(variant, self._workload, self._device)
    def resume(self, driver):
        return driver
    def expect(self, index):
        return None
    def step(self, subject, path, index, expected, through, guard, inputs=None):
        pass
    def compared(self, subject):
        return ["out"]


CopyDriver.trial = Kind
"""


def with_trial(folder, step="pass", expect="None"):
    path = folder / "driver.py"
    trial = TRIAL.replace("        pass\n", f"        {step}\n")
    path.write_text(path.read_text() + trial.replace("return None", f"return {expect}"))


def test_a_trial_that_compares_nothing_is_refused(folder):
    with_trial(folder)
    said = refusal(folder)
    assert said.startswith(line_of(folder, "driver.py", "class Kind") + IDLE)


RETURNING = """\
class Variant:
    def __init__(self, rows, device):
        pass

    def copy(self, tokens):
        return tokens.clone()
"""
COMPARING = """\
step = subject.inputs_on(self._device, self._workload)[index]
        found = through(subject.variant, path[0], subject.call(path[0], step))
        if {differs}:
            from bt_bench.protocol import MismatchError
            raise MismatchError("not as expected")"""


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ("not torch.equal(found, expected)", None),
        ("found is None or found.shape != expected.shape", STALE),
    ],
)
def test_results_that_no_variant_keeps_are_tried_as_well(folder, differs, said):
    changed(folder, "driver.py", "        self._start = self.variant.out.clone()\n", "")
    expect = "torch.tensor(self._workload.steps[index])"
    with_trial(folder, COMPARING.format(differs=differs), expect)
    for name in ("reference", "baseline"):
        (folder / f"copy_kernels/variants/{name}.py").write_text(RETURNING)
    if said is None:
        assert check(folder) == [None, None]
    else:
        assert said in refusal(folder)


@pytest.mark.parametrize(
    ("name", "old", "new", "place", "said"),
    [
        (
            "suite.py",
            "    def traffic",
            "    def varied(self, rng):\n        return self\n\n    def traffic",
            "def varied",
            "varied of Tokens_ returned the workload as it was; expected other contents",
        ),
        (
            "suite.py",
            "    def traffic",
            "    def varied(self, rng):\n        pass\n\n    def traffic",
            "def varied",
            "varied returned NoneType; expected a Tokens_",
        ),
        (
            "suite.py",
            "np.arange(self.rows) + n for n",
            "np.arange(self.rows) + np.random.default_rng().integers(2**31) for n",
            "def build",
            "build of kind 'tokens' gave two different workloads for the same parameters",
        ),
        (
            "driver.py",
            "return [torch.tensor(step, device=device) for step in workload.steps]",
            "pass",
            "def inputs_on",
            "inputs_on of CopyDriver returned NoneType; expected a list with one for each of 2",
        ),
        (
            "driver.py",
            "for step in workload.steps]",
            "for step in workload.steps[1:]]",
            "def inputs_on",
            "inputs_on of CopyDriver returned 1 inputs; expected a list with one for each of 2",
        ),
        (
            "driver.py",
            "self.variant",
            "self.mine",
            "def __init__",
            "CopyDriver has no attribute 'variant'; expected __init__ to keep",
        ),
        (
            "driver.py",
            OUTPUTS,
            "def outputs(self):\n        1 / 0",
            "1 / 0",
            "driver of suite 'copying' failed: ZeroDivisionError",
        ),
        (
            "driver.py",
            'return {"out": self.variant.out[: len(step)]}',
            "1 / 0",
            "1 / 0",
            "the reference or its driver of suite 'copying' failed: ZeroDivisionError",
        ),
        (
            "driver.py",
            'return {"tokens": step}',
            "1 / 0",
            "1 / 0",
            "the reference or its driver of suite 'copying' failed: ZeroDivisionError",
        ),
        (
            "suite.py",
            "[len(step) for step in self.steps]",
            "[float('nan') for step in self.steps]",
            "def sizes",
            "Tokens_.sizes has nan as 'num_rows'; expected whole numbers",
        ),
        (
            "suite.py",
            "[len(step) for step in self.steps]",
            "['many' for step in self.steps]",
            "def sizes",
            "Tokens_.sizes has 'many' as 'num_rows'; expected whole numbers",
        ),
        (
            "suite.py",
            "Traffic(8 * len(step), 8 * len(step))",
            "Traffic(8 * len(step), float('nan'))",
            "def traffic",
            "expected one for each of 2 steps, of 0 bytes or more",
        ),
        (
            "suite.py",
            TRAFFIC,
            "[Traffic(8, 8)]",
            "def traffic",
            "of copy is [Traffic(read=8, written=8)]…; expected one for each of 2 steps",
        ),
        (
            "suite.py",
            TRAFFIC,
            "[Traffic(8, 8), Traffic(-8, 8)]",
            "def traffic",
            ", Traffic(read=-8, written=8)]…; expected one for each of 2 steps, of 0 bytes or more",
        ),
    ],
)
def test_a_fault_of_a_suite_is_told_at_once(folder, name, old, new, place, said):
    changed(folder, name, old, new)
    found = refusal(folder)
    assert found.startswith(line_of(folder, name, place))
    assert said in found


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("num_bytes", "-4"),
        ("num_bytes", "float('nan')"),
        ("num_bytes", "'many'"),
        ("num_bytes", "None"),
        ("num_programs", "float('inf')"),
    ],
)
def test_a_number_that_is_none_is_refused_with_the_config(folder, method, value):
    changed(
        folder,
        "suite.py",
        "def num_bytes(self):\n        return 8 * self.rows",
        f"def {method}(self):\n        return {value}",
    )
    with suites_here(), pytest.raises(UsageError) as caught:
        HostedParameters.of(load_config("tiny", suite=str(folder)).cases[0].parameters)
    said = f"{method} of kind 'tokens' returned {eval(value)!r}; expected a number of 0 or more"
    assert line_of(folder, "suite.py", f"def {method}") + said in str(caught.value)


@pytest.mark.parametrize("given", ["(3,)", "(Tokens, 3)", "(Tokens_,)", "(Tokens(),)"])
def test_parameters_that_are_no_classes_of_them_are_refused(folder, given):
    changed(folder, "suite.py", "parameters = (Tokens,)", f"parameters = {given}")
    with suites_here(), pytest.raises(UsageError) as caught:
        load_config("tiny", suite=str(folder))
    found = str(caught.value)
    assert found.startswith(line_of(folder, "suite.py", "parameters = (") + "parameters has ")
    assert found.endswith("expected classes derived from WorkloadParameters")
