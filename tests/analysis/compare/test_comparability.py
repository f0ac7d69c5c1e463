"""Which differences between two results are refused, and which may be ignored."""

from __future__ import annotations

import pytest
from support.factories import make_environment, make_gpu, make_helpers, make_result

from bt_bench.analysis.compare.comparability import (
    Labelled,
    helper_warnings,
    machine_text,
    refuse_differences,
)
from bt_bench.base.errors import ExitCode, NotComparableError
from bt_bench.results import OperationInfo, SuiteInfo
from bt_bench.results.run.nouns import LaunchPath
from bt_bench.results.run.plan import Plan
from bt_bench.results.run.result import Environment, VariantResult


def warnings(base: VariantResult, other: VariantResult, **ignored: bool) -> list[str]:
    options = {"ignore_device": False, "ignore_helpers": False, "ignore_plan": False}
    return refuse_differences(Labelled("a", base), Labelled("b", other), **options | ignored)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": [make_gpu("NVIDIA H100")]}, "device name NVIDIA H200 against NVIDIA H100"),
        ({"torch": "2.13.0"}, "torch 2.11.0 against 2.13.0"),
        ({"triton": None}, "Triton 3.6.0 against unknown"),
        ({"cuda": "13.0"}, "CUDA 12.8 against 13.0"),
        ({"device": "cpu"}, "device cuda against cpu"),
        ({"interpreted": True}, "interpreted False against True"),
    ],
)
def test_another_device_is_refused(changes: dict[str, object], message: str) -> None:
    base = make_result("baseline")
    other = make_result("fused", environment=make_environment(**changes))  # type: ignore[arg-type]
    with pytest.raises(NotComparableError, match="a and b are not comparable") as error:
        warnings(base, other, ignore_plan=True)
    assert message in str(error.value)
    assert error.value.exit_code is ExitCode.NOT_COMPARABLE
    (warning, *_) = warnings(base, other, ignore_device=True)
    assert warning.startswith("a and b differ, as allowed: ")


def test_another_cpu_is_another_device() -> None:
    one, two = (
        make_result(environment=make_environment("cpu", cpu=name)) for name in ("one", "two")
    )
    with pytest.raises(NotComparableError, match="device name one against two"):
        warnings(one, two)


def test_driver_and_commit_may_differ() -> None:
    environment = make_environment(driver="1", commit="2", dirty=True, python="3.11")
    assert warnings(make_result(), make_result(environment=environment)) == []


@pytest.mark.parametrize("reason", [None, "the environment has BT_KERNELS_NATIVE=0; unset it"])
def test_other_helpers_are_refused(reason: str | None) -> None:
    without = make_environment(helpers=make_helpers(staging_in_c=reason or False))
    base, other = make_result("baseline"), make_result("fused", environment=without)
    with pytest.raises(NotComparableError) as error:
        warnings(base, other, ignore_device=True, ignore_plan=True)
    why = f" ({reason})" if reason else ""
    assert f"staging in C in use against not in use{why}. " in str(error.value)
    assert "--ignore-helpers" in str(error.value)
    (warning,) = warnings(base, other, ignore_helpers=True)
    assert warning == f"a and b differ, as allowed: staging in C in use against not in use{why}"
    assert not warnings(other, other)


def test_helpers_that_do_not_apply_or_are_unknown_are_not_refused() -> None:
    bases = make_helpers(), make_helpers(staging_in_c=False)
    for helpers in (make_helpers(staging_in_c=None), None):
        other = make_result(environment=make_environment(helpers=helpers))
        for each in bases:
            base = make_result(environment=make_environment(helpers=each))
            assert not warnings(base, other)


def test_what_a_variant_does_without_by_itself_is_told() -> None:
    plain = make_result()
    own, with_them, unknown = (
        plain.model_copy(update={"variant": plain.variant.model_copy(update={"native": native})})
        for native in (False, True, None)
    )
    assert warnings(plain, own) == []
    (text,) = helper_warnings({"a": plain, "b": own})
    assert text.startswith("b: the variant itself does without the helpers in C (its class has")
    assert not list(helper_warnings({"a": with_them, "b": unknown}))


def test_unknown_and_missing_helpers_are_told() -> None:
    known, unknown, lacking = (
        make_result(run_id=str(run), environment=make_environment(helpers=helpers))
        for run, helpers in enumerate((make_helpers(), None, make_helpers(nvml="no driver")))
    )
    assert not list(helper_warnings({"a": known, "b": known}))
    (text,) = helper_warnings({"a": known, "b": unknown})
    assert text.startswith("b: it is not known which helpers were in use")
    assert list(helper_warnings({"a": lacking, "b": lacking})) == [
        "NVML is not in use (no driver), so clocks and throttling are unknown, and no round is "
        "discarded for them"
    ]
    # All variants of a run are measured by the same processes.
    assert not list(helper_warnings({"a": unknown, "b": unknown}))


def test_another_plan_is_refused() -> None:
    base, other = make_result(), make_result(plan=Plan(rounds=4, warmup_rounds=1, seed=7))
    with pytest.raises(NotComparableError, match=r"plan.rounds 3 against 4; plan.seed 0 against 7"):
        warnings(base, other, ignore_device=True)
    assert len(warnings(base, other, ignore_plan=True)) == 2


@pytest.mark.parametrize(
    ("ignored", "advice"),
    [
        ({}, "`bt-bench compare --ignore-device --ignore-plan` compares them all the same"),
        ({"ignore_device": True}, "`bt-bench compare --ignore-plan` compares them all the same"),
        ({"ignore_plan": True}, "`bt-bench compare --ignore-device` compares them all the same"),
    ],
)
def test_a_refusal_names_the_options_that_allow_it(ignored: dict[str, bool], advice: str) -> None:
    plan = Plan(rounds=4, warmup_rounds=1)
    other = make_result(environment=make_environment(torch="2.13.0"), plan=plan)
    with pytest.raises(NotComparableError) as error:
        warnings(make_result(), other, **ignored)
    assert str(error.value).endswith(f". {advice}")


def test_lists_of_a_plan_are_spelled_as_in_a_config() -> None:
    plan = Plan(rounds=3, warmup_rounds=1, launch_paths=[LaunchPath.JIT])
    with pytest.raises(
        NotComparableError, match=r"plan.launch_paths \[jit, compiled, graph\] against \[jit\]"
    ):
        warnings(make_result(), make_result(plan=plan))


def make_suite(name: str, source: str = "0") -> SuiteInfo:
    operations = [OperationInfo(name="step", title="Whole step")]
    return SuiteInfo(name=name, protocol=1, source_sha256=source, operations=operations)


def test_another_suite_is_refused_whatever_is_ignored() -> None:
    other = make_result(suite=make_suite("pages"))
    with pytest.raises(NotComparableError, match="suite block_tables against pages"):
        warnings(make_result(), other, ignore_device=True, ignore_plan=True)
    with pytest.raises(NotComparableError) as error:
        warnings(make_result(), make_result(suite=make_suite("pages"), plan=Plan(rounds=4)))
    assert "--ignore" not in str(error.value)


def test_another_source_of_a_suite_is_a_warning() -> None:
    old, new = (make_result(suite=make_suite("pages", source)) for source in "01")
    (warning,) = warnings(old, new)
    assert "different sources of suite pages" in warning
    assert not warnings(old, old)


def test_results_of_an_earlier_schema_are_of_the_default_suite() -> None:
    earlier = make_result().model_copy(update={"schema_version": 2})
    assert not warnings(earlier, make_result(suite=make_suite("block_tables")))


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        (make_environment(cpu="AMD EPYC 9654"), "on NVIDIA H200, AMD EPYC 9654"),
        (make_environment(cpu=None), "on NVIDIA H200"),
        (make_environment(gpus=[], cpu="x"), "on an unknown device, x"),
        (make_environment("cpu", cpu="AMD EPYC 9654"), "without a GPU, AMD EPYC 9654"),
    ],
)
def test_a_machine_is_named_with_its_host(environment: Environment, text: str) -> None:
    assert machine_text(environment) == text
