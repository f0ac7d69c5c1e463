"""A gate on two revisions: equal trees need no timing, different ones are timed round by round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from bt_bench.analysis import (
    DEFAULT_DETECT,
    LOST_FROM_CONFIG,
    Cause,
    Judged,
    Judgement,
    Labels,
    Rules,
    Settled,
    Verdict,
    exact,
    launches_of,
    limit_facts,
    machine_text,
    settled,
    without_new_paths,
)
from bt_bench.base.errors import NotComparableError, counted
from bt_bench.base.names import DeviceChoice, kind_of
from bt_bench.config import SweepSpec
from bt_bench.protocol import Operation, load_suite
from bt_bench.results import (
    Environment,
    GateArm,
    LaunchCensus,
    Recorder,
    Recording,
    SeriesKey,
    launches_in,
    write_recording,
)
from bt_bench.runs.gate.devices import device_warnings, devices_facts, lost_warnings, refuse_unlike
from bt_bench.runs.gate.duration import expected_duration
from bt_bench.runs.gate.loop import DEFAULT_LOOKS, GatePlan, run_gate
from bt_bench.runs.gate.lost import Lost
from bt_bench.runs.gate.processes import MustPartError, ProcessRounds
from bt_bench.runs.gate.recorded import judging_of
from bt_bench.runs.gate.recording import header_of
from bt_bench.runs.gate.sameness import Sameness, compare_trees
from bt_bench.runs.gate.shards import OwnShard, shard_scope
from bt_bench.runs.gate.sides import Culprit, GateSide, RoundsRequest, checkers
from bt_bench.runs.gate.trees import Tree, isolations, measured_alike
from bt_bench.runs.gate.wanted import LAUNCHES, choose_metrics
from bt_bench.runs.preflight import check_conditions
from bt_bench.runs.progress import Progress
from bt_bench.variants import REFERENCE, Isolation, VariantEntry, choose
from bt_bench.worker import Hello, Serve, leased

# Per variant and case, the revisions that cannot run it, and why.
Lacking = Mapping[tuple[str, str], Mapping[str, str]]

# Per variant, operation and case, the launches of each revision.
Launched = Mapping[tuple[str, Operation, str], Mapping[str, LaunchCensus]]


@dataclass(frozen=True)
class GateRequest:
    """The revisions and settings of a gate.

    Args:
        spec: cases, operations, variants, and margins of single cases.
        base: the revision to compare with.
        head: the revision that is judged.
        device: where to measure; the gate never falls back to another device.
        serve: main function of workers.
        patterns: metrics, or patterns of them.
        rules: margin, alpha, correction.
        looks: numbers of rounds after which verdicts are looked for.
        detect: the slowdown to find in any figure, as a share.
        limit: the most rounds, if noise calls for more than the last look has; `None` for twice as
            many.
        workers: number of processes at once; `None`: by cores and memory.
        time_equal: time everything, even if the trees are equal.
        built: whether a build command ran in both trees.
        lost: the parts of the base's config that the head's no longer has.
        recording: file of the rounds, in a folder of the gate.
        command: the command line, for the record.
        on_traceback: takes the traceback of each failure of a variant; `None`: none are sent.
        others: further devices that measure at once, each of them whole rounds.
        shard: the shard of a gate that this is, whose cases `spec` has; `None`: it is a whole one.
    """

    spec: SweepSpec
    base: Tree
    head: Tree
    device: DeviceChoice
    serve: Serve
    recording: Path
    patterns: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)
    looks: tuple[int, ...] = DEFAULT_LOOKS
    detect: float = DEFAULT_DETECT
    limit: int | None = None
    workers: int | None = None
    time_equal: bool = False
    built: bool = False
    lost: Lost = field(default_factory=Lost)
    command: tuple[str, ...] = ()
    on_traceback: Callable[[str], None] | None = None
    others: tuple[DeviceChoice, ...] = ()
    shard: OwnShard | None = None


@dataclass(frozen=True)
class Prepared:
    """A gate before anything is started.

    Args:
        rounds: the request for the process-rounds.
        missing: variants that only one side has, with the label of the side that lacks them.
        facts: facts about the method, for the report.
        unseen: a sentence on the limits of a gate without a GPU; empty on a GPU.
        expected: duration, from the first look to the last that noise may call for; empty if
            nothing is timed.
    """

    rounds: RoundsRequest
    missing: Mapping[str, str]
    facts: tuple[str, ...]
    unseen: str
    expected: str


def prepare(request: GateRequest) -> Prepared:
    """Choose variants and metrics; start nothing.

    Raises:
        UsageError: for a variant that neither side has, and for an unknown metric.
        NotComparableError: if no variant is on both sides, or both run the same files.
    """
    spec = _spec_for(request)
    on_base, on_head = request.base.variants(), request.head.variants()
    choose(spec.variants, on_base | on_head)  # refuses a name that neither side has
    names = [name for name in spec.variants if name in on_base and name in on_head]
    missing = {
        name: request.base.label if name in on_head else request.head.label
        for name in spec.variants
        if name not in names
    }
    if not names:
        raise NotComparableError(
            f"{request.base.label} and {request.head.label} have no variant in common of "
            f"{', '.join(spec.variants)}; nothing can be compared"
        )
    alike = measured_alike(request.base, request.head, names, (on_base, on_head))
    of_base, of_head = isolations(request.base, request.head)
    # The control has build products of its own. If it shared binaries with the base, both would
    # run the same pages of memory, twice as often as the head runs its own, and be faster for it:
    # on an H200's host by 1 to 2 %.
    of_control = replace(of_base, caches=of_base.caches.with_name("caches-twin"))
    sides = {
        GateArm.BASE: _side(request.base, names, on_base, of_base),
        GateArm.HEAD: _side(request.head, names, on_head, of_head),
        GateArm.CONTROL: _side(request.base, names, on_base, of_control),
    }
    metrics = choose_metrics(request.patterns, spec.operations, kind_of(request.device))
    rounds = RoundsRequest(
        spec,
        sides,
        metrics,
        request.device,
        request.serve,
        request.workers,
        on_traceback=request.on_traceback,
        others=request.others,
    )
    expected = ""
    if rounds.subjects:
        plan = plan_of(request, rounds.subjects)  # refuses invalid looks
        expected = expected_duration(rounds, request.looks[0], plan.most_rounds)
    facts = (*_revisions(request), *alike)
    return Prepared(rounds, missing, facts, _unseen(request, rounds), expected)


def run_live_gate(request: GateRequest, progress: Progress) -> Judged:
    """Check, time and judge; missing and wrong variants are judged without timing.

    If both trees are equal, nothing is timed. The recording is complete after every batch of
    rounds, whatever ends the gate.

    Raises:
        UsageError: as `prepare`; for a variant that does not import, and for a device that is not
            there.
        NotComparableError: as `prepare`.
    """
    prepared = prepare(request)
    rounds = prepared.rounds
    if prepared.unseen:
        progress.say(prepared.unseen)
    progress.phase("comparing the trees of both revisions")
    same = _sameness(request)
    if prepared.expected and not same.proved:
        progress.say(f"this gate takes {prepared.expected}")
    measured, took = None, set[int]()
    with ExitStack() as leases:
        with checkers(rounds, progress, equal=same.proved) as workers:
            hello, environments = workers.hello, workers.environments
            if not same.proved:  # first of all, or minutes of checks would be in vain
                refuse_unlike(environments)
                leases.enter_context(leased(environments, progress.say))
                for environment in environments:
                    profiles = bool(rounds.spec.plan.profile_rounds)
                    check_conditions(environment, profiles=profiles)
            failures = workers.failures([] if same.proved else rounds.variants, progress)
            apart = {} if same.proved else workers.changing(progress)
            lacking, launched, warnings = workers.lacking, workers.launches, workers.warnings
        timed = [
            subject
            for subject in ([] if same.proved else rounds.subjects)
            if _why_failed(subject, failures) is None
            and (subject.variant, subject.case) not in lacking
        ]
        if request.shard is not None:  # for what `merge` compares, whether anything is timed or not
            header = _header(request, rounds, rounds.subjects, environments, apart)
            write_recording(request.recording, header)
        if timed:
            source, measured = _timed(
                request, prepared, timed, hello, environments, progress, apart
            )
            failures, took = failures | source.failures, source.devices
            of_devices = [text for each in environments for text in device_warnings(each)]
            own = (*source.warnings, *source.stop_warnings())
            gone = lost_warnings(environments, source.lost)
            warnings = [*of_devices, *gone, *warnings, *own]
    judged = _whole(request, prepared, same, failures, lacking, launched, timed, measured)
    return replace(
        judged,
        subject=f"{counted(len(rounds.spec.cases), 'case')} {machine_text(hello.environment)}",
        facts=(
            *limit_facts(hello.environment),
            *devices_facts(environments, took),
            *judged.facts,
        ),
        warnings=(*judged.warnings, *dict.fromkeys(warnings)),
        scope=() if request.shard is None else (shard_scope(request.shard.division.shard),),
    )


def _header(
    request: GateRequest,
    rounds: RoundsRequest,
    subjects: Sequence[SeriesKey],
    environments: Sequence[Environment],
    apart: Mapping[str, str],
) -> Recording:
    """Return the gate's recording, still without rounds."""
    header = header_of(rounds, environments, list(request.command), apart)
    if subjects:
        plan = plan_of(request, subjects, apart)
        judging = judging_of(plan, request.rules, rounds.spec.margins)
        header = header.model_copy(update={"judging": judging})
    if request.shard is None:
        return header
    return request.shard.marked(header, request.base, request.head)


def _timed(
    request: GateRequest,
    prepared: Prepared,
    subjects: Sequence[SeriesKey],
    hello: Hello,
    environments: Sequence[Environment],
    progress: Progress,
    apart: dict[str, str],
) -> tuple[ProcessRounds, Judged]:
    """Take rounds until every verdict holds; begin again if variants must be measured apart."""
    rounds = prepared.rounds
    margins = rounds.spec.margins
    thresholds = {s: margins[s.case] for s in subjects if s.case in margins}
    source: ProcessRounds | None = None
    while True:
        plan = plan_of(request, subjects, apart)
        header = _header(request, rounds, subjects, environments, apart)
        recorder = Recorder(request.recording, header)
        source = ProcessRounds(
            rounds, subjects, hello, progress, recorder.add, apart, before=source
        )
        try:
            outcome = run_gate(
                source,
                plan,
                request.rules,
                thresholds,
                lambda look: progress.say(look.text),
                source.disturbances,
            )
        except MustPartError as error:
            apart = apart | error.reasons
            for name, why in error.reasons.items():
                progress.say(f"{name} is measured apart, from the beginning: {why}")
            continue
        return source, outcome.judged


def _sameness(request: GateRequest) -> Sameness:
    if request.time_equal:
        return Sameness(False, "Everything is measured, as --time-equal asks for.")
    return compare_trees(request.base, request.head, built=request.built)


def plan_of(
    request: GateRequest, subjects: Sequence[SeriesKey], apart: Mapping[str, str] | None = None
) -> GatePlan:
    """Return the subjects and looks of the gate; refuse invalid looks."""
    labels = request.base.label, request.head.label
    return GatePlan(
        tuple(subjects),
        *labels,
        looks=request.looks,
        title=_title(request),
        apart=dict(apart or {}),
        detect=request.detect,
        limit=request.limit,
        share=1.0 if request.shard is None else request.shard.share,
    )


def _spec_for(request: GateRequest) -> SweepSpec:
    """Add staging to the config where there is no GPU, since nothing else can be timed there."""
    spec = request.spec
    staging = load_suite(spec.suite).staging
    if kind_of(request.device) == "cuda" or staging is None:
        return spec
    operations = list(dict.fromkeys([staging, *spec.operations]))
    return spec.model_copy(update={"operations": operations})


def _unseen(request: GateRequest, rounds: RoundsRequest) -> str:
    """Describe what a gate without a GPU cannot see of its config's operations; "" if nothing."""
    if kind_of(request.device) == "cuda" or all(
        op.traits.on_host for op in request.spec.operations
    ):
        return ""
    timed = "only staging on the host is timed" if rounds.subjects else "nothing is timed"
    launches = "launches are counted, and " if rounds.counted else ""
    return (
        f"No GPU: kernels are interpreted, {launches}{timed}. How long kernels and their launches "
        "take goes unseen."
    )


def _side(
    tree: Tree, names: Sequence[str], found: Mapping[str, VariantEntry], isolation: Isolation
) -> GateSide:
    entries = tuple(found[name] for name in names if name != REFERENCE)
    return GateSide(tree.label, entries, tree.commit, tree.dirty, isolation, tree.named)


def _title(request: GateRequest) -> str:
    return f"Gate {request.spec.name}: {request.head.label} against {request.base.label}"


def _revisions(request: GateRequest) -> tuple[str, ...]:
    return tuple(
        f"{which} is {tree.label}, commit {tree.commit[:12]}{' with changes' * tree.dirty}."
        for which, tree in (("Base", request.base), ("Head", request.head))
    )


def _why_failed(subject: SeriesKey, failures: Mapping[Culprit, str]) -> str | None:
    for operation in (None, subject.operation):
        for case in (None, subject.case):
            why = failures.get((subject.variant, operation, case))
            if why is not None:
                return why
    return None


def _whole(
    request: GateRequest,
    prepared: Prepared,
    same: Sameness,
    failures: Mapping[Culprit, str],
    lacking: Lacking,
    launched: Launched,
    timed: Sequence[SeriesKey],
    measured: Judged | None,
) -> Judged:
    """Return all judgements in the order of the config, timed or not."""
    rounds = prepared.rounds
    judged = measured or Judged(_title(request), request.base.label, (), (), ())
    found = dict(zip(timed, judged.judgements, strict=True))
    judgements = []
    labels = {request.base.label, request.head.label}
    for subject in rounds.subjects_of(request.spec.variants):  # also of those that a side lacks
        why = _why_failed(subject, failures)
        lacks = lacking.get((subject.variant, subject.case), {})
        without = prepared.missing.get(subject.variant)
        if without is not None:
            verdict = Verdict.MISSING, Cause.NO_CASE, f"{without} has no variant {subject.variant}"
            judgements.append(_unmeasured(request, subject, *verdict))
        elif same.proved:
            verdict = Verdict.SAME, Cause.EQUAL_CODE, "both trees hold the same files"
            judgements.append(_unmeasured(request, subject, *verdict))
        elif why is not None:
            judgements.append(_unmeasured(request, subject, Verdict.INVALID, Cause.FAILED, why))
        elif len(lacks) == 1 < len(labels):
            label, what = next(iter(lacks.items()))
            detail = f"{label} {what}"
            judgements.append(_unmeasured(request, subject, Verdict.MISSING, Cause.NO_CASE, detail))
        elif not lacks and subject.metric == LAUNCHES.name:
            counts = launched[subject.variant, subject.operation, subject.case]
            judgements.append(_counted(request, subject, counts))
        elif not lacks:
            judgements.append(found[subject])
    for subject in _lost_subjects(request):
        verdict = Verdict.MISSING, Cause.NO_CASE, LOST_FROM_CONFIG
        judgements.append(_unmeasured(request, subject, *verdict))
    kept, left_out = without_new_paths(judgements)
    return replace(
        judged,
        judgements=tuple(kept),
        others=tuple(dict.fromkeys(judgement.other for judgement in judgements)),
        facts=(*prepared.facts, same.how, *_not_run(lacking, labels), *left_out, *judged.facts),
        warnings=(*judged.warnings, *request.lost.warnings),
        unseen=prepared.unseen,
    )


def _counted(
    request: GateRequest, subject: SeriesKey, counts: Mapping[str, LaunchCensus]
) -> Judgement:
    """Judge the launches of both revisions, whose counts are exact."""
    entry = Labels(request.base.label, request.head.label).entry(subject)
    sides = (launches_in(counts[tree.label]) for tree in (request.base, request.head))
    count = launches_of(*sides)
    entry.base_value, entry.other_value = count.base, count.other
    base, other = count.base or 0.0, count.other or 0.0
    if base and not other:
        # As in a static gate: no result shows that a GPU would do the work.
        detail = f"{entry.other} launches nothing, and {entry.base} {base:g} per step"
        entry.outcome = Settled(Verdict.INVALID, Cause.FAILED, detail)
    else:
        entry.outcome = exact(base, other, count.detail)
    return settled(entry)


def _not_run(lacking: Lacking, labels: Collection[str]) -> Iterator[str]:
    """Yield facts about cases that neither revision can run; there are no judgements on them."""
    for (variant, case), lacks in lacking.items():
        if len(lacks) == len(labels):
            what = next(iter(lacks.values()))
            yield f"{variant} is not run on {case}: it {what}, in both revisions."


def _lost_subjects(request: GateRequest) -> list[SeriesKey]:
    """Return the subjects that the base's config has but the head's does not."""
    spec, places = request.spec, request.lost.places
    staging = load_suite(spec.suite).staging
    # Without a GPU staging is timed, whatever the operations, and it is the same in all of them.
    if kind_of(request.device) == "cpu" and staging is not None:
        cases = [case.name for case in spec.cases]
        gone = (
            (staging, case, variant)
            for _, case, variant in places
            if case not in cases or variant not in spec.variants
        )
        others = (place for place in places if place[0] != staging)
        places = tuple(dict.fromkeys([*gone, *others]))
    # Also of the remaining operations, which have metrics that a lost one may lack.
    operations = dict.fromkeys([*_spec_for(request).operations, *(place[0] for place in places)])
    metrics = choose_metrics(request.patterns, operations, kind_of(request.device))
    return [
        SeriesKey(operation, case, variant, metric.name)
        for operation, case, variant in places
        for metric in metrics[operation]
    ]


def _unmeasured(
    request: GateRequest, subject: SeriesKey, verdict: Verdict, cause: Cause, detail: str
) -> Judgement:
    entry = Labels(request.base.label, request.head.label).entry(subject)
    entry.outcome = Settled(verdict, cause, detail)
    return settled(entry)
