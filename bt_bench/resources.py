"""Files that come with the package: stock configs and traces."""

from __future__ import annotations

from pathlib import Path

from bt_bench.errors import UsageError

_PACKAGE = Path(__file__).resolve().parent


def stock_config_dir() -> Path:
    """The folder of the stock configs: inside the package when installed, else the checkout's."""
    packaged = _PACKAGE / "configs"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "configs"


def stock_config_names() -> list[str]:
    """Names of the stock configs, sorted."""
    return sorted(path.stem for path in stock_config_dir().glob("*.yaml"))


def stock_config_path(name: str) -> Path:
    """The file of a stock config, whose name the caller has from `stock_config_names`."""
    return stock_config_dir() / f"{name}.yaml"


def trace_names() -> list[str]:
    """Names of the traces that come with the package, sorted."""
    return sorted(path.stem for path in (_PACKAGE / "traces").glob("*.csv"))


def trace_path(name: str) -> Path:
    """The CSV file of a trace that comes with the package.

    Raises:
        UsageError: when there is no trace of that name.
    """
    if name not in trace_names():
        raise UsageError(f"no trace {name!r}; expected one of {', '.join(trace_names())}")
    return _PACKAGE / "traces" / f"{name}.csv"


def recording_paths() -> list[Path]:
    """Recordings of the gate's rounds that come with the package, by name."""
    return sorted((_PACKAGE / "gating" / "recorded").glob("*.json"))
