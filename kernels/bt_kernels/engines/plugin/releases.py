"""Releases of vLLM that the plugin knows, and the differences between their block tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Release:
    """A release of vLLM whose block tables ours were compared with.

    Its files are the same in its source distribution and in all its wheels on PyPI.

    Args:
        version: its version.
        block_table: SHA-256 of `vllm/v1/worker/gpu/block_table.py`, as hexadecimal digits.
        model_runner: likewise of `model_runner.py` beside it.
        splits_blocks: the class is given blocks as the scheduler has them, and stages the ids of
            the smaller blocks that kernels have.
        clears_rows: a gather also zeroes rows behind the batch that a larger one filled.
        zeroes_dummies: `get_dummy_block_tables` zeroes the rows that it returns.
        input_batch: SHA-256 of `input_batch.py` beside them, of a release whose batches were
            compared with ours; empty for any other.
    """

    version: str
    block_table: str
    model_runner: str
    splits_blocks: bool = False
    clears_rows: bool = True
    zeroes_dummies: bool = True
    input_batch: str = ""

    @property
    def is_as_ours(self) -> bool:
        """Return whether the class has the interface of `bt_kernels.BlockTables`."""
        return not self.splits_blocks and self.clears_rows and self.zeroes_dummies


def _releases() -> Iterator[Release]:
    tables = "5337965e7914c4e466d5a66f086cd616f81e81e3941f61ad4518fefafc62ce69"
    runner = "58f45c58969cdd9cba707863e82fefda818002de45c621032b58b6eb364deedf"
    oldest: dict[str, Any] = {"splits_blocks": True, "clears_rows": False, "zeroes_dummies": False}
    yield Release("0.25.0", tables, runner, **oldest)
    yield Release("0.25.1", tables, runner, **oldest)
    tables = "c731fb0f083ff1787d329a32cd562b703cf1980a6daf01904cd12a3c4aef44c5"
    runner = "77c8042cd911fbb0afc5d7a731a293afd7d2465d9ceea9574a69dab5ee5182be"
    yield Release("0.26.0", tables, runner, **oldest)

    tables = "14aa78fd3cfabba6309f5c503dbfb723f6e9c55f9c09d69936019c3f2b00f4de"
    runner = "60fb531a045d6879da25f57cdb95584cc5272e4ef33b69e6b9c2ff3acbd78f8a"
    split: dict[str, Any] = {"splits_blocks": True, "clears_rows": False}
    yield Release("0.27.0", tables, runner, **split)
    yield Release("0.27.1", tables, runner, **split)
    tables = "da4e6011514c883dbb6bf0f59675294e6a6e76cfcd0e4b534bc575cb4d7adfc5"
    runner = "fb08762e3a025fdc55ab8d2605a96a57d1fad7efae0fbb605cc4fe2973028aca"
    yield Release("0.28.0", tables, runner, **split)
    tables = "61c004315d5af7e7eae4e2a9e6be92ea82c520327690a7f55a73bb9ce95f520a"
    runner = "d7bae5b05a2a9f02c1ba29f0b4b32434cee43c3b369d3985505d3f8ed89b461b"
    yield Release("0.29.0", tables, runner, **split)
    runner = "174c93db921c23cf0396eee4764be25b2bd2d4b6a06e9fa41ce3598b884ce8ce"
    yield Release("0.30.0", tables, runner, **split)
    tables = "fb5ca5b0be5d0dd9466d9a66d056fc5acbe2dedbcb0eeebb1c486031ed53b0a8"
    runner = "725c47114e148ade3a26b4cc9c5f7295588fdd387afc3cb5fdb2d16513a1bb5c"
    yield Release("0.31.0", tables, runner, **split)

    tables = "822b65f3d7bd4cad47693c101ba5134923876b9c81d5a609afd6bca6dee38ba8"
    runner = "5240fe8d62d403e466a4aa07a28fb7af5c0f1e9b9c3bb08c4003185bde461f87"
    yield Release("0.32.0", tables, runner, clears_rows=False)

    tables = "3433729cad5aa5fceb312e0a8d9ffabb3f7327dbdd18966d576e64d090313020"
    runner = "9145e2601f9e93db5e6c7e648c6741cff55f2a49f046800f79311e4977550121"
    inputs = "ada7b6827bcd5a1df8d7ba855d9d423a073745f3fbde4673417ad203016a4d54"
    yield Release("0.33.0", tables, runner, input_batch=inputs)


RELEASES = {release.version: release for release in _releases()}
"""The releases by version, oldest first. Any other is refused."""


def find(version: str | None) -> Release:
    """Return the release of a version; a build of one, such as `0.33.0+cu129`, is that release.

    Raises:
        LookupError: for any other version, also a newer, development or unknown (`None`) one.
    """
    public = (version or "").partition("+")[0]
    if public not in RELEASES:
        raise LookupError(
            f"vLLM {version or 'of an unknown version'} is not supported, since its block tables "
            f"were not compared with ours; expected {', '.join(RELEASES)}"
        )
    return RELEASES[public]


def check_file(module: ModuleType, release: Release, consequence: str) -> None:
    """Check that a module of vLLM is the file of a release, which nobody has changed.

    Args:
        module: `block_table`, `model_runner` or `input_batch`, imported.
        release: the release.
        consequence: for the message, a sentence about what happens now.

    Raises:
        RuntimeError: when the file is another one, or cannot be read.
    """
    expected = getattr(release, module.__name__.rpartition(".")[2])
    loader: Any = module.__loader__
    try:
        found = hashlib.sha256(loader.get_data(module.__file__)).hexdigest()
    except (AttributeError, TypeError, OSError) as error:
        raise RuntimeError(f"its file cannot be read: {error}. {consequence}") from error
    if found != expected:
        raise RuntimeError(
            f"{module.__file__} is not the file of vLLM {release.version}, so it was not compared "
            f"with ours (SHA-256 {found[:12]}…; expected {expected[:12]}…). {consequence}"
        )
