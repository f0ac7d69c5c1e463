"""Figures that the help shows as defaults are those of the code, which the help does not import."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from bt_bench.analysis import Rules
from bt_bench.analysis.power import DEFAULT_DETECT
from bt_bench.analysis.rounds import GATE_MARGIN
from bt_bench.cli.app import app
from bt_bench.cli.profile.static import TARGETS
from bt_bench.results import Quantity
from bt_bench.runs import DEFAULT_LOOKS, SCENARIOS
from bt_bench.runs.gate.checkouts import BUILD_SECONDS

RULES = Rules()
MEANT = {
    "check --explore": f"{SCENARIOS[False]}, {SCENARIOS[True]} with --deep",
    "gate --build-timeout": f"{BUILD_SECONDS:g}",
    "gate --threshold": f"{GATE_MARGIN:.1%}; with --against {RULES.advisory_margin:.0%}",
    "gate --detect": f"{DEFAULT_DETECT:.0%}",
    "gate --alpha": f"{RULES.alpha:g}",
    "gate --rounds": ",".join(map(str, DEFAULT_LOOKS)),
    "compare --threshold": f"{RULES.margin:.0%}, between runs {RULES.advisory_margin:.0%}",
    "compare --floor": f"counts 0, times {Quantity.HOST_US.traits.floor_us:g} µs",
    "compare --alpha": f"{RULES.alpha:g}",
    "profile --target": ",".join(TARGETS),
}
NO_FIGURE = {
    "check --seed": "a date as an example",
}


def shown_defaults() -> Iterator[tuple[str, str]]:
    """Yield each option that shows a default in words of its own, with these."""
    for name, command in typer.main.get_command(app).commands.items():
        for option in command.params:
            shown = getattr(option, "show_default", None)
            if isinstance(shown, str):
                yield f"{name} {option.opts[-1]}", shown


def test_every_figure_is_that_of_the_code() -> None:
    figures = {
        name: shown
        for name, shown in shown_defaults()
        if any(letter.isdigit() for letter in shown) and name not in NO_FIGURE
    }
    assert figures == {name: meant.replace("%", "") for name, meant in MEANT.items()}
