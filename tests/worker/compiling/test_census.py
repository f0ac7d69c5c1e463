"""Kernels compiled without a GPU: what is seen of a change, and what makes none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.processes import running_with, wait_for
from support.variants import classes

from bt_bench.base.errors import UsageError
from bt_bench.protocol import build_workload
from bt_bench.results.gate.census import read_census
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.inputs import inputs_on
from bt_bench.variants.catalogue import find_variants
from bt_bench.worker.compiling.census import REQUEST_NAME, _environment, take_census
from bt_bench.worker.measuring.methods.interpreter import count_launches
from bt_bench.worker.tasks.arm import Arm

COMMITTED = Path(__file__).parents[3] / "reports" / "static" / "census.json"


def operation(census, operation, case, variant=0):
    (found,) = [
        taken
        for taken in census.variants[variant].operations
        if (taken.operation, taken.case) == (operation, case)
    ]
    return found


def test_two_processes_on_equal_code_give_equal_figures(censuses, again):
    """In other folders, with other comments, other line numbers and a cache of its own."""
    original = censuses("original")
    assert again.variants[0] == original.variants[0]
    assert (again.toolchain, again.cases) == (original.toolchain, original.cases)


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("name", ["fused", "baseline"])
def test_launches_are_those_that_the_interpreter_counts(again, spec, name, case):
    workload = build_workload(spec.cases[case].parameters)
    cpu = torch.device("cpu")
    if case:  # interpreting all steps of the trace would take long
        workload = type(workload)(
            workload.layout, workload.idx_mapping_dtype, workload.setup, workload.steps[:2]
        )
    arm = Arm(name, classes([name])[name], workload, cpu)
    counted = count_launches(arm, inputs_on(cpu, workload), ops.STEP)
    place = ["fused", "baseline"].index(name)
    runs = operation(again, ops.STEP, spec.cases[case].name, place).steps
    steps = [run.launches for run in runs for _ in range(run.steps)][: len(workload.steps)]
    assert steps == [{launch.name: launch.count for launch in step} for step in counted.steps]


def test_what_a_kernel_takes(censuses):
    kernels = {kernel.name: kernel for kernel in censuses("original").variants[0].kernels}
    assert sorted(kernels) == ["apply_writes_kernel", "gather_slots_kernel"]
    for kernel in kernels.values():
        assert 16 <= kernel.registers <= 255
        assert (kernel.spill_bytes, kernel.stack_bytes, kernel.shared_bytes) == (0, 0, 0)
        assert kernel.target == "sm_90"
    assert kernels["apply_writes_kernel"].signature == (
        "descriptors: *i64:16, staging: *i32:16, first_record: i32, BLOCK = 128"
    )


def test_spills_are_seen(censuses):
    (before,), (after,) = (
        [k for k in censuses(name).variants[0].kernels if k.name == "gather_slots_kernel"]
        for name in ("original", "few_registers")
    )
    assert before.spill_bytes == 0
    assert after.registers <= 24 < before.registers
    assert after.spill_bytes > 0
    assert after.stack_bytes > 0


def test_operations_of_torch_count_as_launches(censuses):
    launches = operation(censuses("torch"), ops.STEP, "uniform").steps[0].launches
    assert launches == {"apply_writes_kernel": 1, "gather_slots_kernel": 1, "torch.fill_": 1}


@pytest.mark.parametrize(
    ("name", "place", "why"),
    [
        (
            "broken",
            ops.STEP,
            r"does not compile.*not_there is not defined.*\(kernels\.py:\d+, in \w+: `program",
        ),
        ("tuned", ops.APPLY, "Triton tunes this kernel by timing it"),
    ],
)
def test_a_kernel_that_cannot_run_fails_where_it_is_launched(censuses, name, place, why):
    taken = operation(censuses(name), place, "uniform")
    assert taken.steps == taken.kernels == []
    assert taken.sequence is None
    assert re.search(why, taken.failure), taken.failure


def test_another_operation_of_a_broken_variant_does_not_fail(censuses):
    assert operation(censuses("broken"), ops.APPLY, "uniform").failure is None


def test_unknown_target(spec):
    with pytest.raises(UsageError, match="unknown target 'sm_91'; did you mean 'sm_90'"):
        take_census(spec, [find_variants()["fused"]], ["sm_91"])
    with pytest.raises(UsageError, match="no target"):
        take_census(spec, [find_variants()["fused"]], [])


VARIANT = "import os\nfrom bt_kernels.fusions import FusedApply\nclass Variant(FusedApply):\n    "


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import nothing_of_that_name\n", "mine.py:1: the variant file does not import"),
        (VARIANT + "def prepare_step(self, *_): os._exit(3)\n", "kernels of mine died"),
    ],
)
@pytest.mark.usefixtures("no_helpers")
def test_a_variant_that_ends_the_process(spec, tmp_path, text, why):
    with pytest.raises(UsageError, match=why):
        census_of(spec, tmp_path, text)


LATER = f"""
import atexit, pathlib, sys
{VARIANT}pass

def rewrite(folder=pathlib.Path(sys.argv[-1])):
    for path in folder.glob("*.json"):
        path.write_text(path.read_text().replace('"registers":', '"registers":9'))
    print('{{"refusal": "printed"}}', flush=True)
    for stream in (sys.__stdout__, sys.__stderr__, sys.stderr):
        stream.write('{{"refusal": "written"}}\\n')

atexit.register(rewrite)
rewrite()
"""
FORGED = f"""
import os, stat
{VARIANT}pass

for number in range(3, 64):
    try:
        if stat.S_ISFIFO(os.fstat(number).st_mode):
            os.write(number, b'{{"refusal": "forged"}}\\n')
    except OSError:
        pass
"""
PATCHED = f"""
import bt_bench.worker.compiling.recorder as recorder
recorder.LaunchWindow.launched = lambda *_: None
{VARIANT}pass
"""


@pytest.fixture
def no_helpers(monkeypatch):
    """Each process would compile the helpers in C, for its folder of caches."""
    monkeypatch.setenv("BT_KERNELS_NATIVE", "0")


@pytest.fixture(scope="module")
def one(spec):
    """A census of one operation, which takes a few seconds."""
    return spec.model_copy(update={"operations": [ops.APPLY], "cases": spec.cases[:1]})


def census_of(spec, folder, text):
    (folder / "mine.py").write_text(text, encoding="utf-8")
    return take_census(spec, [find_variants([folder])["mine"]], ["sm_90"])


@pytest.mark.usefixtures("no_helpers")
def test_what_a_variant_writes_at_the_end_is_not_the_answer(one, tmp_path, censuses):
    census = census_of(one, tmp_path, LATER)
    honest = {k for k in censuses("original").variants[0].kernels if k.name.startswith("apply")}
    assert {kernel.registers for kernel in census.variants[0].kernels} == {
        kernel.registers for kernel in honest
    }
    assert operation(census, ops.APPLY, "uniform").steps[0].launches


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FORGED, "was made to print text that bt-bench does not print there"),
        (PATCHED, "variant mine, while compiled: it has changed .*LaunchWindow.launched"),
    ],
)
@pytest.mark.usefixtures("no_helpers")
def test_a_variant_that_answers_itself_is_refused(one, tmp_path, text, why):
    with pytest.raises(UsageError, match=why):
        census_of(one, tmp_path, text)


def test_compiling_has_an_end(spec, monkeypatch):
    monkeypatch.setattr("bt_bench.worker.compiling.census.SECONDS_TO_COMPILE", 0.01)
    with pytest.raises(UsageError, match=r"not ended after 0\.01 s"):
        take_census(spec, [find_variants()["fused"]], ["sm_90"])


def test_compiling_ends_with_whoever_asked_for_it(tmp_path):
    """The worker waits for its request here, and would not look for its parent."""
    os.mkfifo(tmp_path / REQUEST_NAME)
    code = (
        "import sys, pathlib; from bt_bench.worker.compiling import census; "
        "census._run(pathlib.Path(sys.argv[1]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    with parent:
        wait_for(lambda: len(running_with(f"bt_bench.worker.compiling\0{tmp_path}")) > 0)
        parent.kill()
    wait_for(lambda: not running_with(str(tmp_path)))


def test_the_parent_imports_neither_torch_nor_triton():
    code = (
        "import sys, bt_bench.worker.compiling.census, bt_bench.analysis, bt_bench.results;"
        "sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_committed_census_says_what_the_variants_promise():
    """`fused` makes 2 launches a step for every number of groups, those in one launch 1."""
    census = read_census(COMMITTED)
    promised = {"baseline": 2, "fused_apply": 3, "fused_gather_slots": 1, "fused": 2}
    promised |= {"one_launch": 1, "one_launch_graph": 1}
    assert [variant.name for variant in census.variants] == list(promised)
    for variant in census.variants:
        grows = variant.name in ("baseline", "fused_gather_slots")
        for groups in (1, 2, 4):
            wanted = promised[variant.name] + groups * grows
            for taken in variant.operations:
                if taken.operation is ops.STEP and taken.case == f"uniform_{groups}grp":
                    assert sum(taken.steps[0].launches.values()) == wanted
        assert all(kernel.spill_bytes == 0 for kernel in variant.kernels)
        assert {kernel.target for kernel in variant.kernels} == {"sm_80", "sm_90", "sm_100"}


def test_options_of_the_assembler_are_of_the_toolchain(monkeypatch):
    """Else censuses with other registers are compared as if the sources had changed."""
    from bt_bench.worker.compiling.main import _toolchain

    assert "PTXAS_OPTIONS" not in _toolchain(()).settings
    monkeypatch.setenv("PTXAS_OPTIONS", "-O0")
    assert _toolchain(()).settings["PTXAS_OPTIONS"] == "-O0"


def test_what_a_killed_compiler_leaves_is_in_the_folder_that_the_next_census_removes(tmp_path):
    assert _environment(tmp_path, code=False)["TMPDIR"] == str(tmp_path)
