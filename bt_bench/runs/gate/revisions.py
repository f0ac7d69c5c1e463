"""Questions to git about a repository: its top, its revisions, and the files that it tracks."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection
from pathlib import Path

from bt_bench.base import run_git
from bt_bench.base.errors import UsageError

GIT_SECONDS = 600.0  # a checkout of a large repository
# Python and its tools write these for themselves, where nobody has told git to ignore them.
CACHES = frozenset(
    {"__pycache__", ".hypothesis", ".import_linter_cache", ".mypy_cache", ".pytest_cache"}
    | {".ruff_cache"}
)
# Working trees that were looked at. None of their programs is run, in checkouts of them neither.
_TREES: set[Path] = set()
CODE = (".py", ".so", ".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh")  # suffixes
_NO_REPOSITORY = "not a git repository"  # as git says it
_HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


def top_of(start: Path) -> Path:
    """Return the top of the checkout that a folder is in.

    Raises:
        UsageError: without a checkout, or where git refuses it, with git's message.
    """
    try:
        top = Path(ask_git(start, "rev-parse", "--show-toplevel")).resolve()
    except UsageError as error:
        is_none = _NO_REPOSITORY in str(error)
        what = "found no git repository" if is_none else "its repository is not one"
        raise UsageError(
            f"{start.resolve()}: {what} to take a base revision from: {error}"
        ) from None
    # Versions of git before 2.38 take a folder of tracked files for a bare repository.
    if not (top / ".git").exists():
        raise UsageError(
            f"{top}: git takes it for the top of a repository, but it has no .git; a gate needs "
            "an ordinary checkout"
        )
    _TREES.add(top)
    return top


def commit_of(top: Path, ref: str) -> str:
    """Return the commit of a base revision.

    Raises:
        UsageError: for a revision that git does not know, with git's message and the remedy.
    """
    if not ref.strip():
        raise UsageError(
            "--base is empty, as from a variable that this kind of job does not have; expected a "
            "branch, a tag or a commit"
        )
    if _HASH.fullmatch(ref) and not ref.strip("0"):
        raise UsageError(
            f"--base {ref}: is no commit: CI systems give zeros where there was none before, as "
            "for the first push of a branch; expected the branch that this one is for, such as "
            "origin/main"
        )
    try:
        return ask_git(top, "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
    except UsageError as error:
        raise UsageError(f"--base {ref}: {error}; {_remedy(top, ref)}") from None


def _remedy(top: Path, ref: str) -> str:
    """Return advice on a revision that a repository lacks."""
    fetched = f"git fetch origin {ref}"
    if ask_git(top, "rev-parse", "--is-shallow-repository") == "true":
        forced = f"; after a force push: {fetched}" if _HASH.fullmatch(ref) else ""
        return (
            "this clone is shallow: fetch the revision first (git fetch --unshallow; in GitHub's "
            f"checkout action fetch-depth: 0, in GitLab GIT_DEPTH: 0{forced})"
        )
    if _HASH.fullmatch(ref):
        return (
            "this clone lacks that commit: after a force push or a rebase no branch leads to it; "
            f"fetch it ({fetched}), or name a branch such as origin/main"
        )
    pattern = f"refs/remotes/*/{ref}"
    remote = ask_git(top, "for-each-ref", "--format=%(refname:short)", pattern).split()
    if remote:
        return f"did you mean {' or '.join(remote)}?"
    return "expected a branch, a tag or a commit of this repository; fetch one of a remote first"


def tracked_root(top: Path, package: str) -> Path | None:
    """Return the folder with a package of kernels that git tracks; the shallowest of several.

    Raises:
        UsageError: if git fails in a repository, with its message.
    """
    if not (top / ".git").exists():
        return None
    names = _names(top, "ls-files", "-z", "--", f":(glob)**/{package}/__init__.py")
    found = sorted((Path(name).parent.parent for name in names), key=lambda p: len(p.parts))
    return found[0] if found else None


def tracked_files(top: Path) -> frozenset[str]:
    """Return the files that git tracks in a checkout, relative to its top; none without git.

    Raises:
        UsageError: if git fails in a repository, with its message.
    """
    if not (top / ".git").exists():
        return frozenset()
    return frozenset(_names(top, "ls-files", "-z"))


def submodules(top: Path) -> dict[str, str]:
    """Return the submodules of a checkout, by name, with their commits; none without git.

    Raises:
        UsageError: if git fails, with its message.
    """
    if not (top / ".git").exists():
        return {}
    return {name: commit for name, commit in _commits(top).items() if commit}


def own_files(top: Path, folder: Path) -> dict[str, str]:
    """Return the files of a folder that git tracks, or would if they were added; no `CACHES`.

    Args:
        top: top of a checkout.
        folder: a folder below it, without links in its path.

    Returns:
        By name, relative to the folder: the commit of a submodule, or "" for anything else.

    Raises:
        UsageError: if git fails, with its message.
    """
    # Asked for at the top, since files in the folder could make it look like a repository.
    place = folder.relative_to(top)
    within = _pathspec(place)
    found = _commits(top, *within) | dict.fromkeys(_untracked(top, *within), "")
    return {str(Path(name).relative_to(place)): commit for name, commit in found.items()}


def _pathspec(*places: Path) -> list[str]:
    """Return arguments of `git ls-files` for what lies below places, relative to the top."""
    # A pathspec of "." would be taken literally, too, and match nothing.
    below = ("" if place == Path() else str(place) for place in places)
    return ["--full-name", "--", *(f":(top,literal){each}" for each in below)]


def _untracked(top: Path, *within: str) -> list[str]:
    """Return files that git would track if they were added, without `CACHES`."""
    others = _names(top, "ls-files", "-z", "--others", "--exclude-standard", *within)
    return [name for name in others if CACHES.isdisjoint(name.split("/"))]


def untracked_code(top: Path, places: Collection[Path]) -> list[str]:
    """Return the untracked code in Python, C, C++ and CUDA, by file, that variants may use.

    Args:
        top: top of a checkout.
        places: folders of kernels and variants, relative to it; empty: there is no such file.

    Raises:
        UsageError: if git fails, with its message.
    """
    if not places:
        return []
    names = _untracked(top, *_pathspec(*places))
    return sorted({name for name in names if name.endswith(CODE)})


def _commits(top: Path, *within: str) -> dict[str, str]:
    """Return the tracked files by name, each with its commit if it is a submodule, else ""."""
    tracked = (entry.partition("\t")[::2] for entry in _names(top, "ls-files", "-z", "-s", *within))
    is_commit = "160000 "  # the mode of a submodule
    return {name: facts.split()[1] * facts.startswith(is_commit) for facts, name in tracked}


def _names(folder: Path, *arguments: str) -> list[str]:
    """Return the names of files that git prints, as the file system has them."""
    printed = _run_git(folder, *arguments)
    return [os.fsdecode(name) for name in printed.split(b"\0") if name]


def changed_files(top: Path) -> list[str]:
    """Return the tracked files, by name, that differ from the commit of a checkout.

    Raises:
        UsageError: if git fails, with its message.
    """
    # It looks into files, as `diff-index` does not: their dates differ in a copy of a checkout.
    options = ("--porcelain", "-z", "--untracked-files=no", "--no-renames")
    return [entry[len("XY ") :] for entry in _names(top, "status", *options)]


def digest_of(top: Path, names: Collection[str]) -> str | None:
    """Return a digest of files of a checkout, with their names; `None` for no file."""
    digest = hashlib.sha256()
    for name in names:
        path = top / name
        digest.update(os.fsencode(name) + b"\0")
        if path.is_symlink():
            digest.update(os.fsencode(path.readlink()))
        elif path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16] if names else None


def ask_git(folder: Path, *arguments: str) -> str:
    """Return git's output without its last line's end; names of folders may end in a space.

    Raises:
        UsageError: as `run_git`.
    """
    return os.fsdecode(_run_git(folder, *arguments)).removesuffix("\n")


def _run_git(folder: Path, *arguments: str) -> bytes:
    return run_git(folder, *arguments, seconds=GIT_SECONDS, trees=_TREES)
