"""Commands from start to end, in the parent process. Nothing here loads torch."""

from __future__ import annotations

from bt_bench.runs.check import Outcome, check_spec
from bt_bench.runs.estimate import duration_text, estimate_seconds
from bt_bench.runs.explore import (
    BATCH,
    PROCESSES,
    SCENARIOS,
    Explored,
    Exploring,
    limit_seconds,
)
from bt_bench.runs.faults import Found
from bt_bench.runs.found import read_found, store_found
from bt_bench.runs.gate.checkouts import BUILD_SECONDS, base_tree, build, copied
from bt_bench.runs.gate.live import GateRequest, plan_of, prepare, run_live_gate
from bt_bench.runs.gate.loop import DEFAULT_LOOKS, MAX_LOOK
from bt_bench.runs.gate.lost import (
    Lost,
    config_of,
    lost_between,
    other_files,
    other_places,
    other_suite,
    without_variant,
)
from bt_bench.runs.gate.recorded import judge_recording
from bt_bench.runs.gate.recording import record
from bt_bench.runs.gate.sameness import compare_trees
from bt_bench.runs.gate.shards import OwnShard, shard_scope
from bt_bench.runs.gate.sides import GateSide, RoundsRequest
from bt_bench.runs.gate.trees import (
    Tree,
    isolations,
    locate,
    location_in,
    measured_alike,
    place_below,
    working_tree,
)
from bt_bench.runs.gate.wanted import choose_metrics
from bt_bench.runs.gpus import chosen_gpus, entered
from bt_bench.runs.merge.gates import MergedGate, merge_gates
from bt_bench.runs.merge.merging import Merged, MergeRequest, merge
from bt_bench.runs.merge.shard_gates import is_gate
from bt_bench.runs.preflight import (
    check_conditions,
    check_files,
    check_memory,
    check_resumable,
    choose_variants,
    settle_sweep,
)
from bt_bench.runs.progress import CaseReport, Lines, Progress, replacement
from bt_bench.runs.replay import Deviation, Replayed, replay
from bt_bench.runs.selfcheck.recorded import recording_paths
from bt_bench.runs.selfcheck.report import facts_of, selfcheck_document, selfcheck_json
from bt_bench.runs.selfcheck.resampled import RecordedPopulation
from bt_bench.runs.sharing import Place
from bt_bench.runs.sweep import SweepRequest, run_sweep, write_plan
