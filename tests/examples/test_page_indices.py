"""A suite outside of bt-bench: checked, measured, compared and gated like any other."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from examples.tools import bench
from examples.wrong_variants import SUITE, WRONG, write_wrong
from support.commands import run_apart
from support.forked import workers_forked
from support.repositories import commit, git, write
from support.suites import suites_here

from bt_bench.base.errors import UsageError
from bt_bench.protocol import find_suite, load_suite

CPU = torch.device("cpu")
FUSED = "page_kernels/variants/fused.py"


@pytest.fixture(scope="module")
def suite():
    with suites_here():
        return load_suite(find_suite(str(SUITE), Path.cwd()))


def parameters(suite, **given):
    kind = given.setdefault("workload", "decode")
    return suite.kinds[kind].model_validate({"requests": 3, "max_num_reqs": 8} | given)


def checks(outcome):
    """The checks of `check --json`, by variant and workload."""
    return {(found["variant"], found["workload"]): found for found in outcome.json()["checks"]}


# Correctness


def test_variants_are_right(suite):
    outcome = bench("check", "quick", "--operations", "stage,build", "--json")
    assert outcome.code == 0, outcome
    found = checks(outcome)
    workloads = [f"conformance:{name}" for name in suite.conformance(0)]
    workloads += ["decode_4req", "mixed_3req"]
    assert sorted(found) == sorted((v, w) for v in ("baseline", "fused") for w in workloads)
    assert {each["status"] for each in found.values()} == {"ok"}


@pytest.fixture(scope="module")
def rejected(tmp_path_factory):
    """What `check` says of all wrong variants."""
    folder = write_wrong(tmp_path_factory.mktemp("wrong"), *WRONG)
    names = ",".join(WRONG)
    outcome = bench(
        "check", "quick", "--kernels", folder, "--variants", names, "-k", "decode*", "--json"
    )
    assert outcome.code == 5, outcome
    return checks(outcome)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_variant_is_rejected_for_its_defect(rejected, name):
    wrong = WRONG[name]
    found = rejected[name, f"conformance:{wrong.workload}"]
    assert found["status"] == "failed", wrong.what
    assert found["reason"]["code"] == wrong.code, found
    assert wrong.message in found["reason"]["message"], found


def test_a_variant_without_a_feature_is_not_run_where_it_is_needed(tmp_path):
    text = (SUITE / FUSED).read_text(encoding="utf-8")
    lacking = text.replace("    def build(self", "    features = frozenset()\n\n    def build(self")
    write(tmp_path, {"narrow.py": lacking})
    options = "--kernels", tmp_path, "--variants", "narrow", "-k", "decode*", "--json"
    outcome = bench("check", "quick", *options, "--set", "page_size=12")
    assert outcome.code == 0, outcome
    skipped = {w: f["reason"] for (_, w), f in checks(outcome).items() if f["status"] == "skipped"}
    assert sorted(skipped) == ["conformance:odd_page_size", "decode_4req"]
    assert {reason["message"] for reason in skipped.values()} == {"lacks any_page_size"}


def test_lengths_that_the_device_may_still_read_are_not_overwritten(suite):
    suite.driver()
    lengths = importlib.import_module("page_kernels.lengths").StagedLengths(3, CPU)
    lengths.write([0, 2], [5, 7])
    first = lengths._buffers[lengths._current]
    assert lengths.publish().tolist() == [5, 0, 7]
    lengths.write([1], [9])
    lengths.write([0], [6])
    assert first.tolist() == [5, 0, 7]
    assert lengths.on_device.tolist() == [5, 0, 7]
    assert lengths.publish().tolist() == lengths.on_host.tolist() == [6, 9, 7]
    lengths.write([2], [8])
    assert lengths._buffers[lengths._current] is first
    assert lengths.publish().tolist() == [6, 9, 8]


def test_what_cannot_be_staged_is_refused_and_changes_nothing(suite):
    suite.driver()
    fused = importlib.import_module("page_kernels.variants.fused").Variant
    variant = fused(torch.zeros(2, 3, dtype=torch.int32), 4)
    variant.set_lengths([0, 1], [12, 1])
    for rows, lengths, message in (
        ([2], [1], "rows from 2 to 2; expected 0 to 1"),
        ([0, -1], [1, 1], "rows from -1 to 0"),
        ([1], [13], "expected 0 to 12, which is 3 pages of 4"),
        ([1], [-1], "lengths from -1"),
        ([0, 1], [1], "1 lengths for 2 rows"),
    ):
        with pytest.raises(ValueError, match=message):
            variant.set_lengths(rows, lengths)
    assert variant.lengths.tolist() == [12, 1]


# Workloads


def test_workloads_are_equal_where_their_parameters_are(suite):
    first, same = (parameters(suite).build().digest() for _ in range(2))
    assert first == same
    assert first != parameters(suite, seed=1).build().digest()


def test_decoding_requests_grow_by_a_token_and_prefills_by_a_chunk(suite):
    given = {"workload": "mixed", "prefills": 2, "prefill_tokens": 20, "steps": 4}
    workload = parameters(suite, **given).build()
    tokens = np.array(workload.sizes()["num_tokens"])
    assert np.diff(tokens).tolist() == [3 + 2 * 20] * 3
    assert workload.sizes()["num_reqs"] == [5] * 4


def test_a_varied_workload_has_other_contents_and_the_same_sizes(suite):
    for workload in suite.conformance(0).values():
        varied = workload.varied(np.random.default_rng(1))
        assert varied.digest() != workload.digest()
        for name in ("num_reqs", "num_pages"):
            assert varied.sizes()[name] == workload.sizes()[name]
        for step, other in zip(workload.steps, varied.steps, strict=True):
            assert ((step.lengths == 0) == (other.lengths == 0)).all()


def test_traffic_counts_each_byte_once(suite):
    workload = suite.conformance(0)["one_page"]  # 4 requests with 3 pages, then 1 with 1
    traffic = workload.traffic(suite.by_name["build"])
    assert [(each.read, each.written) for each in traffic] == [(44, 48), (12, 16)]
    assert workload.traffic(suite.by_name["stage"]) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"requests": 9}, "'requests' makes a batch of 9; expected at most 'max_num_reqs', 8"),
        ({"max_length": 8190}, "'max_length' is 8190, and 8 steps add a token each"),
        ({"min_length": 9, "max_length": 8}, "'min_length' is 9; expected at most"),
        ({"max_num_reqs": 16384, "max_model_len": 2**21}, "less than 2**31 pages in all"),
        ({"workload": "mixed", "prefills": 6}, "'requests' makes a batch of 9"),
        ({"workload": "mixed", "prefill_tokens": 1025}, "which is 8200 in 8 steps"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(suite, given, message):
    with pytest.raises(UsageError) as refused:
        parameters(suite, **given).check()
    assert message in str(refused.value)


def test_limits_of_parameters_are_reported_with_their_place(tmp_path):
    write(tmp_path, {"c.yaml": "cases:\n  - {name: a, requests: 0, page_sise: 16}\n"})
    outcome = bench("workload", tmp_path / "c.yaml")
    assert outcome.code == 2
    assert "c.yaml:2:25: requests is 0; expected a whole number from 1 to 16384" in outcome.err
    assert "did you mean 'page_size'?" in outcome.err


def test_stock_configs_load_and_are_described():
    outcome = bench("workload", "decode", "-k", "small*", "--json")
    assert outcome.code == 0, outcome
    (case,) = outcome.json()["cases"]
    assert case["case"] == "small_8req"
    assert "num_pages" in bench("workload", "quick").out


def test_large_batches_need_what_they_are_said_to(suite):
    given = parameters(suite, max_model_len=100, page_size=16)
    driver = suite.driver()
    fused = importlib.import_module("page_kernels.variants.fused").Variant
    held = driver(fused, given.build(), CPU).variant
    tensors = held.page_table, held.indices, held.indptr, held.last_page_len, held.staged.on_device
    assert given.num_bytes() == sum(tensor.nbytes for tensor in tensors)


# Commands


def test_list_names_what_the_suite_has():
    outcome = bench("list")
    assert outcome.code == 0, outcome
    for text in ("baseline", "fused", "reference", "Build page indices", "decode", "quick"):
        assert text in outcome.out
    assert "gather_slots" not in outcome.out


def test_sweep_and_compare(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    swept = bench("sweep", "quick", "--operations", "stage,build", "--device", "cpu", "--out", "r")
    assert swept.code == 0, swept
    assert "Build page indices" in swept.out
    result = json.loads(Path("r/fused.json").read_text(encoding="utf-8"))
    assert result["suite"]["name"] == "page_indices"
    assert [each["name"] for each in result["suite"]["operations"]] == ["stage", "build"]
    assert {case["status"] for case in result["cases"]} == {"ok"}
    compared = bench("compare", "r", "--metric", "launches", "--format", "json", suite=None)
    assert compared.code == 0, compared
    judged = {(each["operation"], each["verdict"]) for each in compared.json()["judgements"]}
    assert judged == {("build", "FASTER"), ("stage", "SAME")}


def test_the_command_of_the_suite():
    outcome = bench("--suite", SUITE, "pages", 5, 0, 32, suite=None)
    assert outcome.code == 0, outcome
    rows = [line.split() for line in outcome.out.splitlines()]
    assert rows[1:] == [
        ["0", "5", "1", "0", "5"],
        ["1", "0", "0", "1", "0"],
        ["2", "32", "2", "1", "16"],
        ["3"],
    ]


NO_TORCH = """\
import sys
from pathlib import Path
from bt_bench.config import load_config
from bt_bench.protocol import run_suites_here
run_suites_here()
spec = load_config("decode", suite=sys.argv[1])
sizes = [case.parameters.build().sizes() for case in spec.cases]
assert len(sizes) == 6 and "torch" not in sys.modules and "triton" not in sys.modules
"""


def test_configs_are_read_without_torch():
    subprocess.run([sys.executable, "-c", NO_TORCH, str(SUITE)], check=True, timeout=300)


BLOCKING = """\
import os, sys
from pathlib import Path

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:2] == ["bt_bench", "suites"]:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
with Path(__file__).with_name("processes").open("a") as file:
    print(os.getpid(), file=file)
"""


def test_a_check_needs_no_suite_that_comes_with_the_tool(tmp_path):
    """Also not in the process that runs the variants."""
    write(tmp_path, {"sitecustomize.py": BLOCKING})
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    options = "--suite", SUITE, "--variants", "fused", "-k", "decode*", "--device", "cpu"
    outcome = run_apart("check", "quick", *options, environment={"PYTHONPATH": path})
    assert outcome.code == 0, outcome
    assert "7 passed, 0 failed" in outcome.out
    assert len(set((tmp_path / "processes").read_text().split())) >= 2
    refused = run_apart("list", environment={"PYTHONPATH": path})
    assert refused.code != 0
    assert "is blocked" in refused.err


@pytest.mark.slow
def test_all_of_these_tests_need_no_suite_that_comes_with_the_tool(tmp_path):
    write(tmp_path, {"sitecustomize.py": BLOCKING})
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not gpu"]
    done = subprocess.run(
        [*command, "-k", "not needs_no_suite", str(Path(__file__).parent)],
        env=os.environ | {"PYTHONPATH": path},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


# Gates


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A repository of somebody who wrote a suite, and the working directory."""
    top = tmp_path / "repo"
    shutil.copytree(SUITE, top / "bench/pages", ignore=shutil.ignore_patterns("__pycache__"))
    write(top, {".gitignore": "__pycache__/\nreports/\n"})
    git(top, "init", "-q", "-b", "main")
    commit(top, "first")
    monkeypatch.chdir(top)
    return top / "bench/pages"


def edit(folder, old, new, name=FUSED):
    text = (folder / name).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (folder / name).write_text(text.replace(old, new), encoding="utf-8")


def gate(*options):
    return run_apart(
        *("gate", "--config", "quick", "--suite", "bench/pages", "--base", "HEAD", *options),
        prologue=workers_forked(),
    )


def test_equal_trees_are_the_same(repo):
    outcome = gate("--device", "cpu")
    assert outcome.code == 0, outcome
    assert "Verdicts: 12 SAME." in outcome.out


@pytest.mark.slow
def test_the_static_gate_sees_a_kernel_that_needs_more(repo):
    edit(repo, "BLOCK = 256", "BLOCK = 2048")
    outcome = gate("--static", "--variants", "fused", "-k", "decode*")
    assert outcome.code == 1, outcome
    assert "in build_kernel, was" in outcome.out


@pytest.mark.slow
def test_a_gate_measures_both_revisions(repo):
    edit(repo, '"""No program waits', '"""Here, no program waits')
    outcome = gate("--device", "cpu", "--variants", "fused", "-k", "decode*", "--rounds", "3")
    assert outcome.code == 0, outcome
    assert "stage/decode_4req" in outcome.out


def test_a_gate_rejects_a_wrong_working_tree(repo):
    wrong = WRONG["last_page_of_full_ones"]
    edit(repo, wrong.old, wrong.new)
    outcome = gate("--device", "cpu", "--variants", "fused", "-k", "decode*", "--rounds", "3")
    assert outcome.code == 5, outcome
    assert "INVALID" in outcome.out
    assert "last_page_len" in outcome.out + outcome.err
