"""The table of commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from bt_bench import __version__
from bt_bench.base.docstrings import docstring_of
from bt_bench.base.extras import needing_imports, needing_run
from bt_bench.cli import completion
from bt_bench.cli.archive import archive
from bt_bench.cli.calibrate import calibrate
from bt_bench.cli.check import check
from bt_bench.cli.compare import compare
from bt_bench.cli.env import env
from bt_bench.cli.exits import reporting_errors, say, visible
from bt_bench.cli.gate.command import gate
from bt_bench.cli.listing import list_
from bt_bench.cli.merge import merge
from bt_bench.cli.overhead import overhead
from bt_bench.cli.patch import patch
from bt_bench.cli.profile.command import profile
from bt_bench.cli.replay import replay
from bt_bench.cli.report import report
from bt_bench.cli.schema import schema
from bt_bench.cli.selfcheck import selfcheck
from bt_bench.cli.show import show
from bt_bench.cli.sweep import sweep
from bt_bench.cli.workload import workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from bt_bench.base.errors import ExitCode
    from bt_bench.protocol import SuiteRef

# By the heading that lists them in the help. Those that measure need the extra `run`.
_MEASURE = "Measure"
_COMMANDS: dict[str, tuple[Callable[..., ExitCode], ...]] = {
    _MEASURE: (sweep, check, replay, calibrate, overhead, gate, profile),
    "Read": (show, compare, report, merge, archive, selfcheck, workload, list_, env, schema, patch),
}

PREFIX = "BT_BENCH_"
SUITE_VARIABLE = f"{PREFIX}SUITE"
# TEST_GPU belongs to the tests, which pass it on to the commands that they run.
VARIABLES_WITHOUT_OPTION = frozenset(PREFIX + name for name in ("COMMIT", "PYTHONPATH", "TEST_GPU"))


class _Shown:
    """A mixin for what Typer prints by itself: help, and errors of the command line.

    In help, types that carry no information are hidden: `<bool>` beside a flag, which takes no
    value, and the type beside an argument.
    """

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments; escape control characters of theirs in errors."""
        try:
            return super().make_context(*args, **kwargs)  # type: ignore[misc]
        except Exception as error:
            # Errors of click, which newer releases of Typer have a copy of, have a `message`.
            if isinstance(message := getattr(error, "message", None), str):
                error.message = visible(message)  # type: ignore[attr-defined]
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, `--help` included."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if isinstance(parameter, TyperArgument):
                parameter.display_type_rich = _no_type  # type: ignore[method-assign]
            elif parameter.is_flag and parameter.metavar is None:
                parameter.metavar = ""
        return parameters


def _no_type(ctx: Any) -> None:  # noqa: ARG001  # as Typer calls it
    return None


class Command(_Shown, TyperCommand):
    """A command of bt-bench, or of a suite."""


class SuiteCommand(Command):
    """A command of a suite. The suite is loaded only when the command is called.

    Args:
        ref: the suite.
        name: name of the command.
        text: its help text.
    """

    def __init__(self, ref: SuiteRef, name: str, text: str | None) -> None:
        super().__init__(name, help=text)
        self._ref = ref

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> Any:
        """Load the suite into this process, and parse the command's arguments.

        From then on this process decides nothing itself: it only runs the suite's command.
        """
        from bt_bench.protocol import load_suite, run_suites_here

        run_suites_here()
        own = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)
        function = load_suite(self._ref).commands()[str(self.name)]
        own.command(self.name, cls=Command)(reporting_errors(function))
        return typer.main.get_command(own).make_context(info_name, args, *rest, **more)


class Commands(_Shown, TyperGroup):
    """The commands of bt-bench, and the commands of the suite that a preceding `--suite` names."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name: bt-bench's own if there is one, else the suite's."""
        return super().get_command(ctx, cmd_name) or _commands_of(ctx).get(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names. A suite is loaded for its names only if `--suite` names it."""
        named = _named_suite(ctx) is not None
        return [*super().list_commands(ctx), *(_commands_of(ctx) if named else ())]


def _named_suite(ctx: Any) -> str | None:
    return ctx.params.get("suite") or os.environ.get(SUITE_VARIABLE) or None


def _commands_of(ctx: Any) -> dict[str, SuiteCommand]:
    from bt_bench.base.errors import UsageError
    from bt_bench.protocol import DEFAULT_REF, at_suite, find_suite

    named = _named_suite(ctx)
    told: dict[str, str | None] = {}
    ref = DEFAULT_REF
    try:
        if named is not None:
            ref = find_suite(named, Path.cwd())
        told = at_suite(ref, _told_commands, ref)
    except UsageError as error:
        ctx.fail(str(error))
    return {name: SuiteCommand(ref, name, text) for name, text in told.items()}


def _told_commands(ref: SuiteRef) -> dict[str, str | None]:
    """Return the help of each command of a suite, by name. Called where the suite runs."""
    from bt_bench.protocol import load_suite, running

    suite = load_suite(ref)
    with running(suite, "commands"):
        return {name: docstring_of(function) for name, function in suite.commands().items()}


app = typer.Typer(
    name="bt-bench",
    cls=Commands,
    help="Measures and compares kernels of a few microseconds, such as the block-table kernels of "
    "LLM inference engines.",
    epilog="Start with: bt-bench sweep quick",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bt-bench {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001  # its callback prints it
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            metavar="DIR",
            is_eager=True,  # a `--help` after it then lists the suite's commands
            help="Use this suite in the command that follows; adds the suite's own commands.",
            autocompletion=completion.suites,
        ),
    ] = None,
) -> None:
    """Measures and compares kernels of a few microseconds, such as the block-table kernels of LLM
    inference engines.
    """
    _warn_of_unused(ctx)
    if suite is not None:
        before = os.environ.get(SUITE_VARIABLE)
        os.environ[SUITE_VARIABLE] = suite  # where the option of the command looks for it
        ctx.call_on_close(lambda: _restore(before))


def _warn_of_unused(ctx: Any) -> None:
    """Warn about environment variables that start with `BT_BENCH_` but are not used."""
    given = sorted(name for name in os.environ if name.startswith(PREFIX))
    if not given:
        return
    from bt_bench.base.errors import names_hint

    parameters = [p for command in ctx.command.commands.values() for p in command.params]
    known = {str(p.envvar) for p in parameters if p.envvar} | VARIABLES_WITHOUT_OPTION
    for name in given:
        if name not in known:
            hint = names_hint(name, sorted(known))
            say(f"warning: environment variable {name} is not used; {hint}")


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(SUITE_VARIABLE, None)
    else:
        os.environ[SUITE_VARIABLE] = before


for _panel, _functions in _COMMANDS.items():
    _needing = needing_run if _panel == _MEASURE else needing_imports
    for _function in _functions:
        _name = _function.__name__.rstrip("_")
        _command = reporting_errors(_needing(_function))
        _text = docstring_of(_function)
        app.command(_name, cls=Command, help=_text, rich_help_panel=_panel)(_command)
