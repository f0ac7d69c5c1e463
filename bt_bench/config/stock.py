"""The configs that come with a suite."""

from __future__ import annotations

from pathlib import Path

from bt_bench.base.extras import refuse_packed
from bt_bench.protocol import SuiteRef, is_regular, load_suite


def stock_config_names(suite: SuiteRef | None = None) -> list[str]:
    """Return the sorted names of a suite's stock configs; `None` stands for the default suite."""
    paths = filter(is_regular, _folder(suite).glob("*.yaml"))
    return sorted(path.stem for path in paths if not path.name.startswith("."))


def stock_config_path(name: str, suite: SuiteRef | None = None) -> Path:
    """Return the file of a stock config; `name` comes from `stock_config_names`."""
    return _folder(suite) / f"{name}.yaml"


def _folder(suite: SuiteRef | None) -> Path:
    folder = load_suite(suite or SuiteRef()).configs
    refuse_packed(folder)
    return folder
