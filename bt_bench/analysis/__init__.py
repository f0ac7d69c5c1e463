"""Statistics, comparisons and verdicts."""

from __future__ import annotations

from bt_bench.analysis.agreement import Agreement, agreement
from bt_bench.analysis.census import judge_static, missing_from_config
from bt_bench.analysis.compare.comparability import (
    crash_text,
    device_name,
    limit_facts,
    machine_text,
)
from bt_bench.analysis.compare.entries import WHOLE_CASE, Matchup, Side
from bt_bench.analysis.compare.estimating import control_difference
from bt_bench.analysis.compare.exact import launches_of
from bt_bench.analysis.compare.facts import family_facts, how_to_finish
from bt_bench.analysis.compare.judge import Criteria, judge, not_compared
from bt_bench.analysis.compare.labels import unique_labels
from bt_bench.analysis.compare.one_run import baseline_index, judge_run
from bt_bench.analysis.compare.selection import EVERYTHING, Selection
from bt_bench.analysis.compare.sides import Given, match_sides, parse_given
from bt_bench.analysis.crosscheck import (
    TOLERANCE_PERCENT,
    TOLERANCE_US,
    Crosscheck,
    Reading,
    crosschecks,
    disagreements,
)
from bt_bench.analysis.deciding import (
    DEFAULT_FAIL_ON,
    Correction,
    Rules,
    exit_code,
    not_comparable,
    timed_nothing,
    without_new_paths,
    worst_code,
)
from bt_bench.analysis.figures import MethodLine, method_lines, step_medians_of, typical_us
from bt_bench.analysis.influence import certain_influence
from bt_bench.analysis.judging import (
    BINDING,
    MOST_TOLD,
    SPREAD_FACTOR,
    Entry,
    Settled,
    exact,
    overall_ratios,
    settled,
)
from bt_bench.analysis.lottery import lottery_apart, lottery_figures
from bt_bench.analysis.plain_copy import PlainCopy
from bt_bench.analysis.power import (
    DEFAULT_DETECT,
    Sought,
    forecast,
    is_short,
    power_of,
    rounds_needed,
)
from bt_bench.analysis.promises import (
    DEVICE_METHODS,
    METHOD_TITLES,
    Promise,
    apart_percent,
    judge_promises,
    missed_promises,
    moved_by_delay_us,
)
from bt_bench.analysis.rounds import GATE_MARGIN, Labels, Ledger, judge_rounds
from bt_bench.analysis.run.budget import CLOSES_WITHIN_PERCENT, SPIN_US, Budget, budgets
from bt_bench.analysis.run.roofline import Binds, Roofline, roofline
from bt_bench.analysis.statistics.estimates import wilson_interval
from bt_bench.analysis.statistics.faster import faster_mean
from bt_bench.analysis.statistics.samples import (
    MIN_CLUSTERS,
    Interval,
    interquartile_range,
    median,
    median_interval,
    percentile,
    relative_half_width,
    step_medians,
)
from bt_bench.analysis.ticks import device_ticks, largest_ticks, tick_of
from bt_bench.analysis.verdicts import (
    LOST_FROM_CONFIG,
    WORST_FIRST,
    Cause,
    Evidence,
    Judged,
    Judgement,
    Overall,
    Power,
    Verdict,
    tally,
    tally_of,
)
