"""`bt-bench schema`."""

from __future__ import annotations

from bt_bench.errors import ExitCode


def schema() -> ExitCode:
    """Print the JSON Schema of a result file.

    Example:
    - `bt-bench schema > result.schema.json`
    """
    import json

    from bt_bench.results import result_schema

    print(json.dumps(result_schema(), indent=2))
    return ExitCode.OK
