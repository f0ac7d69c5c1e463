"""Plant four defects in the shipped kernels, and check that `bt-bench profile` names each.

    python studies/profile_planted.py --out DIR [--only NAME...]

The defects are a kernel that spills, a kernel with an extra dependent load, a step with an extra
copy, and a step whose host path sleeps 5 µs. `fused` is profiled as shipped, and again with each
defect, `--against` the first profile, without a hint where to look. A defect counts as named if it
causes the first change in the profile. The first two defects are profiled by `--tool static`,
without a GPU. The other two need a GPU for `--tool timeline`; without one, they are reported as
skipped. Writes `planted.md`, `planted.json` and the profiles to DIR. Exits with 1 if a defect is
not named, or its profile fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common import Edit, bt_bench, has_gpu, plant, table, write_report

from bt_bench.report import ABSENT, Document, Section

VARIANT, CASE, KERNEL = "fused", "decode", "gather_slots_kernel"
SECONDS = 240  # timeout of a profile

# With tables of 32 MiB, copying one takes longer than the host needs to start the copy.
CONFIG = f"""\
name: planted
variants: [{VARIANT}]
operations: [gather_slots]
defaults: {{max_num_reqs: 1024, max_num_batched_tokens: 2048, max_model_len: 131072}}
cases:
  - {{name: {CASE}, groups: 1, requests: 128, tokens: 128}}
"""

LAUNCH = "kernel[grid](*arguments, *constants, num_warps=num_warps"
LENGTH = "    length = tl.load(num_blocks + row, mask=row >= 0, other=0)\n"
BEFORE_LAUNCH = "        launches.gather_slots(\n            self, idx_mapping"
# A loop, since `time.sleep(5e-6)` takes some 55 µs on Linux.
SLEEP = """\


def _sleep_5_us() -> None:
    end_ns = time.perf_counter_ns() + 5_000
    while time.perf_counter_ns() < end_ns:
        pass
"""


class Named(NamedTuple):
    """The first change of a profile, and whether that is the defect."""

    text: str
    right: bool


class Defect(NamedTuple):
    """A defect, and a test that a profile has named it.

    Args:
        name: name for the command line and for files.
        what: the defect in words.
        tool: tool of `bt-bench profile`.
        edits: edits of the kernels.
        expected: the expected first change, in words.
        first_named: function that reads the first changes from a profile's JSON.
    """

    name: str
    what: str
    tool: str
    edits: Sequence[Edit]
    expected: str
    first_named: Callable[[Any], Sequence[Named]]


class ProfileError(Exception):
    """Raised when a profile cannot be taken."""


# Tests of a profile's JSON for a defect


def first_figure(*whats: str) -> Callable[[Any], list[Named]]:
    """Return a test that the first changed figure is one of `whats`, grew, and is the kernel's."""

    def read(changes: Any) -> list[Named]:
        if not changes:
            return [Named("no change", False)]
        first = changes[0]
        text = f"{first['where']}: {first['what']}, {first['before']} to {first['after']}"
        return [Named(text, first["where"] == KERNEL and first["what"] in whats and first["more"])]

    return read


def new_copy(changes: Any) -> list[Named]:
    """Test that the first changed row is a new copy on the device."""
    first = _first(changes, "rows")
    # CUPTI's rows begin with "copy ", those of torch's profiler with "Memcpy ".
    is_copy = first is not None and first["name"].startswith(("copy ", "Memcpy "))
    right = is_copy and (first["kind"], first["lane"]) == ("new", "device")
    return [Named(_of_row(first), right)]


def sleeping_host(changes: Any) -> list[Named]:
    """Test that the first changed row is the host's code, and the first call the sleep."""
    first = _first(changes, "rows")
    longer = first is not None and first["what"] == "code" and first["kind"] in ("longer", "new")
    called = _first(changes, "host_calls")
    names = ("_sleep_5_us", "perf_counter_ns")
    sleeps = called is not None and called["name"].rpartition(".")[2] in names
    of_call = "no host call"
    if called is not None:
        of_call = f"{called['name']} ({called['where']}): {called['kind']}"
        of_call += f", {called['difference_us']:+.2f} µs"
    return [Named(_of_row(first), longer), Named(of_call, sleeps)]


def _first(changes: Any, what: str) -> Any:
    """Return the variant's first change; `None` if there is none or it was not compared."""
    found = changes.get(VARIANT, {}).get(what)
    return found[0] if found else None


def _of_row(row: Any) -> str:
    if row is None:
        return "no change"
    name = row["name"]
    if row["next_to"] is not None:
        name += f" {'before' if row['what'] == 'code' else 'of'} {row['next_to']}"
    return f"{name}: {row['kind']}, {row['difference_us']:+.2f} µs"


DEFECTS = (
    Defect(
        "spill",
        "registers of a thread are capped at 24, to have more warps",
        "static",
        (("launches/kernels.py", LAUNCH, f"{LAUNCH}, maxnreg=24"),
         ("launches/paths.py", LAUNCH, f"{LAUNCH}, maxnreg=24")),
        f"bytes that a thread of {KERNEL} spills",
        first_figure("bytes that a thread spills"),
    ),
    Defect(
        "dependent-load",
        "a row's number of blocks is read again once it is known not to be 0",
        "static",
        (("device_code/parts.py", LENGTH,
          f"{LENGTH}    length = tl.load(num_blocks + row, mask=length > 0, other=0)\n"),),
        f"a longer chain of loads, or one more wait, in {KERNEL}",
        first_figure("dependent loads", "waits for loads"),
    ),
    Defect(
        "copy",
        "the table is copied before it is read",
        "timeline",
        (("fusions.py", BEFORE_LAUNCH,
          f"        self.block_tables[0].clone()\n{BEFORE_LAUNCH}"),),
        "a new copy on the GPU",
        new_copy,
    ),
    Defect(
        "sleep",
        "the host sleeps 5 µs before it launches",
        "timeline",
        (("fusions.py", BEFORE_LAUNCH, f"        _sleep_5_us()\n{BEFORE_LAUNCH}"),
         ("fusions.py", "import torch\n", "import time\n\nimport torch\n"),
         ("fusions.py", "", SLEEP)),
        "longer host code, and the function that sleeps",
        sleeping_host,
    ),
)  # fmt: skip


def main() -> int:
    """Plant the defects one after the other; return 1 if one is not named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder that does not exist")
    names = [defect.name for defect in DEFECTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these alone")
    args = parser.parse_args()
    try:
        args.out.mkdir(parents=True)
    except FileExistsError:
        sys.exit(f"{args.out} exists, and is not overwritten; choose another --out")
    chosen = [defect for defect in DEFECTS if defect.name in args.only]
    with tempfile.TemporaryDirectory() as scratch:
        found = list(find(chosen, Path(scratch), args.out.resolve(), has_gpu()))
    write_report(args.out, "planted", document(found), found)
    return 1 if any(each["right"] is False for each in found) else 0


def find(
    defects: Sequence[Defect], scratch: Path, out: Path, gpu: bool
) -> Iterator[dict[str, Any]]:
    """Plant and profile each defect; yield the outcomes.

    Args:
        defects: the defects to plant.
        scratch: a folder for the kernels, the same for all profiles.
        out: an existing folder for the profiles.
        gpu: whether the machine has a GPU.

    Yields:
        The defect in words, with what was `named` first and whether that is `right`; both are
        `None` for a skipped defect.
    """
    for defect in defects:
        named, right = None, None
        if defect.tool == "timeline" and not gpu:
            say(f"SKIPPED: {defect.name}: --tool timeline needs a GPU, and there is none here")
        else:
            try:
                changes = defect.first_named(changes_by(defect, scratch, out))
                named = "; ".join(each.text for each in changes)
                right = all(each.right for each in changes)
            except ProfileError as error:
                say(str(error))
                named, right = str(error).partition("\n")[0], False
        of_defect = {key: getattr(defect, key) for key in ("name", "what", "tool", "expected")}
        yield of_defect | {"named": named, "right": right}


def changes_by(defect: Defect, scratch: Path, out: Path) -> Any:
    """Return the changes of a profile with a defect, as JSON; first profile the shipped kernels.

    Raises:
        ProfileError: if a profile cannot be taken.
    """
    shipped = out / f"shipped-{defect.tool}"
    if not shipped.exists():
        say(f"profiling {VARIANT} as it is shipped, by --tool {defect.tool}")
        profile(scratch, (), defect.tool, shipped)
    say(f"profiling {VARIANT} with {defect.name}, by --tool {defect.tool}")
    options = (defect.tool, out / defect.name, "--against", str(shipped))
    return profile(scratch, defect.edits, *options)["changes"]


def profile(scratch: Path, edits: Sequence[Edit], tool: str, out: Path, *options: str) -> Any:
    """Profile a copy of the kernels with edits; return the JSON document that it prints.

    Raises:
        ProfileError: if the command takes too long, or fails (with the end of its output).
    """
    of_tool = {
        "static": ("--target", "sm_90"),
        "timeline": ("--device", "cuda", "--set", "plan.instances=1"),
    }
    config = scratch / "planted.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    try:
        done = bt_bench(
            *("profile", config, "-k", CASE, "--tool", tool, *of_tool[tool]),
            *(*options, "--json", "--out", out),
            folders=(plant(scratch, edits),),
            cwd=scratch,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ProfileError(f"{out.name}: no profile after {SECONDS} s") from None
    if done.returncode != 0:
        # The document on stdout has the reason why a variant failed.
        ends = "\n".join(text.strip()[-2000:] for text in (done.stderr, done.stdout))
        raise ProfileError(f"{out.name}: bt-bench profile ended with {done.returncode}\n{ends}")
    return json.loads(done.stdout)


def document(found: Sequence[dict[str, Any]]) -> Document:
    """Return the page with the planted defects and the changes named first."""
    told = {True: "yes", False: "NO", None: ABSENT}
    rows = [
        (
            *(each[key] for key in ("name", "what", "tool", "expected")),
            each["named"] or "skipped: it needs a GPU",
            told[each["right"]],
        )
        for each in found
    ]
    columns = ("Defect", "What was planted", "Tool", "Expected first", "Named first", "Named")
    outcomes = [each["right"] for each in found]
    outcome = (
        f"{outcomes.count(True)} of {len(found)} defects were named; {outcomes.count(None)} were "
        "skipped."
    )
    lead = (
        f"{VARIANT} was profiled as it is shipped, and with each defect against that. A defect is "
        "named if the first change that the profile lists is of it."
    )
    sections = (Section("Defects", (table(columns, rows, 6), outcome)),)
    return Document("Planted defects", (lead,), sections)


def say(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
