"""The errors and exit codes that suites of users import; `bt_bench.base.errors` defines them."""

from bt_bench.base.errors import BtBenchError, ExitCode, UsageError

__all__ = ["BtBenchError", "ExitCode", "UsageError"]
