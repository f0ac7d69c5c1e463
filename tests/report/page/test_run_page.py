"""A page shows what there is of a run, and says what there is not."""

from __future__ import annotations

import pytest
from support import scenarios
from support.factories import (
    make_calibration,
    make_case,
    make_environment,
    make_failed_case,
    make_launches,
    make_result,
    make_workload,
)
from support.pages import ReadPage

from bt_bench.analysis import typical_us
from bt_bench.base.names import Operation
from bt_bench.report.page import render_page, run_page
from bt_bench.report.run import arranged
from bt_bench.report.run.arranged import arrange
from bt_bench.results import CaseResult, RunFolder, SuiteInfo, VariantResult, metric_of, read_run
from bt_bench.results.files.writing import write_result
from bt_bench.results.run.nouns import LaunchPath, Load, Method, Quantity
from bt_bench.results.run.series import series_of
from bt_bench.results.run.suites import OperationInfo
from bt_bench.suites.block_tables import operations as ops


def read(results: list[VariantResult], planned: int | None = None) -> ReadPage:
    return ReadPage(render_page(run_page(arrange(results), planned)))


def timed(factor: float = 1.0) -> CaseResult:
    samples = {
        quantity: [[factor * (100 + index % 7)] for index in range(24)]
        for quantity in (Quantity.HOST_US, Quantity.GPU_US, Quantity.STEP_US)
    }
    return make_case("small", ops.STEP, samples)


def test_it_answers_first_then_shows_pictures_then_all_cases():
    page = read([make_result("baseline", [timed()]), make_result("fused", [timed(0.5)])])
    assert "fused" in page.text
    titles = ("Who is faster", "Where the time goes", "All cases", "How it was measured", "Plan")
    places = [page.text.index(title) for title in titles]
    assert places == sorted(places)
    assert "speed-up/step/gpu_us" in page.charts
    assert page.links == ["#case-0"]
    assert "2.00 ×" in page.text


def test_the_answer_has_where_the_time_goes_and_how_it_changes_on_a_busy_gpu():
    def case(step_us: float, host_us: float, busy_us: float) -> CaseResult:
        times = {
            series_of(Quantity.STEP_US): step_us,
            series_of(Quantity.HOST_US): host_us,
            series_of(Quantity.LAST_US): 2.0,
            series_of(Quantity.EVENT_US, load=Load.BUSY): busy_us,
            # Another way of launching is faster, and none of its figures is in the answer.
            series_of(Quantity.STEP_US, launch_path=LaunchPath.COMPILED): step_us / 4,
            series_of(Quantity.HOST_US, launch_path=LaunchPath.COMPILED): step_us / 8,
        }
        samples = {
            each: [[us + index % 3 / 100] for index in range(24)] for each, us in times.items()
        }
        return make_case("small", ops.STEP, samples, launches=make_launches(["gather"]))

    lag = make_calibration({"null_step": [12.0], "null_host": [3.0]}, {Method.PROFILER: 0.5})
    slow, fast = case(100, 80, 12), case(20, 10, 6)
    page, reverse = (
        read(
            [
                make_result("baseline", [base], calibration=lag),
                make_result("fused", [other], calibration=lag),
            ]
        )
        for base, other in ((slow, fast), (fast, slow))
    )
    assert "the host takes 80 % of 100 µs with baseline and 50 % of 20.0 µs with fused" in page.text
    said = "fused is 5.00 × as fast as baseline in a step on an idle GPU, 2.00 × on a busy one with"
    assert said in page.text
    assert page.text.index(said) < page.text.index("Who is faster")
    assert "baseline is 5.00 × as fast as fused in a step on an idle GPU, 2.00" in reverse.text
    ways = "Ways of launching: jit is Triton's own call and compiled is the handle of a compiled"
    assert ways in page.text


def test_one_variant_has_times_and_no_changes():
    page = read([make_result("fused", [timed()])])
    assert "Only fused was measured: there is nothing to compare it with." in page.text
    assert "No speed-up can be shown: one variant alone was measured." in page.text
    assert "Medians of fused." in page.text
    assert "102.5" in page.text


def test_without_a_gpu_there_are_launches():
    page = read(scenarios.cpu_run())
    assert "Without a GPU: results and launches are valid" in page.text
    assert "No budget of a step: it takes host, device and step times" in page.text
    cases = [make_case("small", ops.STEP)]
    cpu = make_environment("cpu")
    bare = read([make_result(name, cases, environment=cpu) for name in ("baseline", "fused")])
    assert "times need a GPU, and no difference in staging is resolved." in bare.text
    assert "Launches per step: " in page.text


@pytest.mark.parametrize(("factor", "drawn"), [(1.0, False), (0.5, True)])
def test_without_a_gpu_staging_is_drawn_if_a_difference_is_resolved(factor, drawn):
    def staged(times, period):
        noisy = [[times * (100 + index * 5 % period)] for index in range(96)]
        return [make_case("small", ops.STEP, {Quantity.STAGE_US: noisy})]

    cpu = make_environment("cpu")
    sides = {"baseline": (1.0, 31), "fused": (factor, 29)}
    page = read([make_result(name, staged(*us), environment=cpu) for name, us in sides.items()])
    assert ("speed-up/step/stage_us" in page.charts) == drawn


def test_a_partial_run_says_how_far_it_is():
    page = read(scenarios.partial_run(), 12)
    assert "(PARTIAL)" in page.text
    assert "12" in page.text[: page.text.index("Who is faster")]


def test_failures_are_told_before_anything_else():
    results = [make_result("baseline", [timed()]), make_result("fused", [make_failed_case()])]
    page = read(results)
    assert "slot_mappings[0, 3] is 17; the reference has 16" in page.text
    assert page.text.index("failed") < page.text.index("Who is faster")
    broken = [make_failed_case(operation=ops.STEP)]
    both = read([make_result("baseline", broken), make_result("fused", broken)])
    assert "no case has a time on both sides" in both.text


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("variants", [("baseline",), ("baseline", "fused")])
def test_a_run_without_a_case_has_a_page(variants, complete):
    page = read([make_result(name, complete=complete) for name in variants], 3)
    assert "No speed-up can be shown" in page.text
    assert "All cases" in page.text


def test_a_run_of_a_suite_that_is_not_here_has_a_page(tmp_path):
    unknown = Operation("transmogrify")
    named = OperationInfo(name=str(unknown), title="Transmogrify")
    suite = SuiteInfo(name="elsewhere", protocol=1, source_sha256="0" * 64, operations=[named])
    other = {"operation": unknown, "key": "transmogrify/small"}
    cases = [timed(factor).model_copy(update=other) for factor in (1, 0.5)]
    folder = RunFolder.create_exact(tmp_path / "run")
    for name, case in zip(("baseline", "fused"), cases, strict=True):
        write_result(folder, make_result(name, [case], suite=suite))
    page = read(read_run(folder.path))
    assert "Transmogrify: speed-up in GPU time, against baseline" in page.text


def test_a_large_run_computes_each_time_once_and_stays_small(monkeypatch):
    """Two thousand cases of five variants must be a page within seconds, and of a few megabytes."""
    template = timed()

    def cases(factor: float):
        samples = timed(factor).measurements
        for index in range(320):
            workload = make_workload(f"c{index}")
            sized = workload.model_copy(update={"sizes": {"num_reqs": [index + 1]}})
            names = {"case": f"c{index}", "key": f"step/c{index}", "workload": sized}
            yield template.model_copy(update={**names, "measurements": samples})

    arms = arrange(
        [make_result(name, [*cases(f)]) for name, f in (("baseline", 1.0), ("fused", 0.5))]
    )
    computed: list[tuple[int, str]] = []

    def counting(case, series):
        computed.append((id(case), metric_of(series).name))
        return typical_us(case, series)

    monkeypatch.setattr(arranged, "typical_us", counting)
    html = render_page(run_page(arms))
    assert len(computed) == len(set(computed)) > 0
    page = ReadPage(html)
    assert page.text.count("Workload:") == 320
    assert max(map(len, html.split('<section class="case"')[1:-1])) < 4_000
    assert sum(chart.startswith("budget/") for chart in page.charts) == 0
    assert html.count("<circle") <= 2 * 2 * 40
