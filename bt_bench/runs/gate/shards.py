"""One of several shards of a gate, and the verdicts of all of them together.

A shard judges the cases that `--shard K/N` gives it, on its share of the gate's alpha. So it stops
by itself, whatever the others find, and its verdicts are final: putting shards together retests
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bt_bench.analysis import (
    Judged,
    Judgement,
    Power,
    Sought,
    machine_text,
    overall_ratios,
    power_of,
)
from bt_bench.base.errors import counted, listed
from bt_bench.results import Asked, Division, GateArm, Recording, Shard
from bt_bench.runs.gate.lost import Lost
from bt_bench.runs.gate.trees import Tree


@dataclass(frozen=True)
class OwnShard:
    """The shard that a gate is.

    Args:
        division: the division of all cases of the whole gate.
        asked: the options that all shards have.
    """

    division: Division
    asked: Asked

    @property
    def share(self) -> float:
        """The share of the gate's figures, since each case has equally many; above zero."""
        return len(self.division.own) / len(self.division.cases)

    def own_lost(self, lost: Lost) -> Lost:
        """Return the parts of the base's config that this shard reports to be lost.

        A case that the head's config lacks is in no shard; the first one with a case reports it.
        """
        shards = {case.name: case.shard for case in self.division.cases}
        first = min(shards.values())
        own = (place for place in lost.places if shards.get(place[1], first) == self.division.index)
        return replace(lost, places=tuple(own))

    def marked(self, header: Recording, base: Tree, head: Tree) -> Recording:
        """Return the recording of this shard, still without rounds."""
        arms = {
            arm: revision.model_copy(
                update={"changes": tree.changes, "places": sorted(map(str, tree.location.places))}
            )
            for arm, revision in header.arms.items()
            for tree in [head if arm is GateArm.HEAD else base]
        }
        told = {"arms": arms, "shard": self.division.shard, "asked": self.asked}
        return header.model_copy(update=told)


def shard_scope(shard: Shard) -> str:
    """Return the sentence that the report of a shard has about the others."""
    return (
        f"This is shard {shard.text} of a gate of {counted(shard.cases, 'case')}: its verdicts are "
        "corrected for the figures of all shards, and nothing is said of the cases of the others. "
        "`bt-bench merge` puts them together."
    )


@dataclass(frozen=True)
class JudgedShard:
    """A shard with its verdicts.

    Args:
        recording: its rounds, and where they were measured.
        judged: its verdicts.
        cases: names of its cases.
    """

    recording: Recording
    judged: Judged
    cases: Sequence[str]

    @property
    def shard(self) -> Shard:
        """The shard."""
        assert self.recording.shard is not None
        return self.recording.shard


def collected(
    shards: Sequence[JudgedShard], cases: Sequence[str], missing: Sequence[str]
) -> Judged:
    """Put the verdicts of shards together; each stays as it is.

    Args:
        shards: at least one, of one gate.
        cases: names of the gate's cases, in the config's order.
        missing: a line for each shard without verdicts.
    """
    first = shards[0].judged
    places = {name: place for place, name in enumerate(cases)}
    judgements = tuple(
        sorted(
            (each for shard in shards for each in shard.judged.judgements),
            key=lambda each: places.get(each.case, len(places)),
        )
    )
    power = _power(shards, judgements)
    # The verdicts stay with their shards, and so do the sentences on their power.
    sufficed = [power.sentence] if power is not None and not power.falls_short else []
    where = dict.fromkeys(machine_text(shard.recording.environment) for shard in shards)
    number, lacks = sum(len(shard.cases) for shard in shards), "; ".join(missing)
    partial = [f"PARTIAL: {lacks}. Nothing is known of these cases."] if missing else []
    whole = (
        f"of {counted(shards[0].shard.cases, 'case')}" if missing else "case" + "s" * (number != 1)
    )
    return Judged(
        title=first.title,
        base=first.base,
        others=tuple(dict.fromkeys(o for shard in shards for o in shard.judged.others)),
        judgements=judgements,
        overall=tuple(overall_ratios(judgements)),
        facts=(
            *sufficed,
            *map(_measured, shards),
            *_of_all(shards, _facts, "In shard"),
        ),
        warnings=tuple(_of_all(shards, lambda shard: shard.judged.warnings, "shard")),
        scope=tuple(_of_all(shards, _scope, "In shard")),
        power=power,
        unseen=" ".join(
            [
                *partial,
                *filter(None, dict.fromkeys(shard.judged.unseen for shard in shards)),
            ]
        ),
        subject=f"{number} {whole} in {counted(len(shards), 'shard')}, {listed(list(where))}",
    )


def _measured(shard: JudgedShard) -> str:
    environment = shard.recording.environment
    gpu = f" ({environment.gpu_label})" if environment.gpu_label else ""
    names = f"{counted(len(shard.cases), 'case')}, {', '.join(shard.cases)}"
    return f"Shard {shard.shard.text} judged {names}, {machine_text(environment)}{gpu}."


def _facts(shard: JudgedShard) -> list[str]:
    power = shard.judged.power
    return [fact for fact in shard.judged.facts if power is None or fact != power.sentence]


def _scope(shard: JudgedShard) -> list[str]:
    return [text for text in shard.judged.scope if text != shard_scope(shard.shard)]


def _of_all(
    shards: Sequence[JudgedShard], texts: Callable[[JudgedShard], Sequence[str]], prefix: str
) -> Iterator[str]:
    """Yield texts once, with the shards in front that have them, if not all have."""
    having: dict[str, list[str]] = {}
    for shard in shards:
        for text in dict.fromkeys(texts(shard)):
            having.setdefault(text, []).append(shard.shard.text)
    for text, names in having.items():
        yield text if len(names) == len(shards) else f"{prefix} {listed(names)}: {text}"


def _power(shards: Sequence[JudgedShard], judgements: Sequence[Judgement]) -> Power | None:
    judging = next((shard.recording.judging for shard in shards if shard.recording.judging), None)
    if judging is None:
        return None
    apart: Mapping[str, str] = {
        name: why for shard in shards for name, why in shard.recording.measured_apart().items()
    }
    power = power_of(judgements, Sought(judging.detect, judging.margin), apart=apart)
    short = {
        shard.shard.text: shard.judged.power
        for shard in shards
        if shard.judged.power is not None and shard.judged.power.falls_short
    }
    if power is None or not short:
        return power
    # One sentence, however many shards there are: it begins every report.
    worst = max(short, key=lambda name: short[name].worst_share)
    beside = ""
    if others := [name for name in short if name != worst]:
        noun = "shard" if len(others) == 1 else "shards"
        beside = f" The same goes, from smaller slowdowns on, for {noun} {listed(others)}."
    return replace(
        power,
        noise=f"in shard {worst} {short[worst].noise}",
        sentence=f"In shard {worst}: {short[worst].sentence}{beside}",
    )
