"""The files of vLLM's releases that tests run, fetched from its source distributions on PyPI.

    python tests/support/vllm_releases.py DIR [VERSION ...]

Without versions it fetches all that the plugin knows. A distribution, of 30 to 50 MB, is read as a
stream and not kept; DIR/VERSION gets six files, with their paths in it. Nothing is fetched twice.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any
from urllib.request import Request, urlopen

from bt_kernels.engines.plugin.releases import RELEASES

INDEX = "https://pypi.org/simple/vllm/"
FILES = (
    "vllm/v1/worker/gpu/block_table.py",
    "vllm/v1/worker/gpu/buffer_utils.py",
    "vllm/v1/worker/gpu/model_runner.py",
    "vllm/utils/math_utils.py",
    "vllm/utils/torch_utils.py",
    "tests/v1/worker/test_gpu_block_table.py",
)


class _Hashed:
    """A stream that hashes what is read of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes."""
        found = self._stream.read(size)
        self.digest.update(found)
        return found


def is_fetched(folder: Path) -> bool:
    """Return whether a folder has all files of a release."""
    return all((folder / name).is_file() for name in FILES)


def fetch(folder: Path, versions: Iterable[str]) -> None:
    """Fetch releases into folders of their names, unless they are there.

    Raises:
        SystemExit: when PyPI has no source distribution of one, or another than it announces.
    """
    missing = [version for version in versions if not is_fetched(folder / version)]
    if not missing:
        return
    request = Request(INDEX, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urlopen(request) as answer:
        files = {file["filename"]: file for file in json.load(answer)["files"]}
    for version in missing:
        name = f"vllm-{version}"
        file = files.get(f"{name}.tar.gz")
        if file is None:
            raise SystemExit(f"{INDEX} has no {name}.tar.gz; expected a version that it has")
        with urlopen(file["url"]) as stream:
            found = unpack(stream, name, file["hashes"]["sha256"])
        for path, content in found.items():
            target = folder / version / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        sys.stdout.write(f"{folder / version}: {len(found)} files\n")


def unpack(stream: Any, name: str, digest: str) -> dict[str, bytes]:
    """Return the files of a source distribution, by their paths in its folder.

    Args:
        stream: a file, opened for reading bytes.
        name: the name of the distribution's folder, such as `vllm-0.33.0`.
        digest: its SHA-256, as hexadecimal digits.

    Raises:
        SystemExit: when it has another digest, or lacks a file.
    """
    hashed = _Hashed(stream)
    found = {}
    with tarfile.open(fileobj=hashed, mode="r|gz") as archive:
        for member in archive:
            top, _, path = member.name.partition("/")
            if top == name and path in FILES and member.isfile():
                content = archive.extractfile(member)
                assert content is not None, "of a file"
                found[path] = content.read()
    while hashed.read(1 << 20):
        pass
    if hashed.digest.hexdigest() != digest:
        raise SystemExit(f"{name}.tar.gz is damaged: SHA-256 is not {digest}; fetch it again")
    if lacking := set(FILES) - found.keys():
        raise SystemExit(f"{name}.tar.gz lacks {', '.join(sorted(lacking))}")
    return found


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    fetch(Path(sys.argv[1]), sys.argv[2:] or RELEASES)
