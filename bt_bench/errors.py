"""The errors and exit codes for users' code; `bt_bench.base.errors` defines them."""

from bt_bench.base.errors import BtBenchError, ExitCode, NotComparableError, UsageError

__all__ = ["BtBenchError", "ExitCode", "NotComparableError", "UsageError"]
