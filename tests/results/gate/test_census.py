"""Census files: the same text each time, and refused with a reason when they are damaged."""

from __future__ import annotations

import json

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.results.gate.census import census_text, read_census, write_census


@pytest.fixture
def path(tmp_path, censuses):
    write_census(tmp_path / "census.json", censuses("original"))
    return tmp_path / "census.json"


def test_a_census_survives(path, censuses):
    assert read_census(path) == censuses("original")
    assert census_text(read_census(path)) == path.read_text(encoding="utf-8")


def test_a_line_for_each_kernel_and_operation(path, censuses):
    lines = path.read_text(encoding="utf-8").splitlines()
    (variant,) = censuses("original").variants
    assert sum('"signature"' in line for line in lines) == len(variant.kernels) == 2
    assert sum('"operation"' in line for line in lines) == len(variant.operations) == 4


def test_what_changes_are_the_lines_of_what_changed(censuses):
    before, after = (census_text(censuses(name)).splitlines() for name in ("original", "constant"))
    changed = [old for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) == 4  # the kernel, both cases that launch it, and the host code


def change(path, edit):
    data = json.loads(path.read_text(encoding="utf-8"))
    edit(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def refusal(path):
    with pytest.raises(UsageError) as caught:
        read_census(path)
    return str(caught.value).removeprefix(f"{path} ")


def test_damaged_files(path):
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: len(text) // 2], encoding="utf-8")
    assert refusal(path).startswith("is not JSON: it seems truncated")
    path.write_text("", encoding="utf-8")
    assert refusal(path) == "is empty; expected a static census of bt-bench"
    path.write_text("[]", encoding="utf-8")
    assert refusal(path).startswith("is JSON, but not a static census of bt-bench")
    path.unlink()
    assert refusal(path) == "does not exist; expected a static census"


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("schema_version", 2, "has schema version 2; expected 1"),
        ("config", None, "is not a valid static census: $.config: input should be a valid string"),
        ("more", 1, "is not a valid static census: $.more: extra inputs are not permitted"),
        ("cases", [{"name": "a"}], "is not a valid static census: $.cases[0].workload is missing"),
    ],
)
def test_edited_files(path, key, value, why):
    change(path, lambda data: data.update({key: value}))
    assert refusal(path).startswith(why)


def _variant(data):
    return data["variants"][0]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda d: d["variants"].append(_variant(d)),
            "is damaged: the variants have 'fused' 2 times",
        ),
        (lambda d: d["cases"].append(d["cases"][0]), "is damaged: the cases have "),
        (
            lambda d: _variant(d)["operations"].append(_variant(d)["operations"][0]),
            "is damaged: the operations of variant 'fused' have ",
        ),
        (
            lambda d: _variant(d)["kernels"].append(_variant(d)["kernels"][0]),
            "is damaged: the kernels of variant 'fused' have ",
        ),
        (lambda d: d["cases"].pop(), "is damaged: variant 'fused' has "),
        (lambda d: _variant(d)["kernels"].pop(), "which is not in the list of kernels"),
        (
            lambda d: _variant(d)["kernels"][0].update(registers=10**400),
            "is not a valid static census: $.variants[0].kernels[0].registers: input should be",
        ),
        (lambda d: _variant(d)["kernels"][0].update(registers="30"), "should be a valid integer"),
        (lambda d: _variant(d)["kernels"][0].update(registers=float("nan")), "registers: input"),
        (lambda d: _variant(d)["kernels"][0].update(spill_bytes=-1), "greater than or equal to 0"),
    ],
)
def test_a_census_in_which_a_change_could_hide_is_refused(path, spoil, message):
    change(path, spoil)
    assert message in refusal(path)


def test_a_key_twice(path):
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"registers"', '"registers": 1, "registers"', 1), encoding="utf-8")
    assert refusal(path) == (
        'is damaged: it has key "registers" more than once in one object; expected it once'
    )
