"""The report of a run for the terminal: a screen per operation, and nothing that misleads."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support import scenarios
from support.committed import ORIGIN
from support.factories import (
    make_case,
    make_environment,
    make_failed_case,
    make_launches,
    make_result,
    make_rounds,
)
from support.timelines import shown

from bt_bench.analysis import EVERYTHING, Selection
from bt_bench.base.errors import UsageError
from bt_bench.config import planned_variants
from bt_bench.report.console import render_plain
from bt_bench.report.run.brief import MAX_FAILURES, brief_document
from bt_bench.report.run.brief_tables import NUM_WORST
from bt_bench.report.run.document import run_document
from bt_bench.results.files.reading import read_run
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.result import VariantResult
from bt_bench.suites.block_tables import operations as ops

SCREEN = 40


def brief(results: list[VariantResult], selection: Selection = EVERYTHING) -> str:
    return render_plain(brief_document(results, selection=selection))


WIDTHS = (80, 120)


def on_terminals(results: list[VariantResult], *, whole: bool = False) -> Iterator[list[str]]:
    """Yield the lines on a terminal of each of the widths."""
    document = run_document(results) if whole else brief_document(results)
    for width in WIDTHS:
        lines = shown(document, width).splitlines()
        assert max(map(len, lines)) <= width
        yield lines


@pytest.fixture(scope="module")
def origin() -> list[VariantResult]:
    return read_run(ORIGIN, planned_variants(ORIGIN) or ())


@pytest.fixture(scope="module")
def alike(origin: list[VariantResult]) -> list[VariantResult]:
    """Results of `fused` and `one_launch`, which take as long as each other in `gather_slots`."""
    return origin[1:]


def with_variants(results: list[VariantResult], number: int) -> list[VariantResult]:
    """Copies of the last variant are added."""
    info = results[-1].variant
    names = [f"one_more_variant_{n}" for n in range(number - len(results))]
    copies = [
        results[-1].model_copy(update={"variant": info.model_copy(update={"name": name})})
        for name in names
    ]
    return [*results, *copies]


def with_cases(results: list[VariantResult], copies: int) -> list[VariantResult]:
    """Each case so many times, under other names."""
    return [
        result.model_copy(
            update={
                "cases": [
                    case.model_copy(update={"case": name, "key": f"{case.operation}/{name}"})
                    for case in result.cases
                    for name in (f"{case.case}_{n}" for n in range(copies))
                ]
            }
        )
        for result in results
    ]


@pytest.mark.parametrize(("variants", "copies"), [(2, 1), (4, 3), (5, 1), (5, 3)])
def test_an_operation_has_one_screen_and_no_line_is_too_long(origin, variants, copies):
    results = with_cases(with_variants(origin[:variants], variants), copies)
    for width, lines in zip(WIDTHS, on_terminals(results), strict=True):
        starts = [n for n, line in enumerate(lines) if line in ("Gather + slots", "Whole step")]
        assert len(starts) == 2
        ends = lines.index("This run")
        lead, first, second = starts[0], starts[1] - starts[0], ends - starts[1]
        assert lead <= (28 if width == 80 else 20)  # a sentence for each variant
        # Of five variants a narrow table has the names of cases on lines of their own.
        assert max(first, second) <= SCREEN + (8 if variants == 5 else 0)


@pytest.mark.parametrize("whole", [False, True])
def test_names_are_cut_at_joints_only(origin, whole):
    results, cut = with_variants(origin, 5), set()
    names = [result.variant.name for result in results] + [case.case for case in origin[0].cases]
    parts = {part for name in names for part in name.split("_")}
    for line in (line for lines in on_terminals(results, whole=whole) for line in lines):
        for word in re.findall(r"[a-z]+(?:_[a-z0-9]+)+_?|[a-z]+_", line):
            found = set(word.strip("_").split("_"))
            known = found <= parts or word in ("host_us", "gpu_us")
            assert known or not found & parts, line
            cut |= {word} - {*names}
    assert "one_more_" in cut


def test_one_other_variant_has_its_times_beside_the_baseline(origin):
    text = brief(origin[:2], Selection(operations=["step"], cases="medium_batch_4grp"))
    assert "Selected by -k medium_batch_4grp, --operations step: 1 of 10 cases." in text
    assert re.search(r"Case +baseline +fused +Speed-up +Interval +Verdict\n", text)
    assert re.search(r"201\.7 +105\.0 +1\.94 × +1\.88–1\.99 +FASTER\n", text)
    assert "Launches per step: baseline 6, fused 2." in text


def test_what_is_shown_does_not_change_a_verdict(alike):
    results = with_variants(alike, 3)
    whole = brief(results)
    selection = Selection(cases="small*", operations=["gather_slots"], variants=["one_launch"])
    part = brief(results, selection)
    (interval,) = re.findall(r"2\.529 +2\.560 +1\.00 × +(\S+) +SAME", part)
    assert re.search(rf"2\.529 +1\.00 × \({re.escape(interval)}\) =", whole)
    (interval,) = re.findall(r"44\.54 +44\.47 +1\.01 × +(\S+) +INCONCLUSIVE", part)
    assert re.search(rf"44\.54 +1\.01 × \({re.escape(interval)}\) \?", whole)


def test_many_variants_have_a_row_each(origin):
    assert "1.24–1.31" in brief(origin)
    for lines in on_terminals(with_variants(origin, 8)):
        assert len([line for line in lines if line.startswith("  one_more_variant_4  ")]) == 2 * 2
        assert "1.24–1.31" not in "\n".join(lines)
        assert any("--variants of at most 5" in line for line in lines)


def test_same_and_inconclusive_have_a_mark(alike):
    text = brief(with_variants(alike, 3), Selection(operations=["gather_slots"]))
    assert re.search(r"0\.94–1\.08\) \?.*0\.99–1\.04\) =", text, re.DOTALL)
    assert "(= the same, within the margin; ? undecided," in " ".join(text.split())


def test_of_many_cases_there_is_a_summary_and_the_worst(origin):
    text = brief(with_cases(origin, 4), Selection(operations=["step"]))
    assert "Changes in percent of baseline over 20 cases:" in text
    assert re.search(r"fused +20 FASTER +-48\.3 +-22\.6 +-21\.0\n", text)  # best, median, worst
    assert f"\nThe {NUM_WORST} worst of 20 cases, medians of baseline, and the speed-up" in text
    (gpu,) = re.findall(r"\nGPU time, µs \(gpu_us\)\n((?:  \w+_\d +[\d.]+ .*\n)+)", text)
    assert len(gpu.splitlines()) == NUM_WORST
    assert gpu.count("large_batch_1grp") == NUM_WORST  # all are faster, and this one by the least
    assert "The other cases: `bt-bench show` with -k PATTERNS, or with --all." in text
    wide = shown(brief_document(with_cases(origin, 4)), 120)
    assert re.search(r"fused +20 FASTER .* -21\.0  ┆ +├?─*●─*┤\n", wide)


def test_an_increase_is_worse_than_a_larger_decrease_where_both_are_undecided(alike):
    text = brief(with_cases(alike, 4), Selection(operations=["gather_slots"]))
    (host,) = re.findall(r"\nHost time, µs \(host_us\)\n((?:  \w+_\d +[\d.]+ .*\n)+)", text)
    largest = r"  large_batch_1grp_\d +61\.44 +61\.50 .* INCONCLUSIVE\n"  # of the increases
    assert re.fullmatch(f"(?:{largest}){{{NUM_WORST}}}", host)


def test_what_is_worse_by_another_metric_is_counted():
    text = brief(scenarios.gpu_run(), Selection(operations=["step"]))
    assert re.search(r"By other metrics, .* lists: fused_apply \d+ SLOWER, \d+ INVALID\.", text)


def cpu(name: str, factor: float) -> VariantResult:
    noise = [0.01 * (n % (len(name) - 1)) for n in range(60)]
    samples = {Quantity.STAGE_US: [[(10 + each) * factor] for each in noise]}
    launches = make_launches(["one"] * (3 if name == "baseline" else 1), counted_by="interpreter")
    case = make_case("a", ops.STEP, samples, launches=launches, rounds=make_rounds(60))
    return make_result(name, [case], environment=make_environment("cpu"))


def test_without_a_gpu_launches_are_the_table_and_times_that_tell_nothing_apart_have_a_line():
    text = brief([cpu("baseline", 1.0), cpu("fused", 1.0)])
    assert re.search(r"Case +baseline +fused\n─+\na +3 +1\n", text)
    assert (
        "Stage times are 10.02 to 10.03 µs; no difference between the variants is resolvable"
        in text
    )
    assert "Not measured: host, device, span, step, pipelined and event times, which need" in text
    text = brief([cpu("baseline", 1.0), cpu("fused", 0.5)])
    assert "is resolvable" not in text
    assert re.search(r"Staging, µs \(stage_us\)\n +a +10\.03 +5\.0\d\d +2\.00 × .* FASTER\n", text)


def test_staging_is_absent_without_a_gpu_only_where_everything_failed():
    failed = [make_failed_case("a")]
    text = brief([make_result("baseline", failed, environment=make_environment("cpu"))])
    assert "Not measured: stage times, since no case got that far." in text
    assert "stage, device" not in text


def test_one_variant_has_no_changes():
    text = brief([cpu("baseline", 1.0)])
    assert "Stage times are 10.03 µs." in text
    gpu = brief(scenarios.gpu_run()[:1])
    assert "Medians:\n" in gpu
    assert re.search(r"Case +baseline\n", gpu)


def test_cases_that_fail_alike_are_one_line():
    names = [f"case_{n}" for n in range(MAX_FAILURES + 3)]
    fine = [make_case(name) for name in names]
    alike = [make_failed_case(name, message="wrong slots") for name in names]
    text = brief([make_result("baseline", fine), make_result("fused", alike)])
    assert "- fused: failed in gather_slots/case_0 and 7 more: wrong slots\n" in text
    apart = [make_failed_case(name, message=f"wrong {name}") for name in names]
    text = brief([make_result("baseline", fine), make_result("fused", apart)])
    assert text.count("- fused: failed in") == MAX_FAILURES
    assert "- … and 3 more, which comparison.md lists\n" in text


def test_selections_that_match_nothing(origin):
    for selection, message in (
        (Selection(cases="mediumm"), "-k 'mediumm': no case matches"),
        (Selection(operations=["stpe"]), "did you mean 'step'?"),
        (Selection(variants=["fuse"]), "no variant 'fuse' in these results; did you mean 'fused'?"),
        (Selection(variants=["baseline"]), "only the base is left"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            brief_document(origin, selection=selection)
    with pytest.raises(UsageError, match="expected at least one result"):
        brief_document([])
