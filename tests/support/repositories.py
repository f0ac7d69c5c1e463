"""Git repositories for tests of the gate."""

from __future__ import annotations

import subprocess
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2] / "kernels"


def git(folder: Path, *arguments: str) -> str:
    """Runs git, as nobody in particular: who commits is in the home directory of the tests."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit(folder: Path, message: str) -> str:
    """Commits everything; the new commit."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def write(folder: Path, files: dict[str, str]) -> None:
    """Writes files, with the folders that they need."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def repository(folder: Path, files: dict[str, str]) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    write(folder, files)
    commit(folder, "first")
    return folder
