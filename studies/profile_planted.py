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
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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


class Defect(NamedTuple):
    """A defect, and what a profile with it has to name first.

    Args:
        name: name for the command line and for files.
        what: the defect in words.
        tool: tool of `bt-bench profile`.
        edits: edits of the kernels.
        expected: the expected first change, in words.
        first: by list of changes in a profile's JSON, patterns that values of its first entry have
            to match as a whole. The one list of `--tool static` has no name.
    """

    name: str
    what: str
    tool: str
    edits: Sequence[Edit]
    expected: str
    first: Mapping[str, Mapping[str, str]]


class ProfileError(Exception):
    """Raised when a profile cannot be taken."""


def first_named(defect: Defect, changes: Any) -> list[tuple[str, bool]]:
    """Return the first change of each list that the defect is in, and whether it is the defect."""
    found = []
    for name, patterns in defect.first.items():
        lists = changes.get(VARIANT, {}) if name else {"": changes}
        # A list that was not compared is `None`.
        first = next(iter(lists.get(name) or ()), None)
        right = first is not None and all(
            re.fullmatch(pattern, str(first[key])) for key, pattern in patterns.items()
        )
        found.append((_told(first), right))
    return found


def _told(change: Any) -> str:
    if change is None:
        return "no change"
    if "difference_us" not in change:
        return f"{change['where']}: {change['what']}, {change['before']} to {change['after']}"
    name = change["name"]
    if "where" in change:
        name += f" ({change['where']})"
    elif change["next_to"] is not None:
        name += f" {'before' if change['what'] == 'code' else 'of'} {change['next_to']}"
    return f"{name}: {change['kind']}, {change['difference_us']:+.2f} µs"


DEFECTS = (
    Defect(
        "spill",
        "registers of a thread are capped at 24, to have more warps",
        "static",
        (("launches/kernels.py", LAUNCH, f"{LAUNCH}, maxnreg=24"),
         ("launches/paths.py", LAUNCH, f"{LAUNCH}, maxnreg=24")),
        f"bytes that a thread of {KERNEL} spills",
        {"": {"where": KERNEL, "what": "bytes that a thread spills", "more": "True"}},
    ),
    Defect(
        "dependent-load",
        "a row's number of blocks is read again once it is known not to be 0",
        "static",
        (("device_code/parts.py", LENGTH,
          f"{LENGTH}    length = tl.load(num_blocks + row, mask=length > 0, other=0)\n"),),
        f"a longer chain of loads, or one more wait, in {KERNEL}",
        {"": {"where": KERNEL, "what": "dependent loads|waits for loads", "more": "True"}},
    ),
    Defect(
        "copy",
        "the table is copied before it is read",
        "timeline",
        (("fusions.py", BEFORE_LAUNCH,
          f"        self.block_tables[0].clone()\n{BEFORE_LAUNCH}"),),
        "a new copy on the GPU",
        # CUPTI's rows begin with "copy ", those of torch's profiler with "Memcpy ".
        {"rows": {"name": "(copy|Memcpy) .*", "kind": "new", "lane": "device"}},
    ),
    Defect(
        "sleep",
        "the host sleeps 5 µs before it launches",
        "timeline",
        (("fusions.py", BEFORE_LAUNCH, f"        _sleep_5_us()\n{BEFORE_LAUNCH}"),
         ("fusions.py", "import torch\n", "import time\n\nimport torch\n"),
         ("fusions.py", "", SLEEP)),
        "longer host code, and the function that sleeps",
        {"rows": {"what": "code", "kind": "longer|new"},
         "host_calls": {"name": r"(.*\.)?(_sleep_5_us|perf_counter_ns)"}},
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
                texts, rights = zip(
                    *first_named(defect, changes_by(defect, scratch, out)), strict=True
                )
                named, right = "; ".join(texts), all(rights)
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
