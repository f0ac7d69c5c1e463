"""The JSON Schema of configs: it is fresh, takes every config, and refuses no valid one."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator
from pydantic import Field, field_validator
from support.commands import run
from support.configs import documents, names, scalars, values
from support.refusals import refused

from bt_bench.base.errors import UsageError
from bt_bench.config import SCHEMA_NAME, config_schema
from bt_bench.config.json_schema import _values
from bt_bench.config.load import load_config
from bt_bench.config.problems import Problems
from bt_bench.config.ranges import with_ranges
from bt_bench.config.yaml import Located, parse_yaml
from bt_bench.protocol import SuiteRef, WorkloadParameters, find_suite

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "block_tables": ROOT / "configs",
    "batch_preparation": ROOT / "bt_bench" / "suites" / "batch_preparation" / "configs",
    "examples/suites/page_indices": ROOT / "examples" / "suites" / "page_indices" / "configs",
}
OTHERS = {
    "block_tables": [ROOT / "studies" / "static.yaml", ROOT / "tests" / "cheats" / "sweep.yaml"]
}
RUNS = sorted((ROOT / "reports").rglob("config.yaml"))


@cache
def validator(suite: str = "block_tables") -> Draft202012Validator:
    return Draft202012Validator(config_schema(find_suite(suite, ROOT)))


def plain(text: str) -> Any:
    located = parse_yaml(text, "text", Problems())
    assert located is not None
    return located.plain()


def refusals(document: Any, suite: str = "block_tables") -> list[str]:
    return [error.message for error in validator(suite).iter_errors(document)]


@pytest.mark.parametrize("suite", FOLDERS)
def test_the_schema_beside_stock_configs_is_fresh_and_they_satisfy_it(suite):
    path = FOLDERS[suite] / SCHEMA_NAME
    fresh = json.loads(path.read_text(encoding="utf-8")) == validator(suite).schema
    command = f"bt-bench --suite {suite} schema config > {path.relative_to(ROOT)}"
    assert fresh, f"write it anew: {command}"
    for draft in (Draft202012Validator, Draft7Validator):  # editors know either
        draft.check_schema(validator(suite).schema)
    paths = sorted(FOLDERS[suite].glob("*.yaml"))
    assert paths
    for path in [*paths, *OTHERS.get(suite, [])]:
        text = path.read_text(encoding="utf-8")
        named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
        assert named is None or (path.parent / named[1]).resolve().name == SCHEMA_NAME
        assert named is not None or path not in paths
        assert refusals(plain(text), suite) == [], path


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.parent.name)
def test_configs_of_runs_satisfy_it(path):
    document = plain(path.read_text(encoding="utf-8"))
    suite = "batch_preparation" if document.get("suite") == "batch_preparation" else "block_tables"
    assert refusals(document, suite) == []


def test_configs_of_the_documentation_satisfy_it():
    found = 0
    for path in sorted((ROOT / "docs").glob("*.md")):
        for text in re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            document = plain(text)
            if "cases" in document or "plan" in document:
                found += 1
                suite = "block_tables" if path.name in ("configs.md", "cli.md") else "./own"
                assert refusals({"suite": suite} | document) == [], (path, text)
    assert found > 10


MISTAKES = [
    {"nam": "x"},
    {"operations": ["steps"]},
    {"operations": "step"},
    {"variants": []},
    {"kernels": 3},
    {"plan": {"round": 3}},
    {"plan": {"rounds": "many"}},
    {"plan": {"l2": "hot"}},
    {"gate": {"fail_on": ["slow"]}},
    {"defaults": {"groupz": 3}},
    {"defaults": {"window": {"step": 3}}},
    {"cases": {"name": "a"}},
    {"cases": []},
    {"defaults": {"workload": "batch"}},
]
MISTAKES_IN_CASES = [
    {"requests": [1, 2]},
    {"requests": "2"},
    {"requests": 0},
    {"reqests": 1},
    {"name": "a b"},
    {"name": "{gruops}"},
    {"margin_percent": 0},
    {"mapping": "shufled"},
    {"workload": "bach"},
    {"workload": "batch"},  # which has no `tokens`
    {"prefills": 3},
    {"product": {"prefills": [3]}},
    {"workload": "uniform", "prefills": 3},
    {"workload": "uniform", "product": {"prefills": [3]}},
    {"product": {"groups": 3}},
    {"product": {"groups": "1-8"}},
    {"product": {"groups": ["1..8 by 2*"]}},
    {"product": {"groups": []}},
    {"zip": {"groupz": [1]}},
]


@pytest.mark.parametrize("wrong", [*MISTAKES, *MISTAKES_IN_CASES], ids=json.dumps)
def test_usual_mistakes_are_refused_by_both(wrong):
    document: dict[str, Any] = {"cases": [{"name": "a", "requests": 2, "tokens": 4}]}
    assert refusals(document) == []
    if wrong in MISTAKES:
        document |= wrong
    else:
        document["cases"][0] |= wrong
    assert refusals(document)
    with pytest.raises(UsageError):
        load_config(document)


RIGHT = """
name: some
description: text
variants: [baseline, mine]
operations: [step]
plan: {rounds: 5, launch_paths: [jit], precision_percent: 2}
gate: {margin_percent: 3, looks: [3, 9], fail_on: [slower], alpha: null, metrics: [host_us]}
defaults: {max_num_reqs: 64, groups: null, window: {steps: 3}, min_length: 1}
cases:
  - name: "a{groups}"
    product: {groups: 1..3, block_size: [16, 64]}
    requests: 2
    tokens: 4
    margin_percent: 5
  - name: b
    workload: batch
    block_size: [16, 64]
    zip: {requests: [1..2, 8], tokens_per_request: [1, 2, 3]}
  - name: c
    product: {workload: [uniform, spread]}
    requests: 2
    tokens: 4
  - {name: d, workload: trace, trace: azure_conv, window.at: middle}
"""
EXTRA = st.one_of(scalars, values, st.sampled_from(["1..8", "8..1", "1..4 by *2", {}, [], "step"]))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container in a document with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            found += places(value[key])
    return found


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """Return a valid config with one or two changes, which may leave it valid."""
    document = copy.deepcopy(plain(RIGHT))
    for _ in range(draw(st.integers(1, 2))):
        container, key = draw(st.sampled_from(places(document)))
        match draw(st.sampled_from(["value", "key", "less", "more"])):
            case "key" if isinstance(container, dict):
                new = draw(st.one_of(names, st.just(f"{key}s"), st.just(key[1:])))
                container[new] = container.pop(key)
            case "less":
                del container[key]
            case "more" if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case "more":
                container[draw(names)] = draw(EXTRA)
            case _:
                container[key] = draw(EXTRA)
    return document


def never_a_false_alarm(path: Path, document: Any) -> None:
    text = json.dumps(document)
    if refusals(json.loads(text, parse_constant=str)):  # YAML reads NaN as text
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError):
            load_config(path)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("mutated") / "my.yaml"


quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def test_the_config_that_is_changed_is_right():
    load_config(plain(RIGHT))
    assert refusals(plain(RIGHT)) == []


@quick
@given(document=mutated())
def test_the_loader_refuses_what_it_refuses_of_changed_configs(path, document):
    never_a_false_alarm(path, document)


@quick
@given(document=documents)
def test_the_loader_refuses_what_it_refuses_of_any_configs(path, document):
    never_a_false_alarm(path, document)


@quick
@given(
    text=st.from_regex(r"\s?[-+]?\d{1,3} ?\.{1,3} ?-?\d{0,3}( by [*]? ?\d{0,2})?", fullmatch=True)
)
def test_ranges(text):
    axis = {"cases": [{"name": "a", "product": {"seed": text}}]}
    if refusals(axis):
        problems = Problems()
        place = Located(text, parse_yaml("a", "", problems).place)
        assert with_ranges("seed", [place], problems) in ([], [place])


@pytest.mark.parametrize(
    ("defaults", "own", "message"),
    [
        ({"requests": "many"}, {"requests": 2}, "requests is 'many'; expected a whole number"),
        ({"groups": 0}, {"requests": 2, "block_size": 16}, "groups is 0; expected"),
        ({"workload": "bach"}, {"requests": 2, "workload": "uniform"}, "workload is 'bach'"),
    ],
)
def test_a_wrong_default_is_refused_even_if_no_case_uses_it(defaults, own, message):
    document = {"defaults": defaults, "cases": [{"name": "a", "tokens": 4, **own}]}
    assert refusals(document)
    with pytest.raises(UsageError, match=message):
        load_config(document)


def test_a_wrong_part_is_refused_even_if_an_axis_replaces_it():
    case = {"name": "a", "workload": "trace", "trace": "azure_conv"}
    axes = {"window": [{"at": "start", "steps": 0}], "window.steps": [3]}
    with pytest.raises(UsageError, match=r"window.steps is 0; expected"):
        load_config({"cases": [case | {"product": axes}]})


def test_parameters_of_another_suite_are_open():
    case = {"name": "{any}", "any": [1], "product": {"thing": 3}}
    assert refusals({"suite": "./mine", "operations": ["any"], "cases": [case]}) == []
    assert refusals({"suite": "./mine", "plans": {}, "cases": [case]})
    assert refusals({"suite": "block_tables", "cases": [case]})


class Converting(WorkloadParameters):
    workload: Literal["converting"]
    size: int = Field(ge=1)
    plain: int = Field(ge=1)

    @field_validator("size", mode="before")
    @classmethod
    def _of_text(cls, value: Any) -> Any:
        return 1024 if value == "1k" else value


def test_values_that_a_suite_converts_are_open():
    found = _values(Converting)
    assert found["size"] == {}
    assert found["plain"] == {"minimum": 1, "type": "integer"}


def test_the_command_prints_it():
    assert run("schema", "config").json() == config_schema(SuiteRef())
    assert "unknown KIND 'confg'; did you mean 'config'?" in refused("schema", "confg")
    assert "--suite has no effect on the schema of a result" in refused("schema", "--suite", "x")
