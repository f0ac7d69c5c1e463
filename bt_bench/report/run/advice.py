"""How to read the report of a run."""

from __future__ import annotations

from bt_bench.analysis import TOLERANCE_PERCENT, TOLERANCE_US
from bt_bench.report.document import Bullets, Section
from bt_bench.report.run.arranged import Arms
from bt_bench.report.run.cells import NOT_RESOLVABLE

_DEVICE_ADVICE = (
    "Event times are those of a CUDA event pair around each call on an idle GPU, the origin's "
    "method: they include the cost of launching from Python.",
    "A regime is where a step runs. On an idle GPU its time is mostly the host's; a busy GPU hides "
    "the host, and only what the step adds to the device's work counts; a replayed graph has no "
    "launches from Python at all. Savings in one do not transfer to another.",
    f"{NOT_RESOLVABLE.capitalize()} stands for a saving that this run cannot tell from none: it is "
    "smaller than the scatter of the rounds' differences over instances and over time (at 99 %), "
    "than what an unchanged copy of a variant differed by, than two ticks of the clock, or than "
    "the noise of the method itself. That is no proof that there is none.",
    "Where methods disagree, the device times of that row are in doubt: two methods that share "
    f"nothing are further apart than {TOLERANCE_PERCENT:.0f} % and {TOLERANCE_US:.1f} us, each "
    "without what it adds of its own.",
    "The parts of a step are measured apart, so that the residual says how well they explain it; "
    "for a window of several steps they are means over its steps.",
    "Savings are medians of the differences round by round, in which drift of the machine cancels; "
    "the difference of the two medians beside them need not be the same.",
)
_ADVICE = (
    "Times are medians over rounds; of a window with several steps, the median over its steps' "
    "medians. An absent value is – and never 0.",
)


def advice(arms: Arms) -> Section:
    """What the figures mean and what they do not mean."""
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
