"""Which variants are the same code in two revisions, so that timing them could show nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bt_bench.catalogue import VariantEntry
from bt_bench.config.schema import SweepSpec
from bt_bench.errors import UsageError
from bt_bench.gating.live import Sameness
from bt_bench.gating.sides import Side
from bt_bench.static.census import take_census
from bt_bench.tasks import Hello


def find_sameness(base: Side, head: Side, spec: SweepSpec, hello: Hello) -> Sameness:
    """Compares files first, and what differs as compiled for the GPU that is there.

    Without a GPU only equal files count.
    """
    pairs = list(zip(base.entries, head.entries, strict=True))
    code = {old.name for old, new in pairs if old.source_sha256() == new.source_sha256()}
    changed = [(old, new) for old, new in pairs if old.name not in code]
    if not changed or hello.device == "cpu" or not hello.environment.gpus:
        return Sameness(frozenset(code))
    target = "sm_" + hello.environment.gpus[0].capability.replace(".", "")
    try:
        return _compiled(spec, changed, target, code)
    except UsageError as error:
        warning = f"binaries of both revisions could not be compared, so all is timed: {error}"
        return Sameness(frozenset(code), warnings=(warning,))


def _compiled(
    spec: SweepSpec,
    changed: Sequence[tuple[VariantEntry, VariantEntry]],
    target: str,
    code: set[str],
) -> Sameness:
    from bt_bench.static.judging import equal_binaries, equal_host_code

    old = take_census(spec, [pair[0] for pair in changed], [target])
    new = take_census(spec, [pair[1] for pair in changed], [target])
    binaries = set()
    for entry, head in changed:
        places = [(case.name, operation) for case in spec.cases for operation in spec.operations]
        equal = {
            (entry.name, case, operation)
            for case, operation in places
            if equal_binaries(old, new, entry.name, case, operation)
        }
        binaries |= equal
        # Host code in C is no part of a census, which has syntax trees of Python.
        native = entry.native_sha256() == head.native_sha256()
        if len(equal) == len(places) and native and equal_host_code(old, new, entry.name):
            code.add(entry.name)
    return Sameness(frozenset(code), frozenset(binaries))
