"""Make a faulty copy of the shipped kernels from a patch, as a user would have one of their own.

A patch of `tests/unseen/*/planted` begins with `Variant: NAME`, a module of `bt_kernels/variants`,
then says what is wrong and how it shows, and then has a unified diff of files of `bt_kernels`.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "bt_kernels"


class PatchError(Exception):
    """The patch does not fit the kernels: change it with them, or it finds nothing any more."""


def variant_of(patch: Path) -> str:
    """The variant that a patch is of."""
    return patch.read_text(encoding="utf-8").splitlines()[0].removeprefix("Variant:").strip()


def apply(patch: Path, folder: Path, *options: str) -> None:
    """Patch the package in a folder, as `patch` does with these options.

    Raises:
        PatchError: if it does not apply.
    """
    command = ["patch", "-p1", "--no-backup-if-mismatch", *options, "-d", str(folder)]
    done = subprocess.run(
        [*command, "-i", str(patch.resolve())], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PatchError(f"{patch}: {done.stdout}{done.stderr}")


def plant(patch: Path, out: Path, kernels: Path = ROOT / "kernels") -> Path:
    """Make the copy and a variant of it, which bear the name of the patch.

    Args:
        patch: the file.
        out: folder for both, which has to be on the path of Python's imports.
        kernels: the folder of the package.

    Returns:
        The file of the variant, for `--kernels OUT --variants NAME`.

    Raises:
        PatchError: if it does not apply.
    """
    variant = variant_of(patch)
    code = f"{patch.stem}_code"
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / PACKAGE
        shutil.copytree(kernels / PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
        apply(patch, Path(folder))
        for path in copied.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(PACKAGE, code), encoding="utf-8")
        shutil.rmtree(out / code, ignore_errors=True)
        shutil.copytree(copied, out / code)
    made = out / f"{patch.stem}.py"
    made.write_text(
        f'"""{variant} with a fault: see {patch.name}."""\n\n'
        f'from {code}.variants.{variant} import Variant\n\n__all__ = ["Variant"]\n',
        encoding="utf-8",
    )
    return made
