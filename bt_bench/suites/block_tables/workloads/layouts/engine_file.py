"""Files with the tables of a running engine, which a config names as `kv_cache_config`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bt_bench.base import refuse_stand_in
from bt_bench.base.errors import UsageError, counted, names_hint, shown
from bt_bench.suites.block_tables.workloads.maxima import (
    MAX_BLOCK_SIZE,
    MAX_CP_SIZE,
    MAX_GROUPS,
    MAX_MODEL_LEN,
    MAX_REQS,
    MAX_TOKENS,
    MAX_WIDTH,
)

FORMAT = "bt-bench kv_cache_config 1"
RELEASES = ("0.33.0",)
"""Releases of vLLM whose tables have all that a file lists."""

MAX_GROUP_BYTES = 256 * 2**30
"""The most memory of one group's tables: no GPU has more."""

_HOW = "print it from the engine with examples/print_kv_cache_config.py"
_SIZES = {
    "max_num_reqs": (1, MAX_REQS),
    "max_num_batched_tokens": (1, MAX_TOKENS),
    "max_model_len": (1, MAX_MODEL_LEN),
    "cp_size": (1, MAX_CP_SIZE),
    "cp_rank": (0, MAX_CP_SIZE - 1),
    "cp_interleave": (1, MAX_BLOCK_SIZE),
}
_GROUP_SIZES = {
    "block_size": (1, MAX_BLOCK_SIZE),
    "width": (1, MAX_WIDTH),
    "reach": (0, MAX_MODEL_LEN),
}
_GROUP_SWITCHES = ("slot_mapping_enabled", "dcp_sharded")


def read_engine_file(path: Path) -> dict[str, Any]:
    """Read the tables of an engine as parameters of a case, by name.

    Raises:
        UsageError: for a file that is missing, is not of this format, or has a wrong value. The
            message names the file, the value with its group, and the expected one.
    """
    return _File(path).parameters()


class _File:
    """A file, for its errors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._document = self._read()

    def parameters(self) -> dict[str, Any]:
        """Return the parameters; raise an error for the first wrong value."""
        document = self._document
        self._only_known(document, ("format", "engine", "release", "model", *_SIZES, "groups"), "")
        if document.get("engine") != "vllm" or document.get("release") not in RELEASES:
            raise self._error(
                f"engine is {shown(document.get('engine'))} and release "
                f"{shown(document.get('release'))}; expected 'vllm' and one of "
                f"{', '.join(RELEASES)}, whose tables are known"
            )
        model = document.get("model")
        if not isinstance(model, str) or not model:
            raise self._error(f"model is {shown(model)}; expected the model's name")
        sizes = {name: self._size(document, name, *_SIZES[name]) for name in _SIZES}
        groups = document.get("groups")
        if not isinstance(groups, list) or not 1 <= len(groups) <= MAX_GROUPS:
            found = counted(len(groups), "group") if isinstance(groups, list) else shown(groups)
            raise self._error(f"groups has {found}; expected a list of 1 to {MAX_GROUPS}")
        for index, group in enumerate(groups):
            self._check_group(index, group, sizes)
        return {
            **sizes,
            "block_size": [group["block_size"] for group in groups],
            "widths": [group["width"] for group in groups],
            "sliding_window": [group["reach"] for group in groups],
            "disabled_groups": _without(groups, "slot_mapping_enabled"),
            "unsharded_groups": _without(groups, "dcp_sharded"),
            "layout_source": f"{model} in vLLM {document['release']}",
        }

    def _read(self) -> dict[str, Any]:
        try:
            data = self._path.read_bytes()
            refuse_stand_in(data, str(self._path), "tables that an engine printed")
            document = json.loads(data.decode())
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror or error}; {_HOW}") from None
        except (ValueError, RecursionError):
            raise self._error(f"is not JSON; {_HOW}") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            found = document.get("format") if isinstance(document, dict) else document
            raise self._error(f"format is {shown(found)}; expected {FORMAT!r}; {_HOW}")
        return document

    def _check_group(self, index: int, group: object, sizes: Mapping[str, int]) -> None:
        place = f"groups[{index}]"
        if not isinstance(group, dict):
            raise self._error(f"{place} is {shown(group)}; expected an object")
        self._only_known(group, (*_GROUP_SIZES, *_GROUP_SWITCHES), f"{place}.")
        values = {
            name: self._size(group, name, *_GROUP_SIZES[name], f"{place}.") for name in _GROUP_SIZES
        }
        for name in _GROUP_SWITCHES:
            if not isinstance(group.get(name), bool):
                raise self._error(
                    f"{place}.{name} is {shown(group.get(name))}; expected true or false"
                )
        needed = 8 * (sizes["max_num_reqs"] * values["width"] + sizes["max_num_batched_tokens"])
        if needed > MAX_GROUP_BYTES:
            raise self._error(
                f"{place} has {values['width']} columns in each of {sizes['max_num_reqs']} rows, "
                f"{needed / 2**30:.0f} GiB of tables; expected at most 256 GiB"
            )

    def _size(
        self, values: Mapping[str, object], name: str, low: int, high: int, place: str = ""
    ) -> int:
        value = values.get(name)
        if type(value) is not int or not low <= value <= high:
            raise self._error(
                f"{place}{name} is {shown(value)}; expected a whole number from {low} to {high}"
            )
        return value

    def _only_known(self, values: Mapping[str, object], known: tuple[str, ...], place: str) -> None:
        for name in values:
            if name not in known:
                where = place.removesuffix(".") or "it"
                raise self._error(
                    f"{where} has an unknown key {shown(name)}; {names_hint(name, known)}"
                )

    def _error(self, message: str) -> UsageError:
        return UsageError(f"kv_cache_config {self._path}: {message}")


def _without(groups: list[dict[str, Any]], name: str) -> list[int]:
    return [index for index, group in enumerate(groups) if not group[name]]
