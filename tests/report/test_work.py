"""The table and the line about what a step must move, and the same for machines."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from support.factories import (
    make_calibration,
    make_case,
    make_environment,
    make_required,
    make_result,
)

from bt_bench.base.document import ABSENT, Table
from bt_bench.report.run.arranged import arrange
from bt_bench.report.run.rendering import print_run, render_comparison
from bt_bench.report.run.run_json import run_json
from bt_bench.report.run.work import work_table, work_text
from bt_bench.results.run.calibration import Calibration, PlainCopies
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.result import VariantResult
from bt_bench.suites.block_tables import operations as ops

COPIES = PlainCopies(moved_bytes=[1000, 20_000_000], samples=[[0.75], [10.5]])
GPU_US = {"baseline": 6.0, "fused": 3.0}


def calibration(**fields: object) -> Calibration:
    figures = {"null_gpu": [0.5], "null_step": [12.0]}
    return make_calibration(figures, **({"copies": COPIES} | fields))


def run(
    moved: dict[str, int],
    variants: dict[str, float] = GPU_US,
    device: str = "cuda",
    known: Calibration | None = None,
) -> list[VariantResult]:
    """Variants that take so many µs in cases that must move so many bytes."""
    return [
        make_result(
            variant,
            [
                make_case(
                    name,
                    samples={Quantity.GPU_US: [[gpu_us]], Quantity.STEP_US: [[24.0]]},
                    workload=make_required(size, name=name),
                )
                for name, size in moved.items()
            ],
            environment=make_environment(device),  # type: ignore[arg-type]
            calibration=known or calibration(),
        )
        for variant, gpu_us in variants.items()
    ]


def table_of(results: list[VariantResult]) -> list[dict[str, str]]:
    table = gathering_of(results)
    assert isinstance(table, Table)
    rows = [[cell.text for cell in row] for row in table.rows]  # type: ignore[union-attr]
    return [dict(zip(table.columns, row, strict=True)) for row in rows]  # type: ignore[arg-type]


def text_of(results: list[VariantResult]) -> str:
    return work_text(arrange(results), ops.GATHER_SLOTS)


def gathering_of(results):
    arms = arrange(results)
    return work_table(arms, arms.cases_of(ops.GATHER_SLOTS))


def test_a_row_per_case_and_variant() -> None:
    baseline, fused = table_of(run({"small": 1000}))
    assert fused == {
        "Config": "small",
        "Variant": "fused",
        "Required (KB)": "1.000",
        "Device": "3.000",
        "GB/s": "0.3333",
        "Bytes": "0.2500",
        "Launch": "0.5000",
        "Binds": "launch",
        "× bound": "4.000",
        "Step": "24.00",
        "Null step": "12.00",
    }
    assert (baseline["Variant"], baseline["× bound"]) == ("baseline", "8.000")


def test_a_table_has_one_unit() -> None:
    rows = table_of(run({"small": 1000, "large": 20_000_000}))
    assert [row["Required (MB)"] for row in rows] == ["0.001000"] * 2 + ["20.00"] * 2
    assert [row["Binds"] for row in rows] == ["launch"] * 2 + ["bytes"] * 2
    assert rows[3]["GB/s"] == "6667"


def test_what_is_missing_says_why() -> None:
    results = run({"small": 1000}, known=calibration(copies=None))
    (row, _) = table_of(results)
    assert (row["Binds"], row["× bound"], row["Bytes"]) == (ABSENT, ABSENT, ABSENT)
    assert "plain copies or empty kernels were not profiled in this run" in render_comparison(
        results
    )
    assert text_of(results) == ""
    nothing = run({"small": 0})
    assert [row["Required (KB)"] for row in table_of(nothing)] == ["0", "0"]
    assert "nothing must move" in " ".join(render_comparison(nothing).split())


def test_without_a_gpu_or_in_earlier_files_there_is_nothing() -> None:
    results = run({"small": 1000}, device="cpu")
    assert gathering_of(results) is None
    assert text_of(results) == ""
    earlier = [make_result(cases=[make_case(samples={Quantity.GPU_US: [[3.0]]})])]
    assert "Work: " not in render_comparison(earlier)
    assert "Work: " in render_comparison(run({"small": 1000}))


def test_a_line_has_the_multiples_of_each_variant() -> None:
    begin = "GPU time in multiples of its lower bound"
    kernel, copy = "an empty kernel", "copying the bytes that must move"
    assert text_of(run({"small": 1000})) == f"{begin}, {kernel}: baseline 8.0, fused 4.0."
    cases = {"small": 1000, "large": 20_000_000}
    both = f"{begin}, {kernel} or {copy}"
    assert text_of(run(cases)) == f"{both}: baseline 0.57–8.0, fused 0.29–4.0."
    assert text_of(run({"large": 20_000_000})).startswith(f"{begin}, {copy}: ")


@pytest.mark.parametrize("number", [1, 3, 40])
def test_a_line_is_short(number: int) -> None:
    variants = {f"a_long_variant_{place}": 3.0 + place for place in range(number)}
    results = run({"small": 1000}, {"baseline": 6.0, **variants})
    text = text_of(results)
    assert len(text) <= 160
    ends = {1: "a_long_variant_0 4.0.", 3: "a_long_variant_2 6.7.", 40: "an empty kernel: 4.0–56."}
    assert text.endswith(ends[number])
    stream = StringIO()
    print_run(results, console=Console(file=stream, width=80))
    assert text in " ".join(stream.getvalue().split())


def test_for_machines() -> None:
    cases = run_json(run({"small": 1000}))["cases"]
    assert isinstance(cases, list)
    assert cases[1]["roofline"] == {
        "required_read_bytes": 500,
        "required_written_bytes": 500,
        "required_bytes": 1000,
        "gpu_us": 3.0,
        "gb_per_s": pytest.approx(1 / 3),
        "bytes_us": 0.25,
        "launch_us": 0.5,
        "bound_us": 0.75,
        "binds": "launch",
        "times_bound": 4.0,
        "step_us": 24.0,
        "null_step_us": 12.0,
    }
    earlier = run_json([make_result(cases=[make_case()])])["cases"]
    assert earlier[0]["roofline"] is None  # type: ignore[index]
