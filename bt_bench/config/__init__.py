"""Sweep configs: from YAML to a validated list of cases."""

from __future__ import annotations

from bt_bench.config.cluster import (
    ClusterSpec,
    KubernetesCluster,
    LocalCluster,
    SlurmCluster,
    load_cluster,
)
from bt_bench.config.dump import dump_config
from bt_bench.config.json_schema import SCHEMA_NAME, config_schema
from bt_bench.config.load import load_config
from bt_bench.config.merged import ConfigParts, merged_config, read_parts
from bt_bench.config.planned import planned_cases, planned_folders, planned_variants
from bt_bench.config.settings import (
    Settings,
    chosen_device,
    kernel_folders,
    read_settings,
    reports_folder,
)
from bt_bench.config.sharding import case_digests, divide, parse_shard
from bt_bench.config.sources import Source, own_config
from bt_bench.config.spec import CaseSpec, SweepSpec
from bt_bench.config.stock import stock_config_names, stock_config_path
