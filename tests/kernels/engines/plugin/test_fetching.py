"""The script that fetches files of vLLM's releases reads only those, and checks the archive."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest
from support.vllm_releases import FILES, fetch, is_fetched, unpack

NAME = "vllm-0.33.0"


def archive(paths):
    """An archive with files whose contents are their paths, and its SHA-256."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as written:
        for path in paths:
            member = tarfile.TarInfo(path)
            member.size = len(path)
            written.addfile(member, io.BytesIO(path.encode()))
    content = packed.getvalue()
    return io.BytesIO(content), hashlib.sha256(content).hexdigest()


def test_the_files_of_the_release_are_read_and_no_others():
    others = (f"{NAME}/setup.py", f"{NAME}/../{FILES[0]}", f"other/{FILES[0]}")
    packed, digest = archive((*others, *(f"{NAME}/{path}" for path in FILES)))
    assert unpack(packed, NAME, digest) == {path: f"{NAME}/{path}".encode() for path in FILES}


def test_a_damaged_archive_is_refused():
    packed, _ = archive(f"{NAME}/{path}" for path in FILES)
    with pytest.raises(SystemExit, match=rf"{NAME}.tar.gz is damaged"):
        unpack(packed, NAME, "0" * 64)


def test_an_archive_without_a_file_is_refused():
    packed, digest = archive([f"{NAME}/{path}" for path in FILES[1:]])
    with pytest.raises(SystemExit, match=rf"lacks {FILES[0]}"):
        unpack(packed, NAME, digest)


def test_nothing_is_fetched_twice(tmp_path):
    for path in FILES:
        (tmp_path / "0.33.0" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "0.33.0" / path).touch()
    assert is_fetched(tmp_path / "0.33.0")
    fetch(tmp_path, ["0.33.0"])  # without a connection
