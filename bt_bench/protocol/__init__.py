"""The interface between the harness and suites, and the lookup of suites; see `docs/suites.md`."""

from __future__ import annotations

from bt_bench.base.names import Operation
from bt_bench.protocol.digests import digest_of
from bt_bench.protocol.driver import Driver, Guard, MismatchError, Through, Trial
from bt_bench.protocol.exploring import (
    Change,
    Contents,
    Cut,
    Explorer,
    Floats,
    Player,
    Recipe,
    Seen,
    Source,
)
from bt_bench.protocol.fresh import FreshSourceLoader
from bt_bench.protocol.hosting import at_suite, end_suite, run_suites_here, runs_here
from bt_bench.protocol.loading import (
    default_suite,
    driver_of,
    info_of,
    is_of_users_suite,
    is_regular,
    load_suite,
    loaded_files,
    loaded_suites,
    package_folder,
    source_sha256,
)
from bt_bench.protocol.misspelt import misspelt_overrides
from bt_bench.protocol.owners import line_of, place_of, running, suite_of
from bt_bench.protocol.parameters import UserFile, WorkloadParameters, wrong_parameter
from bt_bench.protocol.records import (
    build_workload,
    built_record,
    check_workload,
    features_of_conformance,
    flat_parameters,
    inputs_of_steps,
    is_varied,
    num_bytes_of,
    record_of,
    refuse_unseeded,
    traffic_by_operation,
    varied_workload,
)
from bt_bench.protocol.refs import (
    DEFAULT_REF,
    SuiteRef,
    find_suite,
    ref_of,
    ref_of_value,
    shipped_suites,
)
from bt_bench.protocol.suite import PROTOCOL, NoOpponents, Opponent, Opponents, Suite
from bt_bench.protocol.workload import Traffic, Workload

__all__ = [
    "DEFAULT_REF",
    "PROTOCOL",
    "Change",
    "Contents",
    "Cut",
    "Driver",
    "Explorer",
    "Floats",
    "FreshSourceLoader",
    "Guard",
    "MismatchError",
    "NoOpponents",
    "Operation",
    "Opponent",
    "Opponents",
    "Player",
    "Recipe",
    "Seen",
    "Source",
    "Suite",
    "SuiteRef",
    "Through",
    "Traffic",
    "Trial",
    "UserFile",
    "Workload",
    "WorkloadParameters",
    "at_suite",
    "build_workload",
    "built_record",
    "check_workload",
    "default_suite",
    "digest_of",
    "driver_of",
    "end_suite",
    "features_of_conformance",
    "find_suite",
    "flat_parameters",
    "info_of",
    "inputs_of_steps",
    "is_of_users_suite",
    "is_regular",
    "is_varied",
    "line_of",
    "load_suite",
    "loaded_files",
    "loaded_suites",
    "misspelt_overrides",
    "num_bytes_of",
    "package_folder",
    "place_of",
    "record_of",
    "ref_of",
    "ref_of_value",
    "refuse_unseeded",
    "run_suites_here",
    "running",
    "runs_here",
    "shipped_suites",
    "source_sha256",
    "suite_of",
    "traffic_by_operation",
    "varied_workload",
    "wrong_parameter",
]
