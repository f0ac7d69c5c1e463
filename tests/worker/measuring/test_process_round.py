"""What one process of a gate measures: every unit, in turns, and nothing that was not asked for."""

from __future__ import annotations

import gc
import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bt_bench.config.spec import CaseSpec
from bt_bench.results import RoundKind
from bt_bench.results.run.metrics import metric_of
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.plan import Plan
from bt_bench.results.run.series import series_of
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import UniformParameters
from bt_bench.variants.catalogue import find_variants, load, load_apart
from bt_bench.worker.measuring import process_round
from bt_bench.worker.measuring.bench import CpuBench
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.rounds import RoundRecorder, Turn
from bt_bench.worker.measuring.timing import Rounds
from bt_bench.worker.process.executor import Executor, LocalRunner
from bt_bench.worker.tasks.tasks import MeasureRound, PrepareRound, RoundUnit

SIZES = {"max_num_reqs": 4, "max_num_batched_tokens": 16, "max_model_len": 64}
PLAN = Plan(rounds=10, warmup_rounds=0, instances=1, control=False, precision_percent=0.0)
STAGE_US = series_of(Quantity.STAGE_US)


def unit(name, variants=("baseline", "fused"), series=(STAGE_US,)):
    parameters = UniformParameters(workload="uniform", requests=2, tokens=4, **SIZES)
    return RoundUnit(CaseSpec(name=name, parameters=parameters), ops.STAGE, series, variants)


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.setattr(process_round, "WARM_SECONDS", 0.0)
    classes = {name: load(find_variants()[name]) for name in ("baseline", "fused")}
    return LocalRunner(
        Executor({name: [variant] for name, variant in classes.items()}, CpuBench(), PLAN)
    )


def test_every_variant_of_every_unit_has_a_value(runner):
    units = (unit("one"), unit("two", variants=("fused",)))
    frozen = gc.get_freeze_count()
    runner.run(PrepareRound(units), ["baseline", "fused"])
    values = runner.run(MeasureRound(units), ["baseline", "fused"]).value.values
    found = {(v.case, v.variant, metric_of(v.series).name) for v in values}
    assert found == {
        ("one", "baseline", "stage_us"),
        ("one", "fused", "stage_us"),
        ("two", "fused", "stage_us"),
    }
    assert all(value.value > 0 for value in values)
    # It stays out of collections, but for the little of it that has been freed by now.
    assert gc.get_freeze_count() > frozen / 2 > 0


def test_variants_that_take_no_part_are_left_out(runner):
    values = runner.run(
        MeasureRound((unit("one"), unit("two", ("fused",)))), ["baseline"]
    ).value.values
    assert [(v.case, v.variant) for v in values] == [("one", "baseline")]


def test_a_series_that_the_device_cannot_take_has_no_value(runner):
    wanted = (unit("one", series=(series_of(Quantity.GPU_US),)),)
    assert runner.run(MeasureRound(wanted), ["fused"]).value.values == ()


def test_what_was_prepared_is_measured_and_not_prepared_again(runner, monkeypatch):
    units = (unit("one"),)
    runner.run(PrepareRound(units), ["fused"])
    monkeypatch.setattr(process_round, "_set_up", None)
    assert len(runner.run(MeasureRound(units), ["fused"]).value.values) == 1


def test_units_take_turns(runner, monkeypatch):
    """Ten rounds of two arms, two by two; what disturbs one pass leaves the others."""
    passes = []
    run = Rounds.run

    def noted(self, on_round):
        stopped = run(self, on_round)
        passes.append((self._window.case, stopped.rounds))
        return stopped

    units = (unit("one"), unit("two"))
    arms = ["baseline", "fused"]
    runner.run(PrepareRound(units), arms)
    monkeypatch.setattr(Rounds, "run", noted)
    runner.run(MeasureRound(units), arms)
    assert [rounds for _, rounds in passes] == [2] * 10
    turns = [sorted(case for case, _ in passes[i : i + 2]) for i in range(0, 10, 2)]
    assert turns == [["one", "two"]] * 5


def test_each_turn_has_one_copy_of_the_code_and_all_copies_have_as_many(monkeypatch):
    monkeypatch.setattr(process_round, "WARM_SECONDS", 0.0)
    entries = {name: find_variants()[name] for name in ("baseline", "fused")}
    copies = {name: [load_apart(entry) for _ in range(2)] for name, entry in entries.items()}
    plan = PLAN.model_copy(update={"instances": 4, "rounds": 16})
    ran = []
    keep = Rounds._keep

    def noted(self, index, turn, taken):
        ran.append((turn.instance, [type(arm.variant) for arm in turn.arms]))
        keep(self, index, turn, taken)

    runner = LocalRunner(Executor(copies, CpuBench(), plan))
    units = (unit("one"),)
    runner.run(PrepareRound(units), list(copies))
    monkeypatch.setattr(Rounds, "_keep", noted)
    runner.run(MeasureRound(units), list(copies))
    number = {one: place for of_arm in copies.values() for place, one in enumerate(of_arm)}
    numbers = [{number[one] for one in classes} for _, classes in ran]
    assert numbers == [{turn % 2} for turn in range(8) for _ in range(2)]
    assert [instance for instance, _ in ran[::2]] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_method_that_an_object_gets_of_its_own_is_told(runner):
    units = (unit("one"),)
    runner.run(PrepareRound(units), ["baseline", "fused"])
    ready = runner._executor._ready_round(units, ["baseline", "fused"])
    assert ready.newly_hidden() == []
    (arm,) = [arm for arm in ready._units[0].window.instances[0] if arm.name == "fused"]
    arm.variant.apply_staged_writes = lambda: None
    arm.variant.more = lambda: None  # hides nothing
    assert ready.newly_hidden() == ["fused: apply_staged_writes"]


class Several:
    def plain(self): ...

    @staticmethod
    def static(): ...

    @classmethod
    def of_class(cls): ...

    @property
    def value(self):
        return print

    kind = dict


@pytest.mark.parametrize("name", ["plain", "static", "of_class", "kind"])
def test_what_hides_a_method_is_told_from_the_method(name):
    variant, other = Several(), Several()
    assert not process_round._is_hidden(variant, name)
    setattr(variant, name, getattr(variant, name))
    assert not process_round._is_hidden(variant, name)  # the same does no harm
    for own in (print, lambda: None, other.plain):
        setattr(variant, name, own)
        assert process_round._is_hidden(variant, name)
    assert not process_round._is_hidden(variant, "value")


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="since 3.13 it does no harm")
def test_objects_are_not_asked_for_their_dict(runner):
    units = (unit("one"),)
    runner.run(PrepareRound(units), ["baseline", "fused"])
    ready = runner._executor._ready_round(units, ["baseline", "fused"])
    ready.newly_hidden()
    arms = ready._units[0].window.instances[0]
    assert arms
    for arm in arms:
        referents = gc.get_referents(arm.variant)
        attributes = vars(arm.variant)
        assert not any(each is attributes for each in referents), arm.name


ORDERS = ["abc", "cba", "bca", "acb"]


def samples_of(names, of_steps):
    """Samples of arm `a`, from a function of the arm before it and the step."""
    recorder = RoundRecorder(list(names))
    orders = [[name for name in order if name in names] for order in ORDERS * 3]
    rows = []
    for order in orders:
        turn = Turn(0, [SimpleNamespace(name=name) for name in order])
        index = recorder.add(RoundKind.TIMED, turn, 0.0)
        rows.append([of_steps(recorder.before(index, "a", step), step) for step in range(2)])
    taken = SimpleNamespace(rounds=list(range(len(rows))), samples=rows)
    return process_round._Samples(taken, recorder, "a")


def test_the_first_sample_after_a_rewind_counts_only_where_there_are_few_arms():
    def slow_after_a_rewind(before, step):
        return 20.0 if before is None else 10.0 + step

    assert samples_of("abc", slow_after_a_rewind).value() == 10.5
    assert samples_of("ab", slow_after_a_rewind).value() > 12.0
    assert samples_of("a", lambda before, step: 20.0 if before is None else 10.0).value() == 15.0


def test_what_an_arm_takes_after_an_intruder_is_compared_with_what_it_takes_after_others():
    samples = samples_of("abc", lambda before, step: 12.0 if before == "b" else 10.0)
    assert samples.influence({"b"}) == pytest.approx(math.log(1.2))
    assert samples.influence({"c"}) == pytest.approx(-math.log(1.2), abs=0.1)
    assert samples.influence(()) is None
    assert samples_of("abc", lambda before, step: 0.0).influence({"b"}) is None


def records_of(rounds):
    """What arms `a`, `b` and `c` took in so many rounds, 12 µs behind `b` and 10 µs otherwise."""
    records = Records("abc", CpuBench().around)
    for order in (ORDERS * 3)[:rounds]:
        turn = Turn(0, [SimpleNamespace(name=name) for name in order])
        index = records.recorder.add(RoundKind.TIMED, turn, 0.0)
        for name in order:
            behind = [records.recorder.before(index, name, step) for step in range(2)]
            row = [12.0 if before == "b" else 10.0 for before in behind]
            records.books[name].add_row(index, STAGE_US, row)
    return records


@pytest.mark.parametrize(("rounds", "arms"), [(1, ""), (2, ""), (3, "abc"), (12, "abc")])
def test_values_of_fewer_than_three_rounds_are_left_out(rounds, arms):
    found = process_round._values(unit("one", tuple("abc")), records_of(rounds))
    assert [value.variant for value in found] == list(arms)
    assert all(10.0 <= value.value <= 12.0 for value in found)


@pytest.mark.parametrize(("rounds", "known"), [(3, False), (12, True)])
def test_an_influence_of_fewer_than_three_samples_is_not_told(rounds, known):
    wanted = replace(unit("one", tuple("abc")), intruders=frozenset("b"))
    (found,) = [
        value for value in process_round._values(wanted, records_of(rounds)) if value.variant == "a"
    ]
    assert (found.influence is not None) == known
