"""What a report says before its tables: what was checked, and whether times are resolved."""

from __future__ import annotations

from support.factories import make_case, make_environment, make_failed_case, make_result

from bt_bench.report.run.arranged import arrange
from bt_bench.report.run.document import run_document
from bt_bench.report.run.facts import measured_on, run_facts
from bt_bench.results import Condition, Harm
from bt_bench.results.run.nouns import Quantity
from bt_bench.suites.block_tables import operations as ops


def checked(*results) -> list[str]:
    return [
        fact for fact in run_facts(arrange(results)) if fact.startswith("Checked before timing")
    ]


def test_what_was_checked_is_counted():
    cases = [make_case("a", num_steps=3), make_case("b")]
    both = make_result("baseline", cases), make_result("fused", cases)
    (fact,) = checked(*both)
    assert "then 2 variants × 2 workloads × 1 operation, 4 comparisons of up to 1 buffer" in fact
    assert fact.endswith("after each of 8 steps. All equal the reference, bit for bit.")
    (fact,) = checked(make_result("baseline", cases[:1]))
    assert "1 variant × 1 workload × 1 operation, 1 comparison of" in fact


def test_what_was_not_equal_is_counted():
    cases = [make_case("a"), make_case("b")]
    failed = make_result("fused", [cases[0], make_failed_case("b")])
    (fact,) = checked(make_result("baseline", cases), failed)
    assert fact.endswith("3 equal the reference, bit for bit; 1 failed.")
    (fact,) = checked(make_result("baseline", [make_failed_case("b")]))
    assert fact.endswith("1 comparison. 0 equal the reference, bit for bit; 1 failed.")


def captions(fast: float, operation=ops.STEP) -> list[str]:
    """Of a run without a GPU whose second variant stages so much faster."""
    cpu = make_environment("cpu")

    def result(name, factor):
        noise = [0.01 * (n % (len(name) - 1)) for n in range(60)]
        samples = {Quantity.STAGE_US: [[(10 + each) * factor] for each in noise]}
        return make_result(name, [make_case("a", operation, samples)], environment=cpu)

    document = run_document([result("baseline", 1.0), result("fused", fast)])
    texts = [block for section in document.sections for block in section.blocks]
    return [text for text in texts if isinstance(text, str) and text.startswith("Staging times")]


def test_times_that_tell_nothing_apart_say_so():
    (unresolved,) = captions(1.0)
    assert unresolved.endswith("per step; no difference between these times is resolved:")
    (resolved,) = captions(0.5)
    assert resolved.endswith("launches per step:")


def test_limits_and_conditions_of_the_process_are_told():
    condition = Condition(
        name="MPS (/mps)", effect="others may run", remedy="end it", harm=Harm.NOTED
    )
    environment = make_environment(
        cpu_count=192,
        cpu_affinity=192,
        cpu_quota=4.0,
        memory_limit_bytes=16 * 2**30,
        conditions=[condition],
        commit=None,
        commit_unknown="git: fatal: dubious\n  git config x",
    )
    texts = measured_on([make_result("baseline", environment=environment)])
    assert (
        "Warning: the commit of the sources is not recorded: git: fatal: dubious git config x"
    ) in texts
    assert "Warning: MPS (/mps): others may run; end it." in texts
    assert (
        "Control groups limit the process to 4 CPUs (the host has 192) and to 16.00 GiB of memory."
    ) in texts
    plain = measured_on([make_result("baseline")])
    assert not any("Control groups" in text or "Warning" in text for text in plain)
