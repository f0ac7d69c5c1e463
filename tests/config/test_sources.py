"""Where a config comes from."""

from __future__ import annotations

import os
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pytest

from bt_bench.base.errors import UsageError
from bt_bench.config.load import load_config

GOOD = "{name: a, requests: 1, tokens: 2}"


def refusal(source) -> str:
    with pytest.raises(UsageError) as caught:
        load_config(source)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_missing(folder):
    assert refusal("my.yaml") == (
        "my.yaml: no such file; expected a YAML file, '-' for stdin, or a stock config: "
        "azure_code, azure_conv, features, layouts, origin, production, quick, shapes"
    )


def test_a_mapping_is_what_a_file_would_be(folder):
    """Numbers of numpy and paths, too; paths in it are relative to the working directory."""
    Path("variants").mkdir()
    case = {"name": "a", "requests": np.int64(1), "product": {"tokens": np.array([2, 3])}}
    given = load_config({"name": "my", "kernels": [Path("variants")], "cases": [case]})
    Path("my.yaml").write_text(
        "{kernels: [variants], cases: [{name: a, requests: 1, product: {tokens: [2, 3]}}]}"
    )
    assert given == load_config("my.yaml") == load_config(Path("my.yaml"))


def test_missing_and_nearly_a_stock_config(folder):
    assert refusal("quik") == "quik: no such file; did you mean the stock config 'quick'?"


def test_missing_but_named_like_a_stock_config(folder):
    assert refusal("configs/quick.yaml") == (
        "configs/quick.yaml: no such file; 'quick' is a stock config: write 'quick' in place "
        "of the path"
    )


def test_directory(folder):
    assert refusal(".") == ".: is a directory; expected a YAML file"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads everything")
def test_unreadable(folder):
    Path("my.yaml").touch(mode=0)
    assert refusal("my.yaml") == "my.yaml: not readable; check its permissions"


def test_a_file_as_a_folder(folder):
    Path("my.yaml").touch()
    assert refusal("my.yaml/other") == "my.yaml/other: not readable: Not a directory"


def test_null_byte(folder):
    assert refusal("my\0.yaml").startswith("'my\\x00.yaml': not a path of a file; expected")


def test_not_utf_8(folder):
    Path("my.yaml").write_bytes("name: x\ndescription: ä".encode("latin-1"))
    assert refusal("my.yaml") == (
        "my.yaml:2:14: byte 0xe4 is not UTF-8; expected a text file in UTF-8"
    )


def test_binary(folder):
    Path("my.yaml").write_bytes(b"name: x\n \x00\x01")
    assert refusal("my.yaml") == (
        "my.yaml:2:2: not valid YAML: character U+0000 is not allowed; remove it"
    )


def test_too_large(folder):
    with Path("my.yaml").open("wb") as file:
        file.truncate(6 * 2**20 + 1)
    assert refusal("my.yaml") == (
        "my.yaml: is larger than 6 MiB; expected a config. Write axes under 'product' or 'zip' in "
        "place of single cases"
    )


def test_stdin(monkeypatch):
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"cases: []")))
    assert refusal("-") == "<stdin>:1:8: cases is []; expected a list of one or more cases"
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(f"cases: [{GOOD}]".encode())))
    assert load_config("-").name == "stdin"


def test_byte_order_mark(folder):
    Path("my.yaml").write_bytes(f"\ufeffcases: [{GOOD}]".encode())
    assert len(load_config(Path("my.yaml")).cases) == 1
