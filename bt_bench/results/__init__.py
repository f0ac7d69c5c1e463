"""The data types of results and their files: writing, reading, baselines, recordings."""

from __future__ import annotations

from bt_bench.results.files.archive import ARCHIVE_SUFFIX, Archive, verify_archive, write_archive
from bt_bench.results.files.baselines import (
    baseline_names,
    baseline_path,
    find_baseline,
    save_baseline,
    why_no_baseline,
)
from bt_bench.results.files.case_lines import (
    CasePlaces,
    CaseReader,
    LinedResult,
    open_lined,
    place_cases,
    write_lines,
)
from bt_bench.results.files.compact import (
    Binaries,
    CompactCase,
    CompactResult,
    Launches,
    Rounds,
    Taken,
    compacted,
    launches_in,
    parse_compact,
    read_compact,
    read_compact_run,
)
from bt_bench.results.files.divisions import (
    DIVISION_NAME,
    DividedCase,
    Division,
    read_division,
    read_shard,
    write_division,
)
from bt_bench.results.files.folders import CONFIG_NAME, PAGE_NAME, RunFolder, result_name
from bt_bench.results.files.journals import RESULT_SUFFIX
from bt_bench.results.files.reading import (
    in_order,
    read_result,
    read_run,
    read_written,
    result_schema,
)
from bt_bench.results.files.timings import Timing, read_timing
from bt_bench.results.files.writing import ResultWriter, changed_meanwhile, write_run_file
from bt_bench.results.gate.census import (
    CENSUS_NAME,
    CensusCase,
    Kernel,
    KernelCode,
    OperationCensus,
    StaticCensus,
    StepLaunches,
    Toolchain,
    VariantCensus,
    read_census,
    write_census,
)
from bt_bench.results.gate.recording import (
    Asked,
    Judging,
    RecordedSubject,
    Recorder,
    Recording,
    Revision,
    read_recording,
    write_recording,
)
from bt_bench.results.gate.rounds import GateArm, GateRound, RoundSource, SeriesKey
from bt_bench.results.profile.counters import (
    COUNTERS_NAME,
    NCU_REPORT_NAME,
    Counter,
    Counters,
    KernelCounters,
    Stall,
    VariantCounters,
    read_counters,
    write_counters,
)
from bt_bench.results.profile.host_profile import HandlerCost, HostFrame, HostProfile
from bt_bench.results.profile.timeline import (
    TIMELINE_NAME,
    DeviceOperation,
    EmptyCalls,
    HostCall,
    Timeline,
    TracedSteps,
    Tracing,
    VariantTimeline,
    read_timeline,
    write_timeline,
)
from bt_bench.results.run.calibration import (
    Calibration,
    DeviceLine,
    Figure,
    Injection,
    L2Flush,
    LaunchChain,
    PlainCopies,
)
from bt_bench.results.run.case import (
    CaseResult,
    CheckReport,
    CompiledKernel,
    ControlSpread,
    Crash,
    DiscardCode,
    LaunchCensus,
    LaunchCount,
    Measurement,
    RequiredBytes,
    RoundKind,
    RoundLog,
    Stopping,
    StopReason,
    WorkloadRecord,
)
from bt_bench.results.run.commands import (
    command_text,
    folder_of,
    public_text,
    sweep_commands,
)
from bt_bench.results.run.conditions import Condition, Harm, condition_texts
from bt_bench.results.run.helpers import (
    HELPER_TRAITS,
    Helper,
    Helpers,
    fallback_texts,
    helper_differences,
    helper_state,
    helpers_text,
)
from bt_bench.results.run.metrics import (
    COUNTED,
    DEVICE_TICK_US,
    Metric,
    is_sum,
    metric_named,
    metric_of,
    select,
    sums_in,
    with_ticks,
)
from bt_bench.results.run.nouns import (
    Cache,
    Decides,
    Direction,
    LaunchPath,
    Load,
    Method,
    Noun,
    ParameterValue,
    Quantity,
    Reason,
    ReasonCode,
    Series,
    Status,
)
from bt_bench.results.run.plan import Plan
from bt_bench.results.run.redacted import redacted
from bt_bench.results.run.result import (
    BASELINE,
    Environment,
    Gpu,
    Part,
    Shard,
    Tool,
    VariantInfo,
    VariantResult,
)
from bt_bench.results.run.rows import SampleRows, medians_over, typical_of
from bt_bench.results.run.series import FloatArray, place_of, series_of
from bt_bench.results.run.soundness import are_times
from bt_bench.results.run.suites import (
    OperationInfo,
    SuiteInfo,
    context_of,
    in_report_order,
    operations_of,
    suite_name,
)
