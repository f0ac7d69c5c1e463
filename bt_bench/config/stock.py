"""The configs that come with the package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


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
