"""What is seen of a scenario, and what decides which scenarios a variant gets."""

from __future__ import annotations

import pytest
import torch

from bt_bench.protocol import Source, default_suite
from bt_bench.results import ReasonCode
from bt_bench.worker.checking.own_code import numbers_in
from bt_bench.worker.checking.playing import play, survey
from bt_bench.worker.tasks.failures import ArmFailedError
from bt_bench.worker.tasks.plays import Play
from bt_kernels.variants.fused import Variant as Fused
from bt_kernels.variants.reference import Variant as Reference

CPU = torch.device("cpu")
SUITE = default_suite()


def scenario(number: int) -> object:
    explorer = SUITE.explorer()
    assert explorer is not None
    return explorer.scenario(Source(0, number, Fused.features))


def test_a_right_variant_sees_what_the_reference_sees() -> None:
    task = Play((scenario(0), scenario(4)))
    expected = play(task, SUITE, None, None, CPU)
    found = play(task, SUITE, "fused", Fused, CPU)
    assert [one.digests for one in found] == [one.digests for one in expected]
    assert all(one.reason is None for one in found)


def test_whole_contents_are_given_for_one_call() -> None:
    (played,) = play(Play((scenario(0),), whole=1), SUITE, None, None, CPU)
    assert played.whole is not None
    assert set(played.whole) == set(played.digests[1])
    assert played.whole["block_tables[0]"].dtype.name == "int64"  # type: ignore[union-attr]


def test_an_exception_ends_a_scenario() -> None:
    class Raising(Reference):
        def apply_staged_writes(self) -> None:
            raise RuntimeError("not today")

    (played,) = play(Play((scenario(0),)), SUITE, "raising", Raising, CPU)
    assert played.reason is not None
    assert played.reason.code is ReasonCode.RAISED
    assert "not today" in played.reason.message


def test_survey() -> None:
    class Own(Fused):
        """A variant whose file is this one: 12345."""

        def limit(self) -> int:
            return 12_345

    found = survey(SUITE, {"fused": Fused, "own": Own})
    assert found["fused"].features >= Fused.features
    assert "captured_steps" in found["fused"].features
    assert 12_345 in found["own"].sizes
    assert 12_345 not in found["fused"].sizes
    assert found["fused"].sizes


NAMED_SIZE = 77_000 + 1


class OfNames(Fused):
    """Its module has a number with a name."""

    def staged_at(self) -> int:
        return NAMED_SIZE


def test_numbers_in() -> None:
    text = "a = 1 << 12\nb = 16 * 1024 + 1\nc = 2 ** 8 // 3\nd = 2**99\ne = 1 << -1\nf = 7 // 0\n"
    assert numbers_in(text, {}) >= {4096, 16384, 16385, 256, 85, 7}
    assert max(numbers_in(text, {})) <= 2**20
    assert numbers_in("x = True; y = 1.5; z = 'abc'", {}) == set()


def test_numbers_have_names_and_bits_are_none() -> None:
    assert numbers_in("x = 1 << BITS; y = SIZE", {"BITS": 15, "SIZE": 77, "OTHER": 99}) == {
        2**15,
        77,
    }
    assert numbers_in("x = y >> 40", {}) == set()


def test_names_of_numbers_are_those_of_the_variants_module() -> None:
    assert NAMED_SIZE in survey(SUITE, {"own": OfNames})["own"].sizes


class Unreadable(Fused):
    """Nobody can say what features it has."""

    features = property(lambda self: ())


def test_a_variant_that_cannot_be_surveyed_fails_alone() -> None:
    with pytest.raises(ArmFailedError) as failed:
        survey(SUITE, {"fused": Fused, "bad": Unreadable})
    assert failed.value.arm == "bad"
