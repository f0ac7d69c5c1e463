"""The conditions of a measuring process that change its figures: settings, tools, shared GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from bt_bench.results.run.nouns import Noun


class Harm(StrEnum):
    """Ranks how far a condition harms times."""

    NOTED = "noted"  # they are true of this condition, and of no other
    PROFILER = "profiler"  # a second profiler: the harness's own one gets no records
    FALSE = "false"  # they are of something else, and are refused


class Condition(Noun):
    """Something that is set, attached or shared, and that changes times.

    Args:
        name: the thing, such as `CUDA_LAUNCH_BLOCKING=1`.
        effect: its effect on figures; a clause.
        remedy: a clause that begins with a verb.
        harm: how much.
    """

    name: str
    effect: str
    remedy: str
    harm: Harm

    @property
    def text(self) -> str:
        """Return the condition in one sentence, without a full stop."""
        return f"{self.name}: {self.effect}; {self.remedy}"


def condition_texts(conditions: Sequence[Condition] | None) -> Iterator[str]:
    """Yield a sentence for each condition of a measurement, for warnings; unknown: none."""
    yield from (condition.text for condition in conditions or ())
