"""Whatever a config holds, it is either refused with a message or a valid sweep."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.configs import documents, good_case, names, values

from bt_bench.base.errors import UsageError
from bt_bench.config.dump import dump_config
from bt_bench.config.load import load_config

quick = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

YAML_PIECES = [
    *["- ", ": ", "\n", "  ", "{", "}", "[", "]", "&a ", "*a", "<<", "!x ", "%YAML 1.1\n", "---"],
    *["? ", "|", ">", "'", '"', "#", "\t", "~", "cases", "name", "1e5", "\\x", "0b", "=", "..."],
    *["%TAG ! x\n", "\\U99999999", "!!int ", "!!float ", "!<", "+-_", "%YAML 1.9\n"],
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("any") / "any.yaml"


def accept_or_refuse(path, data: bytes, overrides=()) -> None:
    path.write_bytes(data)
    try:
        spec = load_config(path, overrides=overrides)
    except UsageError as error:
        located = str(error).encode().startswith((str(path).encode(), b"--set "))
        assert located, str(error)  # noqa: PT017 - a config may as well be accepted
    else:
        path.write_text(dump_config(spec), encoding="utf-8")
        assert load_config(path) == spec
        assert pickle.loads(pickle.dumps(spec)) == spec  # as workers are given it


@quick
@given(data=st.binary(max_size=60))
def test_bytes(path, data):
    accept_or_refuse(path, data)


@quick
@given(pieces=st.lists(st.one_of(st.sampled_from(YAML_PIECES), st.text(max_size=3)), max_size=20))
def test_text(path, pieces):
    accept_or_refuse(path, "".join(pieces).encode("utf-8", "replace"))


@quick
@given(document=documents)
def test_structures(path, document):
    accept_or_refuse(path, json.dumps(document).encode())


@quick
@given(
    key=st.one_of(names, st.sampled_from(["plan.rounds", "plan.launch_paths", "plan.l2"])),
    value=st.one_of(values.map(json.dumps), st.text(max_size=8)),
)
def test_overrides(path, key, value):
    accept_or_refuse(path, json.dumps({"cases": [good_case]}).encode(), [f"{key}={value}"])


@quick
@given(description=st.text(max_size=20))
def test_description_survives_the_dump(path, description):
    accept_or_refuse(path, json.dumps({"description": description, "cases": [good_case]}).encode())


def test_a_character_beyond_16_bits_may_be_escaped_as_in_json(path):
    """JSON has no other escape for it than a pair of surrogates."""
    case = {"name": "a", "requests": 1, "tokens": 2}
    path.write_text(json.dumps({"description": "\N{ROCKET}", "cases": [case]}), encoding="utf-8")
    assert load_config(path).description == "\N{ROCKET}"
    path.write_text(path.read_text(encoding="utf-8").replace("\\ude80", ""), encoding="utf-8")
    with pytest.raises(UsageError, match="text has a control character"):
        load_config(path)
