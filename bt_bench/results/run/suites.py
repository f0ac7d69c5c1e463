"""The description of a suite in its results, which makes them readable without the suite."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import lru_cache

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bt_bench.base.names import DEFAULT_SUITE, Operation
from bt_bench.results.run.nouns import Noun


class OperationInfo(Noun):
    """An operation of a suite, see `bt_bench.base.names.OperationTraits`.

    `first`: reports list it before others.
    """

    name: str = Field(min_length=1)
    title: str = Field(min_length=1)
    on_host: bool = False
    stages: bool = False
    first: bool = False


class SuiteInfo(Noun):
    """The suite of a result: its name, its operations, and a digest of its own modules.

    `protocol` is the version of the protocol that it was written for.
    """

    name: str = Field(min_length=1)
    protocol: int = Field(ge=1)
    source_sha256: str
    operations: list[OperationInfo] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_each_operation_once(self) -> SuiteInfo:
        names = [each.name for each in self.operations]
        if len(set(names)) < len(names):
            raise PydanticCustomError("repeated", "operations has a name twice; expected each once")
        return self


def suite_name(suite: SuiteInfo | None) -> str:
    """Return the name of a result's suite; the default one if it names none, as in schema 2."""
    return DEFAULT_SUITE if suite is None else suite.name


@lru_cache(maxsize=16)
def _of_default() -> dict[str, Operation]:
    # By name: no part of the harness imports a suite, and this module of it imports nothing heavy.
    module = importlib.import_module(f"bt_bench.suites.{DEFAULT_SUITE}.operations")
    known: dict[str, Operation] = module.BY_NAME
    return known


def operations_of(suite: SuiteInfo | None) -> Mapping[str, Operation]:
    """Return the operations of a result's suite by name; the default suite's if it names none."""
    if suite is None:
        return _of_default()
    return {
        each.name: Operation(
            each.name, title=each.title, on_host=each.on_host, stages=each.stages, rank=rank
        )
        for rank, each in enumerate(suite.operations)
    }


def in_report_order(suite: SuiteInfo | None) -> list[Operation]:
    """Return the operations in the order of reports: the `first` ones, then the others."""
    known = operations_of(suite)
    if suite is None:
        module = importlib.import_module(f"bt_bench.suites.{DEFAULT_SUITE}.operations")
        first = list(module.DEFAULTS)
    else:
        first = [known[each.name] for each in suite.operations if each.first]
    return list(dict.fromkeys([*first, *known.values()]))


def context_of(suite: SuiteInfo | None) -> dict[str, object]:
    """Return the context for validating the operations of a result."""
    return {"operations": operations_of(suite)}
