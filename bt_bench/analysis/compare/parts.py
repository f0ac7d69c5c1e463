"""The parts of merged results that a comparison brings together.

A merged result was measured in several places. Only the places whose cases are compared with each
other have to be comparable.
"""

from __future__ import annotations

from collections.abc import Iterator

from bt_bench.analysis.compare.comparability import Labelled, facts_text
from bt_bench.analysis.compare.entries import Matchup, Side
from bt_bench.analysis.compare.pairing import match_cases
from bt_bench.base.errors import UsageError
from bt_bench.results import VariantResult


def compared_places(matchup: Matchup) -> Iterator[tuple[Labelled, Labelled]]:
    """Yield the two sides, once for each pair of unlike places whose cases are compared.

    Args:
        matchup: two sides, merged or not, with results.

    Raises:
        UsageError: if two variants of one merged run have a case from different parts: all variants
            have to be measured on one GPU.
    """
    headers = matchup.base.result.header, matchup.other.result.header
    pairs: dict[tuple[int | None, int | None], str] = {}
    if any(header.parts is not None for header in headers):
        matches, _, _ = match_cases(matchup.base.result.cases, matchup.other.result.cases)
        for left, right in matches:
            pairs.setdefault((left.part, right.part), left.key)
    if matchup.one_run:
        for (left_part, right_part), key in pairs.items():
            if left_part != right_part:
                raise UsageError(
                    f"case {key!r} is of {headers[0].part_name(left_part)} for "
                    f"{matchup.base.label}, and of {headers[1].part_name(right_part)} for "
                    f"{matchup.other.label}; expected one part of run {headers[0].run_id}"
                )
    seen = set()
    for left_part, right_part in pairs or [(None, None)]:
        base = _labelled(matchup.base, headers[0], left_part)
        other = _labelled(matchup.other, headers[1], right_part)
        facts = facts_text(base.result), facts_text(other.result)
        if facts not in seen:
            seen.add(facts)
            yield base, other


def _labelled(side: Side, header: VariantResult, part: int | None) -> Labelled:
    name = header.part_name(part)
    if name is None:
        return Labelled(side.label, header)
    of_part = header.model_copy(update={"environment": header.environment_of(part)})
    return Labelled(f"{side.label} ({name})", of_part)
