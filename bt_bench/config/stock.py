"""The configs that come with a suite."""

from __future__ import annotations

from pathlib import Path

from bt_bench.protocol import SuiteRef, load_suite


def stock_config_names(suite: SuiteRef | None = None) -> list[str]:
    """Names of the stock configs of a suite, sorted; of the default one if none is given."""
    return sorted(path.stem for path in _folder(suite).glob("*.yaml"))


def stock_config_path(name: str, suite: SuiteRef | None = None) -> Path:
    """The file of a stock config, whose name the caller has from `stock_config_names`."""
    return _folder(suite) / f"{name}.yaml"


def _folder(suite: SuiteRef | None) -> Path:
    return load_suite(suite or SuiteRef()).configs
