"""`bt-bench schema`."""

from __future__ import annotations

from bt_bench.base.errors import ExitCode
from bt_bench.cli.options import print_json


def schema() -> ExitCode:
    """Print the JSON Schema of a result file.

    Example:
    - `bt-bench schema > result.schema.json`
    """
    from bt_bench.results import result_schema

    print_json(result_schema())
    return ExitCode.OK
