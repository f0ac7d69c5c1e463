"""Time `bt-bench merge` on many made-up cases: seconds, and the most memory that it takes.

The cases are small, a few hundred bytes each, and so is their work: checking them takes most of the
time, and grows with their samples.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from bt_bench.base import compact_json
from bt_bench.results import (
    CONFIG_NAME,
    CaseResult,
    DividedCase,
    Division,
    Environment,
    Method,
    Plan,
    Quantity,
    RunFolder,
    Series,
    Status,
    Tool,
    VariantInfo,
    VariantResult,
    WorkloadRecord,
    write_division,
    write_lines,
)
from bt_bench.results.run.case import Measurement, RoundKind, RoundLog
from bt_bench.runs import MergeRequest, merge

HEAD = "name: made\nvariants: [{}]\noperations: [step]\nplan: {{}}\ncases:\n"


def case_line(name: str, rounds: int) -> str:
    """Return the line of a case with a number of rounds."""
    series = Series(quantity=Quantity.HOST_US, method=Method.HOST_CLOCK)
    taken = [[12.345 + number / 1000] for number in range(rounds)]
    none: list[None] = [None] * rounds
    case = CaseResult(
        key=f"step/{name}",
        case=name,
        operation="step",
        workload=WorkloadRecord(kind="uniform", parameters={"seed": 1}, digest="d", num_steps=1),
        status=Status.OK,
        rounds=RoundLog(
            arms=["baseline"],
            kind=[RoundKind.TIMED] * rounds,
            instance=[0] * rounds,
            place=[0] * rounds,
            seconds=[0.001] * rounds,
            sm_clock_mhz=none,
            discarded=none,
        ),
        measurements=[Measurement(**dict(series), rounds=list(range(rounds)), samples=taken)],
    )
    return compact_json(case.model_dump(mode="json"))


def header_of(variant: str, shard: int, environment: Environment) -> VariantResult:
    """Return a result without cases."""
    return VariantResult(
        run_id=f"made-{shard}",
        created="2026-01-01T00:00:00+00:00",
        complete=True,
        tool=Tool(version="0", command=["bt-bench", "sweep", "made", "--shard", str(shard)]),
        environment=environment,
        config="made",
        plan=Plan(),
        variant=VariantInfo(name=variant, summary="made up", source_sha256="0" * 64),
        cases=[],
    )


def write_shards(folder: Path, cases: int, shards: int, variants: int, rounds: int) -> list[Path]:
    """Write the runs of all shards, and return their folders."""
    environment = Environment.model_validate(
        dict.fromkeys(Environment.model_fields)
        | {"device": "cpu", "python": "3", "platform": "made", "interpreted": True}
        | {"gpu_count": 0, "gpus": [], "bt_bench": "0"}
    )
    names = [f"case-{number:07d}" for number in range(cases)]
    divided = [
        DividedCase(name, f"{number:032x}", number * 7919 % shards + 1)
        for number, name in enumerate(names)
    ]
    template = case_line("NAME", rounds)
    block = "- name: {}\n  workload: uniform\n  requests: 32\n  tokens: 512\n  seed: 1\n"
    folders = []
    labels = [f"variant{number}" for number in range(variants)]
    division = Division(1, shards, None, divided)
    for shard in range(1, shards + 1):
        run = folder / f"shard-{shard}"
        run.mkdir()
        object.__setattr__(division, "index", shard)  # a new one would digest all cases again
        write_division(run, division)
        own = division.names.get(shard, [])
        text = HEAD.format(", ".join(labels)) + "".join(map(block.format, own))
        (run / CONFIG_NAME).write_text(text)
        for label in labels:
            header = header_of(label, shard, environment)
            lines = (template.replace("NAME", name) for name in own)
            shared = header.model_copy(update={"shard": division.shard})
            write_lines(RunFolder(run).result_path(label), shared, lines)
        folders.append(run)
    return folders


def main() -> None:
    """Write shards, merge them, and print a line of figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("cases", 2000), ("shards", 8), ("variants", 2), ("rounds", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        runs = write_shards(place, asked.cases, asked.shards, asked.variants, asked.rounds)
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, began_cpu = time.monotonic(), time.process_time()
        merged = merge(MergeRequest(runs, place / "merged"))
        seconds, cpu_s = time.monotonic() - began, time.process_time() - began_cpu
        most_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size = sum(path.stat().st_size for path in merged.folder.iterdir())
    print(
        f"{asked.cases} cases of {asked.variants} variants in {asked.shards} shards: "
        f"{seconds:.1f} s, {cpu_s:.1f} s of a CPU, {most_kb / 1024:.0f} MiB "
        f"({before_kb / 1024:.0f} MiB before), {size / 1e6:.0f} MB written"
    )


if __name__ == "__main__":
    main()
