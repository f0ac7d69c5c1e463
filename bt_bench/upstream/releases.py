"""The patches for each release, and the text of their files."""

from __future__ import annotations

from bt_bench import __version__
from bt_bench.upstream.changes import MadePatch, Patch
from bt_bench.upstream.input_operations import INPUT_OPERATIONS
from bt_bench.upstream.one_launch import ONE_LAUNCH
from bt_bench.upstream.sampler_flag import SAMPLER_FLAG

PATCHES: dict[str, tuple[Patch, ...]] = {"0.33.0": (SAMPLER_FLAG, ONE_LAUNCH, INPUT_OPERATIONS)}
"""By release. They change different definitions, and each can be applied alone."""

_MACHINE_MADE = """\
A language model wrote the code, the tests and this text, for bt-bench. No person has
reviewed them for vLLM. Before you propose this, vLLM's AGENTS.md asks you to read and
defend every line, to run the tests, to look for duplicates, and to state that AI
assisted you.
"""


def file_name(number: int, patch: Patch) -> str:
    """Return the name of a patch's file; `number` counts from 1."""
    return f"{number:04}-{patch.name}.patch"


def file_text(made: MadePatch, release: str) -> str:
    """Return the file of a patch: its description, then its differences, for `git apply`."""
    patch = made.patch
    code = made.added - made.added_to_tests
    sizes = f"{code} lines added to code and {made.added_to_tests} to tests, {made.removed} removed"
    apply = "In the folder that holds vllm: git apply FILE\n"
    if made.added_to_tests:
        apply += "In a wheel, which has no tests: git apply --include='vllm/*' FILE\n"
    elif made.left_out:
        apply += f"Without its test: this copy has no {', '.join(made.left_out)}\n"
    parts = (
        f"Subject: {patch.subject}\n",
        patch.description,
        f"Measured\n\n{patch.measured}",
        f"Tested\n\n{patch.tested}",
        f"Machine-made\n\n{_MACHINE_MADE}",
        f"{sizes}. Made by bt-bench {__version__}:\nbt-bench patch --for vllm=={release}\n{apply}",
    )
    return "\n".join(parts) + "\n" + "".join(file.text for file in made.files)
