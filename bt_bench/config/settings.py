"""`[tool.bt-bench]` of a project's pyproject.toml: defaults below the flags and the config."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bt_bench.base.errors import UsageError, names_hint, shown
from bt_bench.base.names import DEVICE_CHOICES, DeviceChoice, is_device_choice
from bt_bench.results import Noun

_TABLE = "tool.bt-bench"


class Settings(Noun):
    """Settings of a project; paths are absolute, and `None` or empty means not set.

    Args:
        reports: folder of run folders.
        device: the device to measure on.
        kernels: folders of variant files, beside the shipped ones.
        source: the pyproject.toml of these settings.
    """

    reports: Path | None = None
    device: DeviceChoice | None = None
    kernels: tuple[Path, ...] = ()
    source: Path | None = None


def read_settings(start: Path) -> Settings:
    """Return the settings of the nearest pyproject.toml, from `start` upward.

    Paths in it are relative to its folder. Without such a file or table, nothing is set.

    Raises:
        UsageError: if the file is not TOML, or a key is unknown or wrong.
    """
    folder = start.resolve()
    for candidate in (folder, *folder.parents):
        path = candidate / "pyproject.toml"
        if path.is_file():
            return _settings_of(path)
    return Settings()


def reports_folder(given: Path | None = None) -> Path:
    """Return the folder of reports: the given one, else the one in the settings, else `reports`."""
    return given or read_settings(Path.cwd()).reports or Path("reports")


def chosen_device(given: DeviceChoice | None = None) -> DeviceChoice:
    """Return the device: the given one, else the one in the settings, else `auto`."""
    return given or read_settings(Path.cwd()).device or "auto"


def kernel_folders(
    given: Sequence[Path] | None, of_config: Sequence[str] = (), start: Path | None = None
) -> list[Path]:
    """Return the folders of variants: the given ones, else the config's, else the settings'.

    Args:
        given: folders by option.
        of_config: folders that the config names.
        start: a folder of the project; `None`: the working directory.
    """
    folders = given or [Path(folder) for folder in of_config]
    return list(folders or read_settings(start or Path.cwd()).kernels)


def _settings_of(path: Path) -> Settings:
    table = _tool_table(path)
    problems = [
        f"{path}: unknown key {shown(key)} in [{_TABLE}]; {names_hint(key, _CHECKS)}"
        for key in table
        if key not in _CHECKS
    ]
    for key, (is_valid, expected) in _CHECKS.items():
        if key in table and not is_valid(table[key]):
            problems.append(f"{path}: {_TABLE}.{key} is {shown(table[key])}; expected {expected}")
    if problems:
        raise UsageError("\n".join(problems))
    return Settings(
        reports=path.parent / table["reports"] if "reports" in table else None,
        device=table.get("device"),
        kernels=tuple(path.parent / folder for folder in table.get("kernels", [])),
        source=path,
    )


def _tool_table(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(_toml_message(path, str(error))) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}; expected TOML") from None
    except (OSError, RecursionError) as error:
        raise UsageError(f"{path}: not readable: {error}") from None
    tool = data.get("tool", {})
    table = tool.get("bt-bench", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {_TABLE} is {shown(table)}; expected a table")
    return table


def _toml_message(path: Path, message: str) -> str:
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.DOTALL)
    if found is None:
        return f"{path}: not valid TOML: {message}"
    return f"{path}:{found[2]}:{found[3]}: not valid TOML: {found[1]}"


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


def _is_path_list(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_path, value))


def _is_device(value: object) -> bool:
    return isinstance(value, str) and is_device_choice(value)


_CHECKS = {
    "reports": (_is_path, "the path of a folder"),
    "device": (_is_device, DEVICE_CHOICES),
    "kernels": (_is_path_list, "a list of paths of folders"),
}
