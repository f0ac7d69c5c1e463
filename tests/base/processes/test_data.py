"""What other processes send is data: it comes back equal, and nothing of it runs."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections import Counter, OrderedDict
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from support.factories import make_case, make_environment, make_result

from bt_bench.analysis import Verdict
from bt_bench.base.names import Operation
from bt_bench.base.processes import NoDataError, pack, unpack
from bt_bench.protocol import Floats, SuiteRef
from bt_bench.results import Reason, ReasonCode
from bt_bench.suites.block_tables.operations import STEP
from bt_bench.worker.profiling.records import ApiRecord
from bt_bench.worker.tasks.messages import Hello, Message
from bt_bench.worker.tasks.outcome import Measured
from bt_bench.worker.tasks.runner import Failure, Success

REASON = Reason(code=ReasonCode.CRASHED, message="it \udcff died")
VALUES = [
    None,
    [
        1,
        -(2**70),
        1.5,
        float("inf"),
        True,
        "µ",
        b"\0",
        (1, [2, {"a": {3}, (4, "b"): frozenset({5})}]),
    ],
    Verdict.SLOWER,
    REASON,
    Failure(REASON, 2, True),
    Message(7, Success({("mine", STEP): Measured(reason=REASON)})),
    Hello("cpu", make_environment("cpu"), None, {"mine": True}),
    make_result("mine", [make_case()]),
    ApiRecord("driver", "cuLaunchKernel", 1, 2, 3),
    SuiteRef(name="mine", folder=Path("/a/b\udcff")),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_it_comes_back_as_it_was(value):
    found = unpack(pack(value))
    assert found == value
    assert type(found) is type(value)


def test_operations_keep_what_is_known_of_them():
    found = unpack(pack({"one": STEP, "other": Operation("copy")}))
    assert found == {"one": STEP, "other": "copy"}
    assert found["one"].traits == STEP.traits
    assert not found["other"].is_known


@pytest.mark.parametrize("dtype", ["i1", "u8", "f2", "f8", "?", "c16", ">i4"])
def test_arrays_of_numbers_come_back(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype).T
    found = unpack(pack([array, array[0, 1], Floats(array[:0])]))
    np.testing.assert_array_equal(found[0], array)
    assert found[0].dtype == array.dtype
    assert found[0].flags.writeable
    assert (found[1], type(found[1])) == (array[0, 1], type(array[0, 1]))
    assert found[2].values.shape == (0, 2)
    assert isinstance(unpack(pack(np.array(3))), np.ndarray)


class Text(str):
    """Of a user."""

    def __eq__(self, other):
        raise AssertionError

    __hash__ = str.__hash__


def test_of_derived_classes_there_is_left_what_they_are_derived_from():
    given = [Text("a"), Counter("aab"), OrderedDict(b=1), MappingProxyType({"c": 2}), np.str_("d")]
    found = unpack(pack(given))
    assert found == ["a", {"a": 2, "b": 1}, {"b": 1}, {"c": 2}, "d"]
    assert {type(each) for each in found} == {str, dict}


class Mine:
    """Of nobody."""


@pytest.mark.parametrize(
    "value", [Mine(), np.dtype("i8"), os.getcwd, os, np.array([Mine()]), lambda: 0, Text]
)
def test_what_is_no_data_is_not_packed(value):
    with pytest.raises(TypeError, match="is no data for another process"):
        pack([value])


class Reduced:
    """Pickled as a call."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


class Described(pickle.Pickler):
    """Sends any description of an object."""

    def persistent_id(self, value):
        return value.call if isinstance(value, Reduced) else None


def described(*parts):
    import io

    buffer = io.BytesIO()
    Described(buffer).dump(Reduced(*parts))
    return buffer.getvalue()


# Sets an attribute of a class, as pickle does for objects that have slots.
_MODULE = Hello.__module__.encode()
ON_A_CLASS = (
    b"\x80\x04\x8c"
    + bytes([len(_MODULE)])
    + _MODULE
    + b"\x8c\x05Hello\x93N}\x8c\x06device\x8c\x01x\x73\x86b."
)
HOSTILE = {
    "a call": pickle.dumps(Reduced(os._exit, (7,))),
    "a call of Python": pickle.dumps(Reduced(eval, ("__import__('os')._exit(7)",))),
    "a process": pickle.dumps(Reduced(subprocess.Popen, (["false"],))),
    "a class of ours": pickle.dumps(REASON),
    "an attribute of a class": ON_A_CLASS,
    "another's class": described("dataclass", "subprocess", "Popen", {"args": "false"}),
    "a function of ours": described("dataclass", "bt_bench.cli", "main", {}),
    "what a module of ours imports": described("dataclass", "bt_bench.cli", "os", {}),
    "a class of ours that does things": described(
        "dataclass",
        "bt_bench.worker.process.supervisor",
        "Supervisor",
        {"setup": None, "serve": None},
    ),
    "a class that a module of ours imports": described(
        "model", "bt_bench.base.processes.data", "BaseModel", {}
    ),
    "an object of Python's": described("array", "O", (1,), b"\0" * 8, False),
    "too few bytes": described("array", "i8", (2**40,), b"\0" * 8, False),
    "fields that do not fit": described(
        "model", "bt_bench.results.run.nouns", "Reason", {"code": 3}
    ),
    "fields that there are not": described(
        "dataclass", "bt_bench.worker.tasks.runner", "Success", {"a": 3}
    ),
    "no description": described("nothing"),
    "an extension": b"\x82\x01.",
    "nothing": b"",
    "noise": b"\x93\x00garbage",
    "half": pack(VALUES)[:-9],
}


def test_pickle_alone_would_set_the_attribute(monkeypatch):
    monkeypatch.setattr(Hello, "device", None, raising=False)
    pickle.loads(ON_A_CLASS)
    assert Hello.device == "x"


@pytest.mark.parametrize("packed", HOSTILE.values(), ids=HOSTILE)
def test_nothing_else_is_read(packed):
    before = dict(vars(Hello))
    with pytest.raises(NoDataError):
        unpack(packed)
    assert dict(vars(Hello)) == before
