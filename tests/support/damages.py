"""Ways in which a result file can be damaged, each with the message that refuses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from bt_bench.results.run.nouns import Method
from bt_bench.results.run.result import VariantResult
from support.factories import make_calibration, make_rounds

Damage = Callable[[dict[str, Any]], None]


def _samples(data: dict[str, Any]) -> list[list[Any]]:
    samples: list[list[Any]] = data["cases"][0]["measurements"][0]["samples"]
    return samples


def _spread(data: dict[str, Any], difference_us: float) -> dict[str, Any]:
    parts = ("quantity", "method", "launch_path", "load", "l2")
    series = {part: data["cases"][0]["measurements"][0][part] for part in parts}
    return {"series": series, "arm": "baseline", "difference_us": difference_us}


def _kernel(**fields: Any) -> dict[str, Any]:
    return {"name": "k", "hashes": ["a"], "registers": [22], "spills": [0]} | fields


SAMPLES = "$.cases[0].measurements[0].samples"
DAMAGES: dict[str, tuple[Damage, str]] = {
    "schema version": (
        lambda data: data.update(schema_version=4, something_new=3),
        "has schema version 4; expected 3. Read it with the version of bt-bench that wrote it, "
        "or measure again",
    ),
    "earlier schema version": (
        lambda data: (data.update(schema_version=1), data["cases"][0].clear())[0],
        "has schema version 1; expected 3. Read it with the version of bt-bench that wrote it, "
        "or measure again",
    ),
    "schema version as text": (
        lambda data: data.update(schema_version="3"),
        'has schema version "3"; expected 3. Read it with the version of bt-bench that wrote it, '
        "or measure again",
    ),
    "missing key": (
        lambda data: data.pop("cases"),
        "is not a complete result of bt-bench: missing cases",
    ),
    "missing inner key": (
        lambda data: data["cases"][1].pop("workload"),
        "is not a valid result: $.cases[1].workload is missing",
    ),
    "unknown key": (
        lambda data: data["cases"][0].update(spead=1),
        "is not a valid result: $.cases[0].spead: extra inputs are not permitted, got 1",
    ),
    "wrong type": (
        lambda data: data.update(complete="yes"),
        'is not a valid result: $.complete: input should be a valid boolean, got "yes"',
    ),
    "wrong type of a parameter": (
        lambda data: data["cases"][0]["workload"]["parameters"].update(groups={}),
        "is not a valid result: $.cases[0].workload.parameters.groups: input should be a valid "
        "boolean, got an object (and 6 more)",
    ),
    "unknown operation": (
        lambda data: data["cases"][2].update(operation="scatter"),
        "is not a valid result: $.cases[2].operation: input should be 'stage', 'apply', 'gather', "
        "'slots', 'gather_slots' or 'step', got \"scatter\"",
    ),
    "negative sample": (
        lambda data: _samples(data)[2].__setitem__(0, -1.5),
        f"is not a valid result: {SAMPLES}[2][0]: input should be greater than or equal to 0, "
        "got -1.5",
    ),
    "NaN sample": (
        lambda data: _samples(data)[1].__setitem__(0, float("nan")),
        f"is not a valid result: {SAMPLES}[1][0]: input should be a finite number, got NaN",
    ),
    "infinite sample": (
        lambda data: _samples(data)[1].__setitem__(0, float("inf")),
        f"is not a valid result: {SAMPLES}[1][0]: input should be a finite number, got Infinity",
    ),
    "sample as text": (
        lambda data: _samples(data)[0].__setitem__(0, "1.5"),
        f'is not a valid result: {SAMPLES}[0][0]: input should be a valid number, got "1.5"',
    ),
    "absent sample": (
        lambda data: _samples(data)[0].__setitem__(0, None),
        f"is not a valid result: {SAMPLES}[0][0]: input should be a valid number, got null",
    ),
    "another unit": (
        lambda data: data["cases"][0]["measurements"][0].update(unit="ms"),
        "is not a valid result: $.cases[0].measurements[0].unit: input should be 'us', got \"ms\"",
    ),
    "short round": (
        lambda data: _samples(data)[1].pop(),
        f"is damaged: {SAMPLES}[1] has 0 samples; "
        "expected one for each of the 1 steps of its window",
    ),
    "long round": (
        lambda data: _samples(data)[1].append(1.0),
        f"is damaged: {SAMPLES}[1] has 2 samples; "
        "expected one for each of the 1 steps of its window",
    ),
    "no rounds": (
        lambda data: _samples(data).clear(),
        f"is damaged: {SAMPLES} has no rounds; expected at least one, or no such measurement",
    ),
    "two cases with one key": (
        lambda data: data["cases"].append(data["cases"][0]),
        "is damaged: $.cases has key 'gather_slots/one' 2 times; expected it once",
    ),
    "two measurements of one series": (
        lambda data: data["cases"][0]["measurements"].append(data["cases"][0]["measurements"][1]),
        "is damaged: $.cases[0].measurements has series "
        "'host_us, host_clock, jit, idle, hot' 2 times; expected it once",
    ),
    "rounds and samples": (
        lambda data: data["cases"][0]["measurements"][0]["rounds"].pop(),
        "is damaged: $.cases[0].measurements[0].rounds has 2 rounds; expected 3, as samples has",
    ),
    "a sample per step for a window": (
        lambda data: data["cases"][1]["measurements"][0].update(per="window"),
        "is damaged: $.cases[1].measurements[0].samples[0] has 2 samples; "
        "expected one for the whole of its window",
    ),
    "a list of the log": (
        lambda data: data["cases"][1]["rounds"]["seconds"].pop(),
        "is damaged: $.cases[1].rounds.seconds has 2 rounds; expected 3, as kind has",
    ),
    "a round that is not in the log": (
        lambda data: data["cases"][1]["measurements"][0].update(rounds=[0, 1, 3]),
        "is damaged: $.cases[1].measurements[0].rounds[2] is 3; "
        "expected one of the 3 rounds of the log",
    ),
    "a discarded round": (
        lambda data: data["cases"][1]["rounds"]["discarded"].__setitem__(1, "clock"),
        "is damaged: $.cases[1].measurements[0].rounds[1] is 1, a discarded round (clock)",
    ),
    "a round twice": (
        lambda data: data["cases"][1]["measurements"][0].update(rounds=[0, 1, 1]),
        "is damaged: $.cases[1].measurements[0].rounds[2] is 1 after 1; expected them ascending",
    ),
    "rounds in another order": (
        lambda data: data["cases"][1]["measurements"][0].update(rounds=[0, 2, 1]),
        "is damaged: $.cases[1].measurements[0].rounds[2] is 1 after 2; expected them ascending",
    ),
    "no log": (
        lambda data: data["cases"][1].update(rounds=None),
        "is damaged: $.cases[1].rounds is missing; "
        "expected the log of the rounds that were measured",
    ),
    "launches of another window": (
        lambda data: data["cases"][0]["launches"]["steps"].append([]),
        "is damaged: $.cases[0].launches.steps has 2 steps; expected 1, as the window has",
    ),
    "another key": (
        lambda data: data["cases"][1].update(key="step/other"),
        "is damaged: $.cases[1].key is 'step/other'; expected 'step/two', operation and case",
    ),
    "a short line of the calibration": (
        lambda data: data["calibration"]["lines"][0]["reported_us"].pop(),
        "is damaged: $.calibration.lines[0].reported_us has 3 lengths; expected 4, as set_us has",
    ),
    "required bytes of another window": (
        lambda data: data["cases"][1]["workload"].update(
            required_bytes={"step": {"read": [8, 8], "written": [4]}}
        ),
        "is damaged: $.cases[1].workload.required_bytes.step.written has 1 values; expected 2, one "
        "for each step of the window",
    ),
    "required bytes that are none": (
        lambda data: data["cases"][1]["workload"].update(
            required_bytes={"step": {"read": [8, -8], "written": [4, 4]}}
        ),
        "is not a valid result: $.cases[1].workload.required_bytes.step.read[1]: input should be "
        "greater than or equal to 0, got -8",
    ),
    "a size of copies without times": (
        lambda data: data["calibration"].update(
            copies={"moved_bytes": [1024, 2048], "samples": [[0.8]]}
        ),
        "is damaged: $.calibration.copies.samples has 1 lists; expected 2, one per size",
    ),
    "sizes of copies that do not rise": (
        lambda data: data["calibration"].update(
            copies={"moved_bytes": [2048, 1024], "samples": [[0.8], [0.8]]}
        ),
        "is damaged: $.calibration.copies.moved_bytes is [2048, 1024]; expected sizes that rise",
    ),
    "no time of a copy": (
        lambda data: data["calibration"].update(
            copies={"moved_bytes": [1024], "samples": [[0.8, 1e13]]}
        ),
        "is damaged: $.calibration.copies.samples[0][1] is 1e+13, which no clock can have "
        "measured; expected 0, or 1e-09 to 1e+12 µs",
    ),
    "less than any clock tells": (
        lambda data: _samples(data)[1].__setitem__(0, 5e-324),
        f"is damaged: {SAMPLES}[1][0] is 4.94066e-324, which no clock can have measured; "
        "expected 0, or 1e-09 to 1e+12 µs",
    ),
    "more than any call takes": (
        lambda data: _samples(data)[2].__setitem__(0, 1e300),
        f"is damaged: {SAMPLES}[2][0] is 1e+300, which no clock can have measured; "
        "expected 0, or 1e-09 to 1e+12 µs",
    ),
    "no time in the control's samples": (
        lambda data: data["cases"][0].update(
            control=[data["cases"][0]["measurements"][0] | {"samples": [[1.0], [1e13], [1.0]]}]
        ),
        "is damaged: $.cases[0].control[0].samples[1][0] is 1e+13, which no clock can have "
        "measured; expected 0, or 1e-09 to 1e+12 µs",
    ),
    "a control that came out too far": (
        lambda data: data["cases"][0].update(control_spreads=[_spread(data, -1e300)]),
        "is damaged: $.cases[0].control_spreads[0].difference_us is -1e+300; "
        "expected 1e+12 µs at most",
    ),
    "more launches than a number can tell apart": (
        lambda data: data["cases"][0]["launches"]["steps"][0][0].update(count=2**53 + 1),
        "is damaged: $.cases[0].launches.steps[0][0].count is above 9007199254740992; "
        "expected less",
    ),
    "more launches than fit into a number": (
        lambda data: data["cases"][0]["launches"]["steps"][0][0].update(count=10**400),
        "is damaged: $.cases[0].launches.steps[0][0].count is above 9007199254740992; "
        "expected less",
    ),
    "negative registers": (
        lambda data: data["cases"][0].update(compiled=[_kernel(registers=[30, -1])]),
        "is damaged: $.cases[0].compiled[0].registers[1] is not a count; expected a whole number "
        "from 0 to 9007199254740992",
    ),
    "spills beyond any number": (
        lambda data: data["cases"][0].update(compiled=[_kernel(spills=[10**400])]),
        "is damaged: $.cases[0].compiled[0].spills[0] is not a count; expected a whole number "
        "from 0 to 9007199254740992",
    ),
    "a kernel twice": (
        lambda data: data["cases"][0].update(compiled=[_kernel(), _kernel()]),
        "is damaged: $.cases[0].compiled has name 'k' 2 times; expected it once",
    ),
    "a figure of the calibration": (
        lambda data: data["calibration"]["figures"].append(
            {"name": "empty_call", "what": "", "samples": [0.05, 1e200]}
        ),
        "is damaged: $.calibration.figures[0].samples[1] is 1e+200, which no clock can have "
        "measured; expected 0, or 1e-09 to 1e+12 µs",
    ),
    "a set length of the calibration": (
        lambda data: data["calibration"]["lines"][0]["set_us"].__setitem__(1, -3.0),
        "is damaged: $.calibration.lines[0].set_us[1] is -3, which no clock can have "
        "measured; expected 0, or 1e-09 to 1e+12 µs",
    ),
    "a reported length of the calibration": (
        lambda data: data["calibration"]["lines"][0]["reported_us"][1].__setitem__(0, 1e200),
        "is damaged: $.calibration.lines[0].reported_us[1][0] is 1e+200, which no clock can "
        "have measured; expected 0, or 1e-09 to 1e+12 µs",
    ),
    "the control's samples": (
        lambda data: data["cases"][1].update(control=data["cases"][0]["measurements"][:1]),
        "is damaged: $.cases[1].control[0].samples[0] has 1 samples; "
        "expected one for each of the 2 steps of its window",
    ),
}


def with_a_log(result: VariantResult) -> VariantResult:
    """The second case with the log of its rounds, and a calibration."""
    first, second, third = result.cases
    logged = second.model_copy(update={"rounds": make_rounds(3)})
    calibration = make_calibration(intercepts_us={Method.EVENTS: 1.0})
    return result.model_copy(update={"cases": [first, logged, third], "calibration": calibration})


def damaged(data: dict[str, Any], damage: Damage) -> dict[str, Any]:
    damaged: dict[str, Any] = json.loads(json.dumps(data))
    damage(damaged)
    return damaged


def refusal(data: dict[str, Any], message: str) -> str:
    """A message of `DAMAGES`, with the case that its JSON path is in."""
    place = re.search(r"\$\.cases\[(\d+)\]", message)
    if place is None:
        return message
    text, more, rest = message.partition(" (and ")
    return f"{text} (case {data['cases'][int(place[1])]['key']}){more}{rest}"
