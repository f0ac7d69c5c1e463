"""Configs for the tests of configs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.config.load import load_config
from bt_bench.config.spec import SweepSpec

Loader = Callable[..., SweepSpec]
ErrorOf = Callable[..., str]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loader:
    """Loads a text as `my.yaml` of the working directory."""
    monkeypatch.chdir(tmp_path)

    def load_text(text: str, **options: Any) -> SweepSpec:
        Path("my.yaml").write_text(dedent(text), encoding="utf-8")
        return load_config("my.yaml", **options)

    return load_text


@pytest.fixture
def error_of(load: Loader) -> ErrorOf:
    """The message that a text is refused with."""

    def message(text: str, **options: Any) -> str:
        with pytest.raises(UsageError) as caught:
            load(text, **options)
        return str(caught.value)

    return message
