"""A gate of tiny cases, and who hears its progress."""

from __future__ import annotations

from bt_bench.config.spec import CaseSpec, SweepSpec
from bt_bench.names import Operation
from bt_bench.results.plan import Plan
from bt_bench.workloads.parameters import UniformParameters

NAMES = ("first", "second")


class Quiet:
    """Keeps what it hears."""

    def __init__(self):
        self.phases, self.done = [], []

    def phase(self, what):
        self.phases.append(what)

    def processes(self, done, total):
        self.done.append((done, total))

    def look(self, look):
        self.phases.append(f"look {look.rounds}")


def spec_of(names=NAMES, cases=("one",), **gate):
    parameters = UniformParameters(workload="uniform", requests=2, tokens=4)
    return SweepSpec(
        name="tiny",
        variants=list(names),
        operations=[Operation.STAGE],
        plan=Plan(hang_seconds=5.0),
        cases=[CaseSpec(name=name, parameters=parameters) for name in cases],
    )
