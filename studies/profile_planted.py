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
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bt_bench.report import Cell, Document, Section, Table, print_document, render_document

ROOT = Path(__file__).resolve().parent.parent
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

Edit = tuple[str, str, str]
"""A file of `bt_kernels`, a text that occurs in it once, and the replacement."""


@dataclass(frozen=True)
class Named:
    """The first change of a profile, and whether that is the defect."""

    text: str
    right: bool


@dataclass(frozen=True)
class Defect:
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


@dataclass(frozen=True)
class Found:
    """The outcome for a defect; `named` is `None` if it was skipped."""

    name: str
    what: str
    tool: str
    expected: str
    named: str | None
    right: bool | None


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
    args = _parse()
    try:
        args.out.mkdir(parents=True)
    except FileExistsError:
        sys.exit(f"{args.out} exists, and is not overwritten; choose another --out")
    chosen = [defect for defect in DEFECTS if not args.only or defect.name in args.only]
    with tempfile.TemporaryDirectory() as scratch:
        found = list(find(chosen, Kernels(Path(scratch)), args.out.resolve(), has_gpu()))
    text = json.dumps([asdict(each) for each in found], indent=1)
    (args.out / "planted.json").write_text(f"{text}\n", encoding="utf-8")
    page = document(found)
    (args.out / "planted.md").write_text(render_document(page), encoding="utf-8")
    print_document(page)
    return 1 if any(each.right is False for each in found) else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder that does not exist")
    names = [defect.name for defect in DEFECTS]
    parser.add_argument("--only", nargs="+", choices=names, help="these defects alone")
    return parser.parse_args()


def find(defects: Sequence[Defect], kernels: Kernels, out: Path, gpu: bool) -> Iterator[Found]:
    """Plant and profile each defect; yield the outcomes.

    Args:
        defects: the defects to plant.
        kernels: the copy of the kernels to edit.
        out: an existing folder for the profiles.
        gpu: whether the machine has a GPU.
    """
    for defect in defects:
        of_defect = (defect.name, defect.what, defect.tool, defect.expected)
        if defect.tool == "timeline" and not gpu:
            say(f"SKIPPED: {defect.name}: --tool timeline needs a GPU, and there is none here")
            yield Found(*of_defect, None, None)
            continue
        try:
            changes = changes_by(defect, kernels, out)
        except ProfileError as error:
            say(str(error))
            yield Found(*of_defect, str(error).partition("\n")[0], False)
            continue
        named = defect.first_named(changes)
        text = "; ".join(each.text for each in named)
        yield Found(*of_defect, text, all(each.right for each in named))


def changes_by(defect: Defect, kernels: Kernels, out: Path) -> Any:
    """Return the changes of a profile with a defect, as JSON; first profile the shipped kernels.

    Raises:
        ProfileError: if a profile cannot be taken.
    """
    shipped = out / f"shipped-{defect.tool}"
    if not shipped.exists():
        kernels.plant(())
        say(f"profiling {VARIANT} as it is shipped, by --tool {defect.tool}")
        profile(kernels, defect.tool, shipped)
    kernels.plant(defect.edits)
    say(f"profiling {VARIANT} with {defect.name}, by --tool {defect.tool}")
    return profile(kernels, defect.tool, out / defect.name, "--against", str(shipped))["changes"]


class Kernels:
    """A copy of this checkout's kernels, with at most one defect.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "planted.yaml").write_text(CONFIG, encoding="utf-8")

    def plant(self, edits: Sequence[Edit]) -> None:
        """Copy the kernels anew and apply edits; an edit with an empty text appends to the file."""
        copy = self.folder / "kernels"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(ROOT / "kernels", copy, ignore=shutil.ignore_patterns("__pycache__"))
        for name, old, new in edits:
            path = copy / "bt_kernels" / name
            text = path.read_text(encoding="utf-8")
            if old and text.count(old) != 1:
                raise SystemExit(f"{name} has {text.count(old)} times: {old!r}; adapt {__file__}")
            text = text.replace(old, new) if old else text + new
            ast.parse(text)
            path.write_text(text, encoding="utf-8")


def profile(kernels: Kernels, tool: str, out: Path, *options: str) -> Any:
    """Take a profile; return the JSON document that it prints.

    Raises:
        ProfileError: if the command takes too long, or fails (with the end of its output).
    """
    config = kernels.folder / "planted.yaml"
    of_tool = {
        "static": ("--target", "sm_90"),
        "timeline": ("--device", "cuda", "--set", "plan.instances=1"),
    }
    command = [
        *(sys.executable, "-m", "bt_bench", "profile", str(config), "-k", CASE, "--tool", tool),
        *(*of_tool[tool], *options, "--json", "--out", str(out)),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=kernels.folder,
            env=environment(kernels.folder / "kernels"),
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ProfileError(f"{out.name}: no profile after {SECONDS} s") from None
    if done.returncode != 0:
        # The document on stdout has the reason why a variant failed.
        ends = "\n".join(text.strip()[-2000:] for text in (done.stderr, done.stdout))
        raise ProfileError(f"{out.name}: bt-bench profile ended with {done.returncode}\n{ends}")
    return json.loads(done.stdout)


def environment(*folders: Path) -> dict[str, str]:
    """Return the environment of a command that imports from `folders` first.

    It drops the caller's `BT_BENCH_` options, and has kernels compiled rather than interpreted.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("BT_BENCH_")}
    kept.pop("TRITON_INTERPRET", None)
    paths = [*map(str, folders), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def has_gpu() -> bool:
    """Return whether torch finds a GPU; only a subprocess creates a CUDA context."""
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", code], check=False, env=environment())
    return done.returncode == 0


def document(found: Sequence[Found]) -> Document:
    """Return the page with the planted defects and the changes named first."""
    rows = tuple(
        (
            Cell(each.name),
            Cell(each.what),
            Cell(each.tool),
            Cell(each.expected),
            Cell(each.named or "skipped: it needs a GPU"),
            Cell({True: "yes", False: "NO", None: "–"}[each.right]),
        )
        for each in found
    )
    columns = ("Defect", "What was planted", "Tool", "Expected first", "Named first", "Named")
    right = sum(each.right is True for each in found)
    skipped = sum(each.right is None for each in found)
    outcome = f"{right} of {len(found)} defects were named; {skipped} were skipped."
    lead = (
        f"{VARIANT} was profiled as it is shipped, and with each defect against that. A defect is "
        "named if the first change that the profile lists is of it."
    )
    return Document(
        "Planted defects", (lead,), (Section("Defects", (Table(columns, rows, 6), outcome)),)
    )


def say(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
