"""`bt-bench patch`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bt_bench.base.errors import ExitCode
from bt_bench.cli.options import JsonOption, out_option, print_json

if TYPE_CHECKING:
    from bt_bench.upstream import MadePatch, Source

_GIT = ".git"


def patch(
    target: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="vllm==RELEASE",
            help="Make the patches for this release: `vllm==0.33.0`.",
        ),
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            "--source",
            metavar="DIR",
            help="Make them against this copy of the release: the folder that holds `vllm`, of an "
            "installation, an unpacked wheel, or an unpacked source distribution.",
            show_default="the installed vLLM",
        ),
    ] = None,
    out: Annotated[Path | None, out_option("the patches", "vllm-RELEASE-patches")] = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Write patches of vLLM that can be proposed to its maintainers.

    They are made against your own copy, which stays as it is. A copy with tests, as in a source
    distribution, gets tests too. Needs no GPU.

    Examples:
    - `bt-bench patch --for vllm==0.33.0`
    - `bt-bench patch --for vllm==0.33.0 --source vllm-0.33.0 --out patches`
    """
    from bt_bench.upstream import find_source, make_patch

    release, patches = _patches_for(target)
    copy = find_source(source)
    _check_release(copy, release)
    folder = out or Path(f"vllm-{release}-patches")
    _check_new(folder)
    made = [make_patch(each, copy.root, f"vLLM {release}") for each in patches]
    paths = _write(folder, made, release)
    if as_json:
        print_json(_document(copy, release, made, paths))
    else:
        _print_summary(copy, release, made, paths)
    return ExitCode.OK


def _patches_for(target: str) -> tuple[str, Any]:
    """Return the release that `--for` names, and its patches."""
    from bt_bench.base.errors import UsageError
    from bt_bench.upstream import PATCHES, VLLM

    name, _, release = target.partition("==")
    if name.strip() != VLLM or release.strip() not in PATCHES:
        known = ", ".join(f"{VLLM}=={each}" for each in PATCHES)
        raise UsageError(f"--for {target}: there are no patches for it; expected {known}")
    return release.strip(), PATCHES[release.strip()]


def _check_release(copy: Source, release: str) -> None:
    """Refuse another release. Without a version, digests of definitions decide."""
    from bt_bench.base.errors import UsageError
    from bt_bench.upstream import UNKNOWN

    public = copy.release.partition("+")[0]  # wheels of other CUDA releases are 0.33.0+cu130
    if public not in (release, UNKNOWN):
        raise UsageError(
            f"{copy.root} is vLLM {copy.release}; expected {release}, which --for names: "
            f"pip download vllm=={release} --no-deps, and unpack it for --source"
        )


def _check_new(folder: Path) -> None:
    from bt_bench.base.errors import UsageError

    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} exists already; pass a new folder by --out DIR, or remove it")


def _write(folder: Path, made: list[MadePatch], release: str) -> list[Path]:
    from bt_bench.base import write_text
    from bt_bench.base.errors import UsageError
    from bt_bench.upstream import file_name, file_text

    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from None
    paths = []
    for number, each in enumerate(made, start=1):
        paths.append(folder / file_name(number, each.patch))
        write_text(paths[-1], file_text(each, release))
    return paths


def _document(
    copy: Source, release: str, made: list[MadePatch], paths: list[Path]
) -> dict[str, Any]:
    """Return the document of `--json`."""
    patches = [
        {
            "name": each.patch.name,
            "subject": each.patch.subject,
            "path": str(path),
            "added": each.added,
            "added_to_tests": each.added_to_tests,
            "removed": each.removed,
            "files": [
                {"path": file.file, "added": file.added, "removed": file.removed}
                for file in each.files
            ],
            "left_out": list(each.left_out),
            "apply": _apply_command(copy.root, path),
        }
        for each, path in zip(made, paths, strict=True)
    ]
    return {"schema_version": 1, "release": release, "source": str(copy.root), "patches": patches}


def _print_summary(copy: Source, release: str, made: list[MadePatch], paths: list[Path]) -> None:
    print(f"vLLM {release} in {copy.root}: {len(made)} patches")
    for each, path in zip(made, paths, strict=True):
        print(f"  {path}")
        print(f"    {each.patch.subject}")
        code = each.added - each.added_to_tests
        print(f"    lines: {code} added, {each.added_to_tests} to tests, {each.removed} removed")
    for file in (file for each in made for file in each.left_out):
        print(f"  left out: {file}, which this copy does not have")
    print("Read them first; none has been run in an engine by us.")
    for number, path in enumerate(paths):
        print(f"{'Next:' * (number == 0):<9}{_apply_command(copy.root, path)}")


def _apply_command(root: Path, path: Path) -> str:
    """Return the command that applies a patch.

    In a folder below the top of a work tree, such as an environment in a checkout, git would look
    for the files at the top, and skip them without a word. `--directory` keeps it from that.
    """
    root, path = root.resolve(), path.resolve()
    words = ["git", "-C", str(root), "apply", str(path)]
    top = next((folder for folder in (root, *root.parents) if (folder / _GIT).exists()), root)
    if top != root:
        below = f"--directory={root.relative_to(top)}"
        words = ["git", "-C", str(top), "apply", below, str(path)]
    return shlex.join(words)
