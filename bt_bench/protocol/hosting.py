"""Processes for users' suites: each suite's code runs in its own process, which answers with data.

A process that decides on something, such as the exit code of a command, imports no code of users:
it would have to trust all of it. Functions of bt-bench run in the suite's process and compute the
data that it needs. Suites that come with bt-bench are its own code, and run anywhere.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from bt_bench.base.errors import BtBenchError, NotComparableError, UsageError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from bt_bench.base.processes import Child
    from bt_bench.protocol.refs import SuiteRef

Parameters = ParamSpec("Parameters")
ResultT = TypeVar("ResultT")

_POLL_SECONDS = 1.0
_ERRORS = {kind.__name__: kind for kind in (BtBenchError, NotComparableError, UsageError)}

_here = False
_processes: dict[SuiteRef, _SuiteProcess] = {}


def run_suites_here() -> None:
    """Let users' suites run in this process, which must not decide on anything from then on."""
    global _here
    _here = True


def runs_here(ref: SuiteRef) -> bool:
    """Return whether code of a suite may run in this process."""
    return _here or ref.folder is None


def at_suite(
    ref: SuiteRef,
    function: Callable[Parameters, ResultT],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> ResultT:
    """Call a function where code of a suite may run.

    Args:
        ref: the suite.
        function: a function of a bt-bench module; it returns data that `pack` of
            `bt_bench.base.processes` takes.
        args: its positional arguments, which can be pickled.
        kwargs: its keyword arguments, likewise.

    Raises:
        UsageError: if the suite's code ends its process, or the function refuses its input.
        BtBenchError: for a defect of bt-bench.
    """
    if runs_here(ref):
        return function(*args, **kwargs)
    if ref not in _processes:
        _processes[ref] = _SuiteProcess(ref)
    result: ResultT = _processes[ref].call(function, args, kwargs)
    return result


def end_suite(ref: SuiteRef) -> None:
    """End the process of a suite, if there is one."""
    process = _processes.pop(ref, None)
    if process is not None:
        process.child.kill()


@atexit.register
def _end_all() -> None:
    for ref in list(_processes):
        end_suite(ref)


@dataclass(frozen=True)
class _Returned:
    """The function's result."""

    value: Any


@dataclass(frozen=True)
class _Refused:
    """The class name and the message of an error for the user."""

    kind: str
    text: str


@dataclass(frozen=True)
class _Broke:
    """The traceback of a defect of bt-bench."""

    text: str


class _SuiteProcess:
    """The process of one suite, which runs one function after the other."""

    def __init__(self, ref: SuiteRef) -> None:
        from bt_bench.base.processes import Child

        self._ref = ref
        self.child: Child = Child("process of the suite", _serve)

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        try:
            answer = self._answer((function, args, kwargs))
        except BaseException:
            end_suite(self._ref)  # it may still be working on the request
            raise
        match answer:
            case _Returned():
                return answer.value
            case _Refused():
                raise _ERRORS.get(answer.kind, UsageError)(answer.text)
        raise BtBenchError(f"{answer.text}internal error where a suite runs; please report it")

    def _answer(self, request: Any) -> Any:
        from bt_bench.base.processes import NoDataError

        try:
            self.child.send((Path.cwd(), *request))
            while (answer := self.child.next_message(_POLL_SECONDS)) is None:
                pass
        except (OSError, EOFError):
            why = self.child.how_it_ended()
        except NoDataError as error:
            why = f"it was made to send a message that bt-bench does not send: {error}"
        else:
            if isinstance(answer, _Returned | _Refused | _Broke):
                return answer
            why = f"it was made to send a {type(answer).__name__}"
        raise UsageError(
            f"{self._ref.folder}: code of the suite must leave its process as it is: {why}"
        )


def _serve(connection: Connection) -> None:
    """Run the requested functions until the connection is closed."""
    from bt_bench.base.processes import answer, settle

    settle()
    sys.dont_write_bytecode = True  # in a tree that a gate may compare with another one
    run_suites_here()
    while (answered := _called(connection)) is not None:
        try:
            answer(connection, answered)
        except TypeError as error:  # an object of the suite's own
            answer(connection, _Refused("UsageError", f"a suite must return plain data: {error}"))


def _called(connection: Connection) -> _Returned | _Refused | _Broke | None:
    try:
        request = connection.recv()  # which may load the suite
        if request is None:
            return None
        folder, function, args, kwargs = request
        os.chdir(folder)  # paths are relative to where the user is
        return _Returned(function(*args, **kwargs))
    except EOFError:
        return None
    except BtBenchError as error:
        return _Refused(type(error).__name__, str(error))
    except Exception:
        return _Broke(traceback.format_exc())
