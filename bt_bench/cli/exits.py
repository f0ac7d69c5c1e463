"""The conversion of exceptions into messages and exit codes, for all commands."""

from __future__ import annotations

import errno
import functools
import io
import os
import signal
import sys
import traceback
import unicodedata
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn, ParamSpec, TextIO

import typer

from bt_bench.base.errors import BtBenchError, ExitCode, ForeignCodeError, of_system

Parameters = ParamSpec("Parameters")

_CONTROL = ("Cc", "Cf", "Zl", "Zp")
_GONE = (errno.EPIPE,)
# Windows has no SIGHUP.
_HANGUP = getattr(signal, "SIGHUP", None)
_ENDING = tuple(filter(None, (signal.SIGINT, signal.SIGTERM, _HANGUP)))


def with_exit_codes(run: Callable[[], object]) -> None:
    """Run the command line, and exit with a code of its own whatever fails around a command.

    Python would exit with 1, the code of a regression, if for example the help cannot be printed.
    """
    sys.stdout = _present(sys.stdout, swallow=_GONE)
    # What cannot be said there changes no exit code, such as on a full disk.
    sys.stderr = _present(sys.stderr, swallow=None)
    try:
        try:
            run()
        finally:
            sys.stdout.flush()
    except OSError as error:
        _drop_output(sys.stdout)  # or Python would fail to write it once more
        say(f"error: {of_system(error)}")
        sys.exit(ExitCode.USAGE)
    except Exception:
        traceback.print_exc()
        say("internal error; please report it with the output above")
        sys.exit(ExitCode.INTERNAL)


def reporting_errors(command: Callable[Parameters, ExitCode]) -> Callable[Parameters, None]:
    """Wrap a command to exit with its exit code and to print errors as messages."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        # A CI system cancels with SIGTERM, and a closed terminal sends SIGHUP: end as on Ctrl-C,
        # with results on disk. Under nohup SIGHUP is ignored, and stays ignored.
        for number in _ENDING:
            if number != _HANGUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        try:
            # Commands of suites need not return anything.
            code = command(*args, **kwargs) or ExitCode.OK
            sys.stdout.flush()
        except BtBenchError as error:
            code = error.exit_code
            for line in str(error).splitlines():
                say(f"error: {line}")
            if isinstance(error, ForeignCodeError):
                sys.stderr.flush()
                os._exit(code)  # skips every exit handler that foreign code registered
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
            say("interrupted")
        except typer.Exit:
            raise
        except OSError as error:
            code = ExitCode.USAGE
            say(f"error: {of_system(error)}")
        except BaseException:
            code = ExitCode.INTERNAL
            traceback.print_exc()
            say("internal error; please report it with the output above")
        raise typer.Exit(int(code))

    return run


def say(text: str) -> None:
    """Print a message on stderr, on a line of its own."""
    print(f"bt-bench: {visible(text)}", file=sys.stderr, flush=True)


def visible(line: str) -> str:
    """Return a line with control characters escaped, to keep a terminal from obeying them.

    These include characters that change the direction of text or break lines.
    """
    return "".join(
        character
        if character == "\t" or unicodedata.category(character) not in _CONTROL
        else ascii(character)[1:-1]
        for character in line
    )


def _interrupt(_signum: int, _frame: FrameType | None) -> NoReturn:
    # A second signal must not interrupt writing that the first one has started.
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _present(stream: TextIO | None, swallow: Collection[int] | None) -> TextIO:
    """Return a stream that exists and ignores errors, such as a closed pipe.

    The reader of stdout may go away, as in `| head`. The command then continues and ends with its
    proper exit code.

    Args:
        stream: stdout or stderr.
        swallow: numbers of the errors to ignore; `None`: all.
    """
    if stream is None:  # it was closed before the program began
        return Path(os.devnull).open("w", encoding="utf-8")
    if swallow is not None and stream.isatty():
        swallow = (*swallow, errno.EIO)  # a closed terminal; of a file it is a broken disk
    stream.write = _swallowing(stream, stream.write, swallow)  # type: ignore[method-assign]
    stream.flush = _swallowing(stream, stream.flush, swallow)  # type: ignore[method-assign, assignment]
    return stream


def _swallowing(
    stream: TextIO, method: Callable[..., int | None], swallow: Collection[int] | None
) -> Callable[..., int]:
    def call(*args: str) -> int:
        try:
            return method(*args) or 0
        except OSError as error:
            if swallow is not None and error.errno not in swallow:
                raise
            _drop_output(stream)
            return len(args[0]) if args else 0

    return call


def _drop_output(stream: TextIO) -> None:
    """Let the rest of a stream's output go nowhere; one in memory has nothing to write it to."""
    with suppress(io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
