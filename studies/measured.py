"""The provenance of figures: commits, machine, versions, and sources of the variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bt_bench.results import VariantResult
from bt_bench.variants import find_variants

CPU = "a CPU"
_SHORT = 7  # characters of a short commit hash


@dataclass(frozen=True)
class Measured:
    """The provenance of figures.

    Args:
        commits: full hashes, sorted; `unknown` for a run without one.
        date: of the last run, as YYYY-MM-DD.
        device: name of the GPU, or `a CPU`.
        cpu: the host's processor.
        torch: version.
        triton: version.
        sources: by variant, the digests of its sources in all runs.
        changed_tree: whether a run had uncommitted changes.
        num_gpus: number of GPUs that took part, counted by UUID, at least 1. A run uses the first
            GPU that it sees.
    """

    commits: Sequence[str]
    date: str
    device: str
    cpu: str
    torch: str
    triton: str | None
    sources: Mapping[str, Sequence[str]]
    changed_tree: bool = False
    num_gpus: int = 1

    @classmethod
    def of(cls, headers: Sequence[VariantResult]) -> Measured:
        """Read the provenance of runs from the headers of their results."""
        env = headers[0].environment
        sources: dict[str, list[str]] = {}
        for header in headers:
            known = sources.setdefault(header.variant.name, [])
            known += [header.variant.source_sha256] * (header.variant.source_sha256 not in known)
        return cls(
            sorted({header.environment.commit or "unknown" for header in headers}),
            max(header.created for header in headers)[:10],
            env.gpus[0].name if env.gpus else CPU,
            f"{env.cpu}, {env.cpu_count} logical CPUs",
            env.torch,
            env.triton,
            sources,
            any(header.environment.dirty for header in headers),
            max(1, len({g.uuid for h in headers for g in h.environment.gpus[:1] if g.uuid})),
        )

    def shown_commits(self) -> str:
        """Return the short commits, phrased for a sentence."""
        found = [commit[:_SHORT] for commit in self.commits]
        changed = " with changes" * self.changed_tree
        return f"commit{'s' * (len(found) > 1)} {' and '.join(found)}{changed}"

    def machine(self) -> str:
        """Return the GPUs and the host's processor."""
        device = f"one {self.device}" if self.num_gpus == 1 else f"{self.num_gpus} {self.device}s"
        return f"{CPU if self.device == CPU else device} ({self.cpu})"

    def sentence(self) -> str:
        """Return the sentence below a table."""
        return (
            f"Of {self.shown_commits()}, {self.date}, on {self.machine()} with torch {self.torch} "
            f"and Triton {self.triton}."
        )

    def changed(self) -> Iterator[str]:
        """Yield the shipped variants whose sources, or package, have changed since."""
        shipped = find_variants()
        for name, digests in sorted(self.sources.items()):
            if name in shipped and set(digests) != {shipped[name].source_sha256()}:
                yield name
