"""The section of a run's report on how to read it."""

from __future__ import annotations

from bt_bench.analysis import TOLERANCE_PERCENT, TOLERANCE_US
from bt_bench.base import Bullets, Section
from bt_bench.report.run.arranged import Arms

_DEVICE_ADVICE = (
    "Event times come from a CUDA event pair around each call on an idle GPU, the origin's "
    "method: they include the cost of launching from Python.",
    "A regime is the state of the GPU in which a step runs. On an idle GPU its time is mostly the "
    "host's; a busy GPU hides the host, and only the device work that the step adds counts; a "
    "replayed graph has no "
    "launches from Python at all. Changes in one do not transfer to another.",
    "Changes are in percent of the baseline, negative for less, with the verdict on each: "
    "`bt-bench compare` on this folder prints the same numbers. FASTER and SLOWER: the whole "
    "interval is beyond the margin. SAME: it is within. INCONCLUSIVE is neither, and no proof that "
    "there is no change: noise of all kinds widens the interval. A margin is never below the floor "
    "of the metric.",
    "Where methods disagree, the device times of that row are in doubt: two independent methods "
    f"differ by more than {TOLERANCE_PERCENT:.0f} % and {TOLERANCE_US:.1f} µs, even without the "
    "cost that each adds.",
    "The parts of a step are measured separately, so the residual shows how well they explain it; "
    "for a window of several steps they are means over its steps.",
    "A change is the median of the ratios round by round, in which drift of the machine cancels. "
    "It need not equal the ratio of the two medians beside it.",
)
_ADVICE = (
    "Times are medians over rounds; for a window of several steps, the median of its steps' "
    "medians. A missing value is shown as –, never as 0.",
)


def advice(arms: Arms) -> Section:
    """Build the section on the meaning and the limits of the figures."""
    files = ", ".join(f"{arm.result.variant.name}.json" for arm in arms.all)
    return Section(
        "How to read this",
        (
            Bullets(
                (
                    *(() if arms.on_cpu else _DEVICE_ADVICE),
                    *_ADVICE,
                    f"All raw samples are in {files} beside this file; bt-bench schema describes "
                    "them.",
                )
            ),
        ),
    )
