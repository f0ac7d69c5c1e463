"""Files of functions, as the suites that they are: checked, swept, compared and gated."""

from __future__ import annotations

import json
import re

import pytest
from support.commands import run, run_apart
from support.forked import forked_suites, workers_forked
from support.repositories import repository

ADD = '''\
"""Sums of two vectors."""
import torch
import bt_bench


@bt_bench.benchmark(inputs={"n": [5, 33]})
def add(n):
    return {"x": torch.rand(n), "y": torch.rand(n), "out": torch.empty(n)}


@add.reference
def torch_add(x, y, out):
    torch.add(x, y, out=out)


@add.variant
def mine(y, x, out):
    """Two operations."""
    out.copy_(x).add_(y)
'''

DOUBLE = '''\
"""Doubles."""
import threading
import time
import torch
import bt_bench


@bt_bench.benchmark(inputs={"n": [33]})
def double(n):
    return {"x": torch.rand(n), "out": torch.empty(n), "sizes": [n]}


@double.reference
def right(x, out):
    out.copy_(x * 2)
'''

WRONG = {
    "a cache by address": """\
CACHE = {}
@double.variant
def wrong(x, out):
    if x.data_ptr() not in CACHE:
        CACHE[x.data_ptr()] = x * 2
    out.copy_(CACHE[x.data_ptr()])
""",
    "a cache by length": """\
CACHE = {}
@double.variant
def wrong(x, out):
    if len(x) not in CACHE:
        CACHE[len(x)] = x * 2
    out.copy_(CACHE[len(x)])
""",
    "outputs that are still there": """\
@double.variant
def wrong(x, out):
    if not hasattr(wrong, "done"):
        out.copy_(x * 2)
    wrong.done = True
""",
    "work that is left to the next call": """\
LATER = []
@double.variant
def wrong(x, out):
    for work in LATER:
        work()
    LATER[:] = [lambda: out.copy_(x * 2)]
""",
    "work in a thread": """\
@double.variant
def wrong(x, out):
    def work():
        time.sleep(0.01)
        out.copy_(x * 2)
    threading.Thread(target=work).start()
""",
    "an argument that it changes": """\
@double.variant
def wrong(x, out):
    out.copy_(x.mul_(2))
""",
    "an element that it leaves": """\
@double.variant
def wrong(x, out):
    out[1:] = x[1:] * 2
""",
    "another function's result": """\
@double.variant
def wrong(x, out):
    out.copy_(x + 2)
""",
}

RETURNING = """\
import torch
import bt_bench


@bt_bench.benchmark(inputs={"n": [33]}, tolerance=1e-6)
def double(n):
    return {"x": torch.rand(n)}


@double.reference
def right(x):
    return x * 2, x + 1


"""

WRONG_RESULTS = {
    "the last result": """\
LAST = []
@double.variant
def wrong(x):
    LAST.append((x * 2, x + 1))
    return LAST[max(0, len(LAST) - 2)]
""",
    "one result": """\
@double.variant
def wrong(x):
    return x * 2
""",
    "another dtype": """\
@double.variant
def wrong(x):
    return (x * 2).double(), x + 1
""",
    "a lazy tensor": """\
class Lazy(torch.Tensor):
    pass
@double.variant
def wrong(x):
    return (x * 2).as_subclass(Lazy), x + 1
""",
}


@pytest.fixture(autouse=True)
def _torch_is_imported_once():
    # And what torch imports once it is asked for deterministic algorithms, as for all inputs.
    with forked_suites("torch", "torch._inductor.config"):
        yield


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes a file of functions into the working directory; returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "mine.py") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return write


def test_right_functions_pass(written):
    outcome = run("check", written(ADD), "--device", "cpu", "--explore", "0")
    assert outcome.code == 0, outcome
    assert "ok      mine · 3 checks of 3 workloads" in outcome.out


def test_right_functions_are_explored(written, tmp_path):
    # Apart: in one process, making inputs seeds torch while a variant is watched for such changes.
    words = ["check", written(ADD), "--device", "cpu", "--explore", "8"]
    outcome = run_apart(*words, cwd=tmp_path, prologue=workers_forked())
    assert outcome.code == 0, outcome
    assert "ok      mine · explored" in outcome.out


@pytest.mark.parametrize("which", WRONG)
def test_wrong_functions_fail(written, which):
    file = written(DOUBLE + WRONG[which])
    outcome = run("check", file, "--device", "cpu", "--explore", "0", "--variants", "wrong")
    assert outcome.code == 5, outcome
    assert "wrong_result" in outcome.out


@pytest.mark.parametrize("which", WRONG_RESULTS)
def test_wrong_results_fail(written, which):
    file = written(RETURNING + WRONG_RESULTS[which])
    outcome = run("check", file, "--device", "cpu", "--explore", "0", "--variants", "wrong")
    assert outcome.code == 5, outcome
    assert "wrong_result" in outcome.out


def test_a_function_may_change_what_the_reference_changes(written):
    text = """\
import torch
import bt_bench

@bt_bench.benchmark(inputs={"n": [7]})
def scale(n):
    return {"x": torch.rand(n), "sizes": [n]}

@scale.reference
def right(x):
    x *= 2

@scale.variant
def mine(x, sizes):
    x.add_(x)
    sizes.append(1)  # a list of its own each time
    assert len(sizes) == 2

@scale.variant
def wrong(x):
    x.add_(x).add_(x)
"""
    outcome = run("check", written(text), "--device", "cpu", "--explore", "0")
    assert outcome.code == 5, outcome
    assert "ok      mine" in outcome.out
    assert "argument x[0] is" in outcome.out


def test_a_tolerance_is_for_results_and_not_for_what_must_stay(written):
    text = """\
import torch
import bt_bench

@bt_bench.benchmark(inputs={"n": [7]}, tolerance=1e-3)
def scale(n):
    return {"x": torch.rand(n) + 1, "y": torch.rand(n) + 1, "out": torch.empty(n)}

@scale.reference
def right(x, y, out):
    y *= 2
    out.copy_(x)

@scale.variant
def near(x, y, out):
    y *= 2.001
    out.copy_(x * 1.0005)

@scale.variant
def wrong(x, y, out):
    right(x, y, out)
    x *= 1.0005
"""
    outcome = run("check", written(text), "--device", "cpu", "--explore", "0")
    assert outcome.code == 5, outcome
    assert "ok      near" in outcome.out
    found = " ".join(outcome.out.split())
    assert re.search(r"wrong · .* argument x\[0\] is .* elements differ, by up to 0\.000", found)
    misspelt = text.replace("tolerance=1e-3", 'tolerance={"outt": 1e-3}')
    outcome = run("check", written(misspelt, "other.py"), "--device", "cpu", "--explore", "0")
    assert "scale has a tolerance for 'outt'; expected one for what the reference" in outcome.err
    assert outcome.code == 2


def test_a_tolerance_is_for_what_the_reference_changes_in_any_step(written):
    """In the first step, one of the two references leaves its argument alone."""
    text = "import torch\nimport bt_bench\n"
    for name, sign in (("high", ">"), ("low", "<")):
        text += f"""
@bt_bench.benchmark(inputs={{"n": [1]}}, tolerance=1e-3, steps=8)
def {name}(n):
    return {{"x": torch.rand(n)}}

@{name}.reference
def right(x):
    x *= torch.where(x {sign} 0.5, 2, 1)

@{name}.variant
def near(x):
    x *= torch.where(x {sign} 0.5, 2.001, 1)
"""
    outcome = run("check", written(text), "--device", "cpu", "--explore", "0")
    assert outcome.code == 0, outcome


def test_a_file_of_functions_is_suggested_for_its_name_without_ending(written):
    written(ADD)
    outcome = run("sweep", "mine", "--device", "cpu")
    assert outcome.code == 2
    assert "no such file; did you mean the file of functions 'mine.py'?" in outcome.err


def test_a_function_that_raises_fails_alone(written):
    text = DOUBLE + "@double.variant\ndef wrong(x):\n    raise RuntimeError('not today')\n"
    outcome = run("check", written(text), "--device", "cpu", "--explore", "0")
    assert outcome.code == 5, outcome
    assert "RuntimeError: not today (mine.py:" in outcome.out
    assert "ok      baseline" in outcome.out


def test_functions_share_no_module(written):
    written("COUNT = []\n", "neighbour.py")
    text = DOUBLE.replace("import torch\n", "import torch\nimport neighbour\n", 1)
    for name in ("one", "two"):
        text += f"""
@double.variant
def {name}(x, out):
    neighbour.COUNT.append({name!r})
    assert set(neighbour.COUNT) == {{{name!r}}}
    out.copy_(x * 2)
"""
    outcome = run("check", written(text), "--device", "cpu", "--explore", "0")
    assert outcome.code == 0, outcome


def test_a_sweep_counts_launches_and_reports_no_time(written, tmp_path):
    file = written(ADD)
    outcome = run("sweep", file, "--device", "cpu", "--out", "r")
    assert outcome.code == 0, outcome
    result = json.loads((tmp_path / "r" / "mine.json").read_text(encoding="utf-8"))
    assert result["suite"]["name"] == "mine"
    assert {case["case"] for case in result["cases"]} == {"add-n=5", "add-n=33"}
    assert {len(step) for case in result["cases"] for step in case["launches"]["steps"]} == {2}
    assert not any(case["measurements"] for case in result["cases"])
    compared = run("compare", "r")
    assert compared.code == 1
    assert "mine against baseline" in compared.out
    assert "2 MORE" in compared.out


def test_a_sweep_rejects_a_wrong_function(written):
    file = written(DOUBLE + WRONG["a cache by address"])
    outcome = run("sweep", file, "--device", "cpu", "--out", "r")
    assert outcome.code == 5, outcome
    assert "wrong: failed in call/double-n=33" in outcome.out


def test_list_and_workload(written):
    file = written(ADD)
    listed = run("list", file)
    assert "Sums of two vectors. (2 cases)" in listed.out
    assert "baseline   function torch_add" in listed.out
    assert "mine       Two operations." in listed.out
    assert "add-n=33" in run("workload", file).out
    assert run("list", "nonsense").code == 2


def test_a_config_may_name_the_file(written, tmp_path):
    written(ADD)
    config = "suite: ./mine.py\nvariants: [mine]\ncases:\n  - {name: big, n: 99}\n"
    (tmp_path / "own.yaml").write_text(config, encoding="utf-8")
    outcome = run("check", "own.yaml", "--device", "cpu", "--explore", "0", "--all")
    assert outcome.code == 0, outcome
    assert "big" in outcome.out


def test_several_benchmarks_share_the_baseline(written):
    more = DOUBLE.split("import bt_bench\n")[1]
    outcome = run("check", written(ADD + more), "--device", "cpu", "--explore", "0")
    assert outcome.code == 0, outcome
    assert "ok      baseline · 5 checks of 5 workloads" in outcome.out
    assert "skipped mine · 2 checks of 2 workloads · lacks double" in outcome.out


HEAD = "import torch\nimport bt_bench\n\n@bt_bench.benchmark(inputs={'n': [4]})\ndef add(n):\n"
REFERENCE = "\n@add.reference\ndef right(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\n1 / 0\n", "mine.py:2: the suite does not import: ZeroDivisionError"),
        ("import sys\nsys.exit(0)\n", "mine.py:2: the suite does not import: SystemExit"),
        ("def f(:\n", "mine.py:1: the suite does not import: SyntaxError"),
        ("x = 1\n", "mine.py: declares no benchmark; expected a function under"),
        (HEAD + "    return {'x': torch.rand(n)}\n", "benchmark 'add' has no reference"),
        (HEAD + "    return torch.rand(n)\n" + REFERENCE, "add returned Tensor; expected the"),
        (HEAD + "    return {'x': torch.ones(n)}\n" + REFERENCE, "same contents for every seed"),
        (HEAD + "    return {'x': torch.rand(n, 2)[:, 0]}\n" + REFERENCE, "by .contiguous()"),
        (HEAD + "    return {'x': object()}\n" + REFERENCE, "makes x, a object; expected a tensor"),
        (HEAD + "    return {'y': torch.rand(n)}\n" + REFERENCE, "right takes 'x'; expected plain"),
        (
            HEAD + "    return {'x': torch.rand(n)}\n" + REFERENCE.replace("return", ""),
            "returns nothing and changes none of its arguments",
        ),
        (
            HEAD + "    return {'x': torch.rand(n)}\n" + REFERENCE.replace("x + 1", "'x'"),
            "returned a str; expected plain tensors",
        ),
        (
            HEAD + "    return {'x': torch.rand(n)}\n" + REFERENCE.replace("+ 1", ".to_sparse()"),
            "returned a torch.sparse_coo Tensor; expected plain tensors",
        ),
        (
            HEAD.replace("4", "99") + "    return {'x': torch.rand(n)}\n"
            "\n@add.reference\ndef right(x):\n    return x[x > 0.5]\n",
            "for another; expected the same shapes and dtypes whatever the contents",
        ),
        (HEAD + "    return {'x': torch.rand(n).numpy()}\n" + REFERENCE, "makes x, a ndarray;"),
        (
            HEAD + "    return {'x': torch.empty(n, dtype=torch.float4_e2m1fn_x2)}\n" + REFERENCE,
            "uninitialised that torch cannot fill",
        ),
        (
            HEAD
            + "    return {'x': torch.randint(9, (n,)).view(torch.float4_e2m1fn_x2)}\n"
            + REFERENCE,
            "makes x of dtype torch.float4_e2m1fn_x2; expected bytes",
        ),
    ],
)
def test_what_is_refused(written, text, message):
    outcome = run("check", written(text), "--device", "cpu", "--explore", "0")
    assert outcome.code == 2, outcome
    assert message in " ".join(outcome.err.split())


def test_any_text_may_be_an_input_and_a_title(written):
    """Cases of texts that a name cannot have are told apart, also if these are long."""
    texts = ["a/b", "a_b", "é", "日本", "🚀", "l" * 300, "l" * 299 + "m", "{steps}"]
    text = ADD.replace('{"n": [5, 33]}', f'{{"n": [5], "t": {texts!r}}}').replace("(n):", "(n, t):")
    path = written(text.replace("Sums", "🚀\x1b[31mSums"))
    outcome = run("sweep", path, "--dry-run")
    assert outcome.code == 0, outcome
    names = re.findall(r"^ +(add-\S+): ", outcome.out, re.MULTILINE)
    assert len(set(names)) == len(texts)
    assert "add-n=5-t=a_b" in names
    assert all(re.fullmatch(r"[\w.=-]{1,200}", name, re.ASCII) for name in names)
    assert "🚀 [31mSums" in run("list", path).out


@pytest.mark.parametrize("name", ["a-b.py", "torch.py", "string.py"])
def test_names_that_are_refused(written, name):
    outcome = run("check", written(ADD, name), "--device", "cpu")
    assert outcome.code == 2, outcome
    assert "cannot be imported; expected a file with a Python name" in outcome.err


def test_a_folder_that_is_named_like_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").mkdir()
    outcome = run("list", "--suite", "x.py")
    assert outcome.code == 2
    assert "is a folder named like a Python file" in outcome.err


@pytest.mark.slow
def test_a_gate_compares_the_functions_of_two_revisions(tmp_path, monkeypatch):
    helper = "def total(x, y, out):\n    out.copy_(x)\n    out.add_(y)\n"
    text = ADD.replace("import torch\n", "import torch\nimport helper\n", 1)
    text = text.replace("out.copy_(x).add_(y)", "helper.total(x, y, out)")
    files = {"bench/mine.py": text, "bench/helper.py": helper}
    top = repository(tmp_path / "repository", files)
    monkeypatch.chdir(top)
    gate = ["gate", "--config", "bench/mine.py", "--base", "HEAD", "--device", "cpu"]
    (top / "bench/helper.py").write_text(f"{helper}    out.add_(0)\n", encoding="utf-8")
    slower = run_apart(*gate, cwd=top)
    assert slower.code == 1, slower
    assert "MORE     call/add-n=5" in slower.out
    assert "the suite differs" not in slower.out
    assert "3 → 6 torch_op add_" in slower.out
    changed = text.replace("torch.add(x, y, out=out)", "torch.add(x, -y, out=out)")
    (top / "bench/mine.py").write_text(changed, encoding="utf-8")
    wrong = run_apart(*gate, cwd=top)
    assert wrong.code not in (0, 1), wrong
    assert "the suite differs from the base's in add's reference" in wrong.out.replace("\n", " ")
