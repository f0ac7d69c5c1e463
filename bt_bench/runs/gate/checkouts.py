"""Checkouts of both revisions, side by side in one temporary folder.

The working tree is not measured where it is, or arms with equal code would not be alike: the
process changes to its arm's folder before each sample. So it is checked out as the base is, and
then given its changes; see `docs/gate-statistics.md`.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from bt_bench.base import format_bytes, scratch_folder, without_another_git
from bt_bench.base.errors import UsageError
from bt_bench.base.processes import run_kept
from bt_bench.runs.gate.revisions import (
    ask_git,
    commit_of,
    own_files,
    submodules,
    tracked_files,
)
from bt_bench.runs.gate.sameness import same_file
from bt_bench.runs.gate.trees import Location, Tree, shared_places, within
from bt_bench.variants import real_path

BUILD_SECONDS = 1800.0
TAIL_LINES = 20


@contextmanager
def base_tree(location: Location, ref: str) -> Iterator[Tree]:
    """Yield a checkout of a revision in a temporary folder, which is removed when the block ends.

    It is a linked worktree of the user's repository, so it has the repository's settings, filters,
    LFS objects, tags for `git describe` and end-of-line rules. Only the administrative folder,
    which `git worktree add` would make in `.git/worktrees`, is in the temporary folder too: git
    only requires a `commondir` in it that leads to the repository (gitrepository-layout(5)). So a
    gate that is killed leaves nothing in the user's repository, and the next one removes its
    remains elsewhere (`bt_bench.base.scratch`).

    `git archive` would leave out files (`export-ignore`) and give a build no repository to ask;
    a clone would have another configuration, other remotes, and none of the files of LFS.

    Raises:
        UsageError: for a revision that git does not know or cannot check out, with git's message.
    """
    commit = commit_of(location.top, ref)
    with scratch_folder("gate") as scratch:
        top = scratch / "base"
        try:
            _check_out(location.top, commit, top, scratch / "git-base")
        except UsageError as error:
            raise UsageError(f"--base {ref}: cannot be checked out: {error}") from None
        yield Tree(_label(ref, commit), commit, False, top, location)


def copied(head: Tree, base: Tree) -> Tree:
    """Return the working tree as a checkout beside the base's, which is removed with that one.

    It is the commit of the working tree, checked out as the base is, with all that has changed
    since: files that git tracks, or would if they were added, as they are on disk. Files that git
    ignores are in neither tree, nor are the environment of the Python that runs, temporary files
    and caches of Python's tools, unless git tracks them.

    Args:
        head: the working tree, where the user has it.
        base: a tree of `base_tree`.

    Raises:
        UsageError: if it cannot be copied, such as for lack of room.
    """
    scratch, source = base.top.parent, head.top
    top, admin = scratch / "head", scratch / "git-head"
    tracked = tracked_files(source)
    try:
        _check_out(source, head.commit, top, admin)
        untracked = own_files(source, source).keys() - tracked
        left_out = set(within(shared_places(head, tracked), [source], untracked))
        _refuse_too_large(source, {Path(name) for name in untracked} - left_out, scratch)
        _bring(source, top, admin, left_out)
    except (OSError, UsageError) as error:  # of git, too
        raise UsageError(
            f"{head.label}: cannot be copied: {error}; expected files that can be read, and room "
            f"in {scratch.parent}; set TMPDIR to another folder, or have git ignore files that "
            "the variants do not need"
        ) from error
    return replace(head, top=top)


def _refuse_too_large(source: Path, names: Collection[Path], scratch: Path) -> None:
    """Refuse to fill the disk: a folder of temporary files may be in memory, and others' too."""
    sizes = {name: (source / name).lstat().st_size for name in names if _is_there(source, name)}
    total = sum(sizes.values())
    if total > shutil.disk_usage(scratch).free:
        largest = max(sizes, key=sizes.__getitem__)
        raise OSError(
            errno.ENOSPC,
            f"files that git neither tracks nor ignores have {format_bytes(total)}, "
            f"{largest} alone {format_bytes(sizes[largest])}",
        )


def _bring(source: Path, top: Path, admin: Path, left_out: Collection[Path] = ()) -> None:
    """Give a checkout the files of another one, where they differ.

    Args:
        source: top of the checkout to copy from; no file of it is changed.
        top: top of the checkout to change.
        admin: git's administrative folder of the checkout to change.
        left_out: names of files that are not copied.
    """
    names = own_files(source, source)
    there = {name for name, commit in names.items() if not commit and _is_there(source, Path(name))}
    for name in map(Path, tracked_files(top) - there - submodules(top).keys()):
        _remove(top, name)
    for name in map(Path, sorted(there)):
        if name not in left_out and not same_file(source / name, top / name):
            _copy(source / name, top / name)
    for each, commit in names.items():
        if commit and (source / each / ".git").exists():
            if not (top / each / ".git").exists():
                _clone(source / each, commit, top / each, admin / "modules" / each)
            _bring(source / each, top / each, admin / "modules" / each)


def _is_there(top: Path, name: Path) -> bool:
    """Return whether a file or a link has this name, without a link to a folder in its path."""
    path = top / name
    with suppress(FileNotFoundError, NotADirectoryError):
        kind = path.lstat().st_mode
        is_of_git = stat.S_ISREG(kind) or stat.S_ISLNK(kind)
        return is_of_git and real_path(path.parent) == path.parent
    return False


def _copy(source: Path, target: Path) -> None:
    """Copy a file, or a link as a link, in place of anything."""
    if target.is_dir() and not target.is_symlink():  # as of a submodule that is one no more
        shutil.rmtree(target)
    target.unlink(missing_ok=True)  # it may be a link, which would be followed
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target, follow_symlinks=False)


def _remove(top: Path, name: Path) -> None:
    """Remove a file, and the folders that are empty without it."""
    (top / name).unlink(missing_ok=True)
    with suppress(OSError):  # the first that is not empty
        for folder in name.parents[:-1]:
            (top / folder).rmdir()


def _check_out(repository: Path, commit: str, top: Path, admin: Path) -> None:
    """Create a linked worktree, with the submodules that the repository has.

    Args:
        repository: a checkout.
        commit: the commit to check out.
        top: folder of the worktree; empty, or new.
        admin: git's administrative folder of the worktree; new.
    """
    common, own = (
        (repository / ask_git(repository, "rev-parse", option)).resolve()
        for option in ("--git-common-dir", "--git-dir")
    )
    top.mkdir(parents=True, exist_ok=True)
    (admin / "info").mkdir(parents=True)
    for path, line in (
        (admin / "commondir", str(common)),
        (admin / "gitdir", str(top / ".git")),
        (admin / "HEAD", commit),
        (top / ".git", f"gitdir: {admin}"),
    ):
        path.write_bytes(os.fsencode(f"{line}\n"))  # names of folders may be no UTF-8
    if (common / "reftable").is_dir():
        # Such a repository has no files of references: each worktree keeps HEAD in tables of its
        # own, which the reset below begins.
        (admin / "reftable").mkdir()
    # If the checkout is sparse, so is the worktree, as with `worktree add`.
    settings = admin / "config.worktree"
    for path in (settings, admin / "info/sparse-checkout"):
        theirs = own / path.relative_to(admin)
        if theirs.is_file():
            shutil.copyfile(theirs, path)
    for key in ("core.worktree", "core.bare"):
        with suppress(UsageError):  # git fails if there is no such setting
            ask_git(top.parent, "config", "--file", str(settings), "--unset-all", key)
    ask_git(top, "reset", "--hard", "--quiet", "--no-recurse-submodules", commit)
    _clone_submodules(repository, top, admin)


def _clone_submodules(repository: Path, top: Path, admin: Path) -> None:
    for name, commit in submodules(top).items():
        if (repository / name / ".git").exists():
            _clone(repository / name, commit, top / name, admin / "modules" / name)


def _clone(source: Path, commit: str, top: Path, admin: Path) -> None:
    """Clone a submodule from the user's checkout of it, with its own submodules.

    It cannot be a linked worktree: `git submodule update`, as a build may run it, would write the
    worktree's place into the settings of the user's repository. If the source lacks the commit,
    the folder remains empty, as `git worktree add` leaves it, and the build can update it.
    """
    admin.parent.mkdir(parents=True, exist_ok=True)
    places = ("--separate-git-dir", str(admin), "--", str(source), str(top))
    try:
        ask_git(source, "clone", "--quiet", "--shared", "--no-checkout", *places)
        ask_git(top, "checkout", "--quiet", "--detach", commit)
        _clone_submodules(source, top, admin)
    except UsageError:
        for folder in (top, admin):
            shutil.rmtree(folder, ignore_errors=True)
        top.mkdir(parents=True)


def build(tree: Tree, command: str, seconds: float = BUILD_SECONDS) -> None:
    """Run a shell command in a tree.

    Args:
        tree: the tree.
        command: the command as typed.
        seconds: time limit.

    Raises:
        UsageError: if it fails or takes too long, with the end of its output.
    """
    try:
        process = run_kept(
            ["/bin/sh", "-c", command],
            cwd=tree.top,
            env=without_another_git(),
            stderr=subprocess.STDOUT,
            seconds=seconds,
        )
    except subprocess.TimeoutExpired as error:
        printed = (error.output or b"").decode(errors="replace")
        raise UsageError(
            f"{tree.label}: --build {command!r} has not ended after {seconds:g} s; if it only "
            f"needs longer, give it more with --build-timeout SECONDS{_tail(printed)}"
        ) from None
    if process.returncode:
        raise UsageError(
            f"{tree.label}: --build {command!r} ended with exit code {process.returncode}"
            + _tail(process.stdout)
        )


def _tail(output: str) -> str:
    tail = "\n".join(f"  {line}" for line in output.splitlines()[-TAIL_LINES:])
    return f"; the end of its output:\n{tail}" if tail else "; it printed nothing"


def _label(ref: str, commit: str) -> str:
    short = commit[:8]
    return short if commit.startswith(ref) else f"{ref} ({short})"
