"""From exceptions to messages and exit codes: the same for every command."""

from __future__ import annotations

import functools
import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, ParamSpec

import typer

from bt_bench.errors import BtBenchError, ExitCode

Parameters = ParamSpec("Parameters")


def reporting_errors(command: Callable[Parameters, ExitCode]) -> Callable[Parameters, None]:
    """A command that ends the program with its exit code, and with a message on an error."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        # A CI system cancels with SIGTERM: end as on Ctrl-C, with what there is on disk.
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            code = command(*args, **kwargs)
            sys.stdout.flush()
        except BtBenchError as error:
            code = error.exit_code
            for line in str(error).splitlines():
                print(f"bt-bench: error: {line}", file=sys.stderr)
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
            print("bt-bench: interrupted", file=sys.stderr)
        except BrokenPipeError:
            # The reader of stdout has gone, as in `| head`: nothing is left to say.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = ExitCode.OK
        except typer.Exit:
            raise
        except Exception:
            code = ExitCode.INTERNAL
            traceback.print_exc()
            print("bt-bench: internal error; please report it with the above", file=sys.stderr)
        raise typer.Exit(int(code))

    return run


def _interrupt(_signum: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
