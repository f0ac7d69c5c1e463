"""Optional accelerators (C, direct launches, CUPTI, NVML, NVTX), and which were in use.

Everything works without these helpers, but with different times. Results therefore record which
were in use, reports list the others, and runs with different helpers are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bt_bench.results.run.nouns import Noun


class Helper(Noun):
    """Whether a helper was in use.

    Args:
        in_use: whether it was.
        why_not: why it was not and what to do, in one line; `None` if that is not known.
    """

    in_use: bool
    why_not: str | None = None


class Helpers(Noun):
    """The helpers of a run; `None`: of no use for its device, or for the kernels of its suite."""

    staging_in_c: Helper | None
    direct_launches: Helper | None
    pinned_memory: Helper | None = None  # absent from earlier files
    cupti: Helper | None
    nvml: Helper | None
    nvtx: Helper | None


@dataclass(frozen=True)
class HelperTraits:
    """The description of a helper in reports.

    Args:
        title: its name.
        without: the effect of its absence; a clause.
    """

    title: str
    without: str


HELPER_TRAITS = {
    "staging_in_c": HelperTraits("staging in C", "staging takes several times longer"),
    "direct_launches": HelperTraits(
        "direct launches", "variants launch through Triton, which takes longer on the host"
    ),
    "pinned_memory": HelperTraits(
        "pinned memory", "staged writes are copied to the device, which takes longer"
    ),
    "cupti": HelperTraits("CUPTI", "the profiler measures no device times and counts no launches"),
    "nvml": HelperTraits(
        "NVML", "clocks and throttling are unknown, and no round is discarded for them"
    ),
    "nvtx": HelperTraits("NVTX", "profilers such as Nsight Systems see no ranges of bt-bench"),
}
"""By the fields of `Helpers`, in the order of reports."""


def helpers_text(helpers: Helpers) -> str:
    """Return one short sentence on the helpers that were in use, and on the others."""
    used: list[str] = []
    unused: list[str] = []
    for traits, helper in _each(helpers):
        (used if helper.in_use else unused).append(traits.title)
    lacking = f"; not in use: {', '.join(unused)}" if unused else ""
    return f"Helpers in use: {', '.join(used) or 'none'}{lacking}."


def fallback_texts(helpers: Helpers | None) -> Iterator[str]:
    """Yield a clause per reason: the helpers not in use, the reason if known, and the effects."""
    by_reason: dict[str | None, list[HelperTraits]] = {}
    for traits, helper in _each(helpers) if helpers is not None else ():
        if not helper.in_use:
            by_reason.setdefault(helper.why_not, []).append(traits)
    for reason, lacking in by_reason.items():
        titles = " and ".join(", ".join(traits.title for traits in lacking).rsplit(", ", 1))
        verb = "are" if titles.endswith("direct launches") or len(lacking) > 1 else "is"
        why = f" ({reason})" if reason else ""
        effects = "; ".join(traits.without for traits in lacking)
        yield f"{titles} {verb} not in use{why}, so {effects}"


def helper_differences(base: Helpers | None, other: Helpers | None) -> Iterator[str]:
    """Yield a clause for each helper that differs between two runs; unknown ones never differ."""
    if base is None or other is None:
        return
    for name, traits in HELPER_TRAITS.items():
        pair: list[Helper | None] = [getattr(base, name), getattr(other, name)]
        sides = [helper for helper in pair if helper is not None]
        if len({helper.in_use for helper in sides}) > 1:
            yield f"{traits.title} {helper_state(sides[0])} against {helper_state(sides[1])}"


def helper_state(helper: Helper | None) -> str:
    """Return a helper's state, such as `not in use (no driver)`."""
    if helper is None:
        return "does not apply"
    if helper.in_use:
        return "in use"
    return f"not in use ({helper.why_not})" if helper.why_not else "not in use"


def _each(helpers: Helpers) -> Iterator[tuple[HelperTraits, Helper]]:
    for name, traits in HELPER_TRAITS.items():
        helper: Helper | None = getattr(helpers, name)
        if helper is not None:
            yield traits, helper
