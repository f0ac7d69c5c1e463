"""A gate of tiny cases, and who hears its progress."""

from __future__ import annotations

from bt_bench.config.spec import CaseSpec, SweepSpec
from bt_bench.results.run.plan import Plan
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import UniformParameters

NAMES = ("first", "second")


class Quiet:
    """Keeps what it hears."""

    def __init__(self):
        self.totals, self.phases, self.said, self.done = [], [], [], 0

    def start(self, total, done=0, unit=""):
        self.totals.append(f"{total} {unit}")
        self.done = done

    def phase(self, what, of=""):
        self.phases.append(what)

    def round(self, progress):
        pass

    def worker_replaced(self, why):
        pass

    def advance(self, report=None):
        self.done += 1

    def say(self, text):
        self.said.append(text)


class Impatient(Quiet):
    """Breaks off after so many units of work, as Ctrl-C does."""

    def __init__(self, units):
        super().__init__()
        self.units = units

    def advance(self, report=None):
        super().advance(report)
        if self.done == self.units:
            raise KeyboardInterrupt


def spec_of(names=NAMES, cases=("one",), **gate):
    parameters = UniformParameters(workload="uniform", requests=2, tokens=4)
    return SweepSpec(
        name="tiny",
        variants=list(names),
        operations=[ops.STAGE],
        plan=Plan(hang_seconds=5.0),
        cases=[CaseSpec(name=name, parameters=parameters) for name in cases],
    )
