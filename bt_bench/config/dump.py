"""A `SweepSpec` as a config in YAML, which loads back to an equal one."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq

from bt_bench.config.spec import CaseSpec, SweepSpec
from bt_bench.protocol import SuiteRef
from bt_bench.results import Noun


def dump_config(spec: SweepSpec, folder: Path | None = None) -> str:
    """Return the expanded config as YAML, with every parameter spelled out and unset ones left out.

    Args:
        spec: the config to write.
        folder: the folder that the config will be in; the path of a suite is relative to it.
            `None`: the working directory. Other paths are absolute.
    """
    document = {
        "name": spec.name,
        "description": spec.description,
        "suite": _suite(spec.suite, folder or Path.cwd()),
        "kernels": spec.kernels,
        "variants": _on_one_line(spec.variants),
        "operations": _on_one_line([str(operation) for operation in spec.operations]),
        "plan": _section(spec.plan),
        "gate": _section(spec.gate),
        "cases": [_case(case) for case in spec.cases],
    }
    for optional in ("suite", "kernels", "gate"):
        if not document[optional]:
            del document[optional]
    yaml: Any = YAML()
    yaml.width = 100
    text = io.StringIO()
    yaml.dump(document, text)
    return text.getvalue()


def _suite(suite: SuiteRef, folder: Path) -> str | None:
    """Return a suite's name or path for a config; `None` for the default suite."""
    if suite.folder is not None:
        path = os.path.relpath(suite.folder, folder.resolve())
        return path if path.startswith(".") else f"./{path}"  # a bare name may be a suite's
    return None if suite == SuiteRef() else suite.name


def _section(section: Noun) -> dict[str, Any]:
    values = section.model_dump(mode="json", exclude_none=True)
    return {
        name: _on_one_line(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value != []
    }


def _case(case: CaseSpec) -> dict[str, Any]:
    parameters = case.parameters.model_dump(exclude_none=True)
    for name, value in parameters.items():
        if isinstance(value, list):
            parameters[name] = _on_one_line(value)
    own = {} if case.margin_percent is None else {"margin_percent": case.margin_percent}
    return {"name": case.name, "workload": parameters.pop("workload"), **own, **parameters}


def _on_one_line(items: list[Any]) -> CommentedSeq:
    line = CommentedSeq(items)
    line.fa.set_flow_style()
    return line
