"""Which promises a calibration keeps."""

from __future__ import annotations

import pytest
from support.calibrations import (
    DEVICE_FIGURES,
    HOST_FIGURES,
    make_calibration,
    make_figures,
    make_host_calibration,
    make_injection,
    make_line,
)

from bt_bench.analysis.promises import apart_percent, judge_promises, method_lines
from bt_bench.results.run.calibration import Calibration, DeviceLine, L2Flush, LaunchChain
from bt_bench.results.run.nouns import Method

PROMISES = [
    "empty_call",
    "gradient_profiler",
    "gradient_graph_slope",
    "agreement",
    "chains",
    "delay_host_us",
    "delay_step_us",
    "delay_gpu_us",
    "cold",
    "profiled",
]


def missed(calibration: Calibration) -> list[str]:
    return [verdict.name for verdict in judge_promises(calibration) if not verdict.kept]


def with_lines(profiler: DeviceLine, slope: DeviceLine) -> Calibration:
    return make_calibration(lines=[profiler, slope])


def with_figure(name: str, value: float) -> Calibration:
    return make_calibration(figures=make_figures(HOST_FIGURES | DEVICE_FIGURES | {name: value}))


def test_all_are_judged_and_kept() -> None:
    assert [verdict.name for verdict in judge_promises(make_calibration())] == PROMISES
    assert missed(make_calibration()) == []


def test_without_a_gpu_only_the_empty_call_is_judged() -> None:
    assert [verdict.name for verdict in judge_promises(make_host_calibration())] == ["empty_call"]


@pytest.mark.parametrize(("value", "names"), [(0.099, []), (0.1, ["empty_call"])])
def test_the_empty_call_is_below_a_tenth(value: float, names: list[str]) -> None:
    assert missed(with_figure("empty_call", value)) == names


@pytest.mark.parametrize("method", [Method.PROFILER, Method.GRAPH_SLOPE])
@pytest.mark.parametrize(("gradient", "kept"), [(0.989, False), (0.991, True), (1.011, False)])
def test_gradients_are_1_to_within_1_percent(method: Method, gradient: float, kept: bool) -> None:
    other = Method.GRAPH_SLOPE if method is Method.PROFILER else Method.PROFILER
    calibration = with_lines(make_line(method, gradient, 0.6), make_line(other, 1.0, 0.6))
    assert (f"gradient_{method.value}" not in missed(calibration)) is kept


def test_an_intercept_is_allowed_for() -> None:
    far = with_lines(make_line(Method.PROFILER, 1, 0.1), make_line(Method.GRAPH_SLOPE, 1, 2.5))
    assert missed(far) == []


@pytest.mark.parametrize(("at_10", "kept"), [(10.6, True), (11.3, False)])
def test_methods_agree_within_3_percent_at_every_length(at_10: float, kept: bool) -> None:
    slope = make_line(Method.GRAPH_SLOPE, 1.0, 0.6)
    bent = DeviceLine(
        method=Method.PROFILER, set_us=[3, 10, 50], reported_us=[[3.6], [at_10], [50.6]]
    )
    assert ("agreement" not in missed(with_lines(bent, slope))) is kept


def test_how_far_methods_are_apart() -> None:
    lines = method_lines(
        with_lines(make_line(Method.PROFILER, 1.0, 0.5), make_line(Method.GRAPH_SLOPE, 1.02, 0.9))
    )
    apart = apart_percent(list(lines.values()))
    assert apart == {3.0: pytest.approx(2), 10.0: pytest.approx(2), 50.0: pytest.approx(2)}


def test_one_method_is_not_apart_from_itself() -> None:
    line = make_line(Method.PROFILER, 1.0, 0.5)
    assert missed(make_calibration(lines=[line])) == ["gradient_graph_slope", "agreement"]
    assert apart_percent([]) == {}


def test_a_line_needs_two_lengths() -> None:
    point = DeviceLine(method=Method.PROFILER, set_us=[3], reported_us=[[3.6]])
    slope = make_line(Method.GRAPH_SLOPE, 1.0, 0.6)
    assert missed(with_lines(point, slope)) == ["gradient_profiler", "agreement"]


@pytest.mark.parametrize("counted", [3, 5])
def test_chains_are_counted_exactly(counted: int) -> None:
    chains = [LaunchChain(launched=2, counted=2), LaunchChain(launched=4, counted=counted)]
    assert missed(make_calibration(chains=chains)) == ["chains"]
    assert missed(make_calibration(chains=[])) == ["chains"]


@pytest.mark.parametrize(
    ("moved", "names"),
    [
        ({"host": 17.9}, ["delay_host_us"]),
        ({"host": 18.1, "step": 21.9, "gpu": 0.3}, []),
        ({"step": 22.1}, ["delay_step_us"]),
        ({"gpu": 0.5}, ["delay_gpu_us"]),
        ({"gpu": -0.5}, ["delay_gpu_us"]),
    ],
)
def test_the_delay_is_seen_where_it_belongs(moved: dict[str, float], names: list[str]) -> None:
    assert missed(make_calibration(injection=make_injection(**moved))) == names


def test_what_was_not_measured_is_not_promised_to_be_kept() -> None:
    figures = [f for f in make_calibration().figures if not f.name.startswith("replay")]
    calibration = make_calibration(figures=figures, lines=[], chains=[], injection=None, flush=None)
    assert missed(calibration) == PROMISES[1:]
    found = {verdict.name: verdict.found for verdict in judge_promises(calibration)}
    assert {found[name] for name in PROMISES[1:]} == {"not measured"}


def test_without_a_profiler_nothing_is_promised_about_it() -> None:
    verdicts = judge_promises(make_calibration(chains=[]), profiles=False)
    assert [verdict.name for verdict in verdicts] == [
        *("empty_call", "gradient_graph_slope", "delay_host_us", "delay_step_us", "cold")
    ]
    assert all(verdict.kept for verdict in verdicts)


def test_a_flush_has_to_show() -> None:
    flush = L2Flush(
        l2_bytes=1, flushed_bytes=2, read_bytes=1, hot=[3.0, 5.1, 5.2], cold=[4.9, 5.0, 5.1]
    )
    assert missed(make_calibration(flush=flush)) == ["cold"]


def test_a_profiler_that_stays_attached_is_noticed() -> None:
    assert missed(with_figure("replay_profiled", 4.5 + 0.9)) == []
    assert missed(with_figure("replay_profiled", 4.5 + 2.2)) == ["profiled"]
