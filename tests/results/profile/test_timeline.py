"""Files of timelines: written, read, refused."""

from __future__ import annotations

import json

import pytest
from support.factories import make_environment
from support.timelines import a_timeline

from bt_bench.base.errors import UsageError
from bt_bench.results import Tracing, read_timeline, write_timeline


def written(folder, environment=None):
    made = a_timeline(environment=environment or make_environment(cpu_governor="x", cpu_affinity=1))
    write_timeline(folder / "timeline.json", made)
    return made


def test_what_was_written_is_read_from_the_file_or_its_folder(tmp_path):
    made = written(tmp_path)
    assert read_timeline(tmp_path) == made
    assert read_timeline(tmp_path / "timeline.json") == made
    text = (tmp_path / "timeline.json").read_text()
    assert text.endswith("}\n")


def test_a_timeline_of_a_machine_without_a_cpu_governor_is_read(tmp_path):
    made = written(tmp_path, make_environment(cpu_governor=None))
    assert read_timeline(tmp_path) == made


def test_parts_are_found_by_name_and_tracing():
    made = a_timeline()
    assert made.variant("separate") is made.variants[1]
    assert made.variant("absent") is None
    assert made.variants[0].of(Tracing.ALL).calls
    assert made.variants[0].model_copy(update={"steps": []}).of(Tracing.ALL) is None
    found = made.empty_calls("query", Tracing.ALL)
    assert (found.name, found.tracing) == ("query", Tracing.ALL)
    assert made.empty_calls("other", Tracing.ALL) is None


def test_all_samples_of_a_step_are_as_many():
    for variant in a_timeline().variants:
        for steps in variant.steps:
            timed = [*steps.calls, *steps.operations]
            counts = {len(each.start_us) for each in timed} | {len(each.end_us) for each in timed}
            assert counts <= {len(steps.host_us)}
            assert len(steps.host_us) == len(steps.step_us)


def test_a_folder_without_a_timeline_is_refused(tmp_path):
    expected = r"has no timeline\.json; expected the folder of a profile by --tool timeline"
    with pytest.raises(UsageError, match=expected):
        read_timeline(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        read_timeline(tmp_path / "none.json")


def _steps(data):
    return data["variants"][0]["steps"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.update(schema_version=2), "schema"),
        (lambda data: data.update(required_bytes=-1), "required_bytes"),
        (lambda data: data["empty"][0].update(records=0), "records"),
        (lambda data: _steps(data)[0].update(tracing="some"), "tracing"),
        (lambda data: _steps(data)[0].update(host_us=[None]), "host_us"),
        (lambda data: _steps(data)[0].update(step_us=[float("inf")]), "step_us"),
        (lambda data: data["variants"][0].update(speed=1), "speed"),
        # It contradicts itself.
        (lambda data: _steps(data)[-1]["step_us"].pop(), "step_us has 4 samples"),
        (lambda data: _steps(data)[-1]["turns"].pop(), "turns has 4 samples"),
        (
            lambda data: _steps(data)[-1]["calls"][0]["start_us"].pop(),
            "start_us has 4 samples; expected 5",
        ),
        (
            lambda data: _steps(data)[-1]["calls"][0].update(operation=9),
            "enqueues operation 9, of 1",
        ),
        (lambda data: data["empty"][0]["step_us"].pop(), "step_us has 4 samples"),
        (lambda data: data.update(step=2), "step 2 is not one of 2, counted from 0"),
        (lambda data: data["variants"].append(data["variants"][0]), "expected each name once"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, change, said):
    written(tmp_path)
    path = tmp_path / "timeline.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=rf"timeline\.json .*{said}"):
        read_timeline(path)
    path.write_text("{")
    with pytest.raises(UsageError, match="is not JSON"):
        read_timeline(path)
