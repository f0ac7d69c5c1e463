"""The report of a run for machines: the outcome of each variant and case, and all verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bt_bench.analysis import EVERYTHING, Selection, typical_us
from bt_bench.report.formats.json_format import judgement_json
from bt_bench.report.run.arranged import Arms, arrange
from bt_bench.report.run.work import roofline_json
from bt_bench.results import VariantResult, metric_of

RUN_SCHEMA_VERSION = 1


def run_json(
    results: Sequence[VariantResult], selection: Selection = EVERYTHING
) -> dict[str, object]:
    """Build one JSON document, with null for absent values.

    Times are in µs; for a window of several steps, times in `roofline` are means over its steps.

    Args:
        results: results of the run's variants, at least one.
        selection: the part to show.
    """
    arms = arrange(results, selection)
    header = arms.baseline.result
    shown = {(arm.name, case_id.key) for arm in arms.others for case_id in arms.case_ids}
    judged = arms.judged.judgements if arms.judged else ()
    return {
        "schema_version": RUN_SCHEMA_VERSION,
        "kind": "run",
        "run_id": header.run_id,
        "config": header.config,
        "created": header.created,
        "complete": all(result.complete for result in results),
        "device": header.environment.device,
        "baseline": arms.baseline.name,
        "others": [arm.name for arm in arms.others],
        "selected": arms.selected,
        "cases": list(_cases(arms)),
        "judgements": [judgement_json(e) for e in judged if (e.other, e.key) in shown],
    }


def _cases(arms: Arms) -> Iterator[dict[str, Any]]:
    for case_id in arms.case_ids:
        for arm in arms.all:
            case = arm.cases.get(case_id)
            if case is None:
                continue
            yield {
                "operation": case.operation,
                "case": case.case,
                "variant": arm.name,
                "status": case.status.value,
                "reason": case.reason.model_dump(mode="json") if case.reason else None,
                "checked": case.check is not None,
                "launches": case.launches.totals() if case.launches else None,
                "medians": {
                    metric_of(each.series).name: typical_us(case, each.series)
                    for each in case.measurements
                },
                "roofline": roofline_json(arm.result, case),
            }
