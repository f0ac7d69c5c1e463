"""Code of a user's suite runs in a process of its own, and answers with data."""

from __future__ import annotations

import os
import pickle
import sys
from functools import cached_property
from types import FunctionType

import numpy as np
import pytest
from support.processes import runs, wait_for
from support.suites import as_sent, changed, suites_here, write_suite

from bt_bench.base.errors import BtBenchError, NotComparableError, UsageError
from bt_bench.config import dump_config, load_config
from bt_bench.protocol import (
    DEFAULT_REF,
    Suite,
    WorkloadParameters,
    at_suite,
    build_workload,
    built_record,
    end_suite,
    features_of_conformance,
    find_suite,
    flat_parameters,
    info_of,
    load_suite,
    ref_of_value,
    suite_of,
)
from bt_bench.protocol.hosted import HostedParameters, HostedSuite


@pytest.fixture
def ref(folder):
    return find_suite(str(folder), folder.parent)


LAST_FIELD = 'description="rows")'


def added(folder, text):
    path = folder / "suite.py"
    path.write_text(path.read_text() + text)


def pid():
    return os.getpid()


def refuse(error):
    raise error


def make_no_data():
    return [object()]


def modules():
    return sorted(sys.modules)


def test_it_is_never_imported_here(ref):
    load_suite(ref)
    spec = load_config("tiny", suite=str(ref.folder))
    assert {case.name for case in spec.cases} == {"n1", "n5"}
    there = at_suite(ref, modules)
    assert f"{ref.package}.suite" in there
    assert "torch" not in there
    assert not [name for name in sys.modules if name.startswith(ref.package)]
    assert str(ref.folder) not in sys.path
    assert not list(ref.folder.rglob("__pycache__"))


def test_what_is_declared_is_known_here(ref):
    hosted = load_suite(ref)
    with suites_here():
        suite = load_suite(ref)
        assert not isinstance(suite, HostedSuite)
        wanted, kernels = info_of(suite), suite.kernels
    assert isinstance(hosted, HostedSuite)
    assert info_of(hosted) == wanted
    assert (hosted.kernels, hosted.configs) == (kernels, ref.folder / "configs")
    assert hosted.by_name["copy"].traits == suite.by_name["copy"].traits
    assert hosted.opponents(()).entries == {}
    assert hosted.opponents(()).expand(["a"], by_name=True) == (["a"], {})
    assert not hosted.is_opponent("a")
    assert load_suite(ref) is hosted
    assert suite_of(hosted) is hosted


@pytest.mark.parametrize(
    ("hosted", "base", "own"),
    [
        (HostedSuite, Suite, {"kinds", "by_name", "staging"}),  # from what is declared
        (HostedParameters, WorkloadParameters, {"check", "text_of"}),  # called with the config
    ],
)
def test_no_method_of_a_base_class_stands_for_one_that_a_user_wrote(hosted, base, own):
    def methods(kind):
        kinds = property | cached_property | FunctionType
        return {n for n, v in vars(kind).items() if isinstance(v, kinds) and n[0] != "_"}

    assert methods(base) - methods(hosted) == own


@pytest.mark.parametrize("name", ["driver", "conformance", "explorer", "describe", "commands"])
def test_what_is_not_passed_on_is_refused(ref, name):
    with pytest.raises(BtBenchError, match="code of this suite does not run in this process"):
        getattr(load_suite(ref), name)()


def test_parameters_are_what_they_are_there(ref):
    case = load_config("tiny", suite=str(ref.folder), overrides=["rows=7"]).cases[0]
    parameters = case.parameters
    assert isinstance(parameters, HostedParameters)
    assert flat_parameters(parameters) == {"rows": 7}
    assert parameters.num_bytes() == 56
    assert (parameters.features, parameters.files(), parameters.num_programs()) == (set(), (), 0)
    assert suite_of(parameters) is load_suite(ref)
    with pytest.raises(BtBenchError, match="does not run in this process"):
        build_workload(parameters)
    record = at_suite(ref, built_record, parameters)
    with suites_here():
        real = as_sent(parameters)
        assert (type(real).__name__, real.rows) == ("Tokens", 7)
        assert ref_of_value(real) == ref
        assert built_record(real) == record
        assert case.model_copy(update={"parameters": real}).model_dump() == case.model_dump()


def test_conformance_workloads_are_known_by_their_features(ref):
    assert at_suite(ref, features_of_conformance, ref, 0) == {"one": set(), "odd": set()}
    of_default = features_of_conformance(DEFAULT_REF, 0)
    with suites_here():
        assert of_default == at_suite(DEFAULT_REF, features_of_conformance, DEFAULT_REF, 0)


def test_a_config_is_dumped_as_it_is_there(folder, ref):
    fields = "window: Window = Window()\n    file: str | None = None"
    changed(folder, "suite.py", LAST_FIELD, f"{LAST_FIELD}\n    {fields}")
    window = (
        "from bt_bench.results import Noun\nclass Window(Noun):\n    steps: int | None = None\n"
    )
    window += "    start: int = 3\n\n\nclass Tokens("
    changed(folder, "suite.py", "class Tokens(", window)
    hosted = load_config("tiny", suite=str(folder))
    with suites_here():
        assert dump_config(hosted) == dump_config(load_config("tiny", suite=str(folder)))
    assert "null" not in dump_config(hosted)
    (folder / "again.yaml").write_text(dump_config(hosted, folder))
    assert load_config(folder / "again.yaml") == hosted


def test_parameters_of_a_copy_of_the_suite_are_equal(folder, tmp_path):
    """A gate compares configs of two trees."""
    other = write_suite(tmp_path / "other")
    specs = [load_config("tiny", suite=str(each)) for each in (folder, other)]
    assert specs[0].cases == specs[1].cases
    assert specs[0].cases[0] != specs[1].cases[1]
    assert specs[0].suite != specs[1].suite


FILES = """
from typing import Annotated
from bt_bench.protocol import UserFile
"""


def test_files_are_found_from_where_they_are_named(folder, tmp_path, monkeypatch):
    changed(folder, "suite.py", "class Tokens(", f"{FILES}\n\nclass Tokens(")
    field = 'load: Annotated[str, UserFile()] = "x"'
    changed(folder, "suite.py", LAST_FIELD, f"{LAST_FIELD}\n    {field}")
    (tmp_path / "sub").mkdir()
    (tmp_path / "my.yaml").write_text(f"suite: {folder}\ncases: [{{name: a, load: here.txt}}]\n")
    monkeypatch.chdir(tmp_path)
    (case,) = load_config("my.yaml").cases
    assert case.parameters.files() == (tmp_path / "here.txt",)
    moved = case.parameters.with_files(lambda name, path: tmp_path / name / path.name)
    assert moved.files() == (tmp_path / "load/here.txt",)
    monkeypatch.chdir("sub")  # also of a process that runs already
    (case,) = load_config(tmp_path / "my.yaml", overrides=["load=there.txt"]).cases
    assert case.parameters.files() == (tmp_path / "sub/there.txt",)


@pytest.mark.parametrize(
    "error", [UsageError("no such thing"), NotComparableError("others"), BtBenchError("odd")]
)
def test_what_is_refused_there_is_refused_here(ref, error):
    with pytest.raises(type(error), match=str(error)) as caught:
        at_suite(ref, refuse, error)
    assert type(caught.value) is type(error)


def test_a_defect_there_is_one_of_bt_bench(ref):
    with pytest.raises(BtBenchError, match=r"KeyError: 3\ninternal error where a suite runs"):
        at_suite(ref, refuse, KeyError(3))
    assert at_suite(ref, pid) == at_suite(ref, pid) != os.getpid()


def test_only_data_come_back(ref):
    with pytest.raises(UsageError, match=r"must return plain data: builtins.object is no data"):
        at_suite(ref, make_no_data)
    np.testing.assert_array_equal(at_suite(ref, np.arange, 3), np.arange(3))


def test_its_process_ends_with_the_command(ref):
    number = at_suite(ref, pid)
    assert runs(number)
    end_suite(ref)
    wait_for(lambda: not runs(number))
    assert at_suite(ref, pid) != number


HOSTILE = {
    "leaves": "import os; os._exit(0)",
    "leaves later": "import atexit, os; atexit.register(os._exit, 0)\n"
    "Copying.commands = lambda self: os._exit(0)",
    "is killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "raises SystemExit": "Copying.commands = lambda self: exit(0)",
    "closes all": "import os; os.closerange(0, 256)",
}


def commands_of(ref):
    return list(load_suite(ref).commands())


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE)
def test_one_that_ends_its_process_is_refused(folder, ref, code):
    added(folder, code)
    with pytest.raises(UsageError, match="code of the suite must leave its process as it is: the"):
        at_suite(ref, commands_of, ref)


FORGES = """
import gc, os, pickle
from multiprocessing.connection import Connection

class Touch:
    def __reduce__(self):
        return open, ({path!r}, "w")

for found in gc.get_objects():
    if isinstance(found, Connection):
        found.send_bytes({sent})
"""


@pytest.mark.parametrize("sent", ["pickle.dumps(Touch())", "pickle.dumps(3)", "b''"])
def test_one_that_answers_in_place_of_bt_bench_is_refused(folder, ref, tmp_path, sent):
    added(folder, FORGES.format(path=str(tmp_path / "there"), sent=sent))
    with pytest.raises(UsageError, match="it was made to send"):
        load_suite(ref)
    assert not (tmp_path / "there").exists()


def test_a_pickle_of_parameters_is_read_where_suites_run(ref):
    parameters = load_config("tiny", suite=str(ref.folder)).cases[0].parameters
    packed = pickle.dumps(parameters)
    with suites_here():
        assert type(pickle.loads(packed)).__name__ == "Tokens"
