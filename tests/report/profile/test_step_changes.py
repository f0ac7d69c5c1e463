"""What is said of the changes of a step: the sentence, the table, and the JSON."""

from __future__ import annotations

import json

from support.sections import table_of, texts_of
from support.timelines import shown

from bt_bench.analysis.profile.rows import Lane, RowKind, TimelineRow
from bt_bench.analysis.profile.step_changes import step_changes
from bt_bench.analysis.profile.timeline import Explained
from bt_bench.base.document import ABSENT, Document, Tone
from bt_bench.report.profile.step_changes import step_changes_json, step_changes_section


def row(what, name, us, launched_by=None):
    lane = Lane.DEVICE if what is RowKind.OPERATION else Lane.HOST
    return TimelineRow(lane, what, name, 1.0, 1.0 + us, us, us, launched_by=launched_by)


def explained(*rows, step_us=50.0):
    return Explained(
        name="fused",
        step_us=step_us,
        step_low_us=step_us - 1,
        step_high_us=step_us + 2,
        host_us=step_us - 10,
        predicted_us=step_us,
        error_us=None,
        rows=rows,
        launches=0,
        launch_us=0,
        other_calls_us=0,
        code_us=0,
        latency_us=None,
        busy_us=0,
        hidden_us=0,
        left_us=0,
        tail_us=0,
        added_us=0,
        floor_us=0,
    )


def step(code_us=5.0, launch_us=2.0, kernel_us=3.0, kernel="gather", step_us=50.0):
    return explained(
        row(RowKind.CODE, "host code", code_us),
        row(RowKind.LAUNCH, "cuLaunchKernelEx", launch_us),
        row(RowKind.OPERATION, kernel, kernel_us, launched_by=1),
        step_us=step_us,
    )


def test_the_step_is_told_first_and_then_each_row():
    after = step(code_us=6, launch_us=6, kernel_us=1, step_us=56)
    section = step_changes_section(step(), after, "A step of fused")
    assert section.title == "A step of fused"
    lead = section.blocks[0]
    assert "took 50.00 (49.00–52.00) µs and takes 56.00 (55.00–58.00) µs" in lead
    assert "took 40.00 µs, and takes 46.00 µs" in lead
    assert texts_of(section) == [
        ["host", "cuLaunchKernelEx of gather", "longer", "2.00", "6.00", "+4.00"],
        ["GPU", "gather", "shorter", "3.00", "1.00", "-2.00"],
        ["host", "host code before gather", "longer", "5.00", "6.00", "+1.00"],
    ]
    tones = [cells[-1].tone for cells in table_of(section).rows]
    assert tones == [Tone.BAD, None, Tone.BAD]


def test_rows_of_one_step_alone_have_one_time():
    texts = texts_of(step_changes_section(step(), step(kernel="copy", kernel_us=4), "Step"))
    assert texts == [
        ["GPU", "copy", "new", ABSENT, "4.00", "+4.00"],
        ["GPU", "gather", "gone", "3.00", ABSENT, "-3.00"],
    ]


def test_no_change_is_said():
    (said,) = step_changes_section(step(), step(step_us=50.5), "Step").blocks
    assert said.endswith("No row has changed by more than it scatters.")


def test_many_changes_are_cut_and_counted():
    after = explained(*(row(RowKind.CALL, f"call{n}", 20 - n) for n in range(14)))
    section = step_changes_section(explained(), after, "Step")
    assert [texts[1] for texts in texts_of(section)] == [f"call{n}" for n in range(12)]
    assert section.blocks[-1].startswith("2 further rows ")
    section = step_changes_section(explained(), after, "Step", whole=True)
    assert len(texts_of(section)) == 14
    assert not str(section.blocks[-1]).startswith("2 further")


def test_json_has_all_rows_with_their_names():
    calls = [row(RowKind.CALL, f"call{n}", 9 - n / 10) for n in range(14)]
    changes = step_changes(step(), explained(*step(kernel_us=20).rows, *calls))
    found = json.loads(json.dumps(step_changes_json(changes)))
    assert len(found) == 15
    longer, new = found[0], found[1]
    assert (longer["kind"], longer["lane"], longer["what"]) == ("longer", "device", "operation")
    assert (longer["name"], longer["difference_us"]) == ("gather", 17)
    assert (longer["before"]["high_us"], longer["after"]["high_us"]) == (3, 20)
    assert (new["kind"], new["name"], new["before"]) == ("new", "call0", None)


def test_json_says_what_was_launched():
    (change,) = step_changes_json(step_changes(step(), step(launch_us=9)))
    assert (change["name"], change["next_to"]) == ("cuLaunchKernelEx", "gather")


def test_all_fits_into_80_columns():
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int> >"
    before = step(kernel=name, launch_us=10_000.5, kernel_us=10_000.5, step_us=12_345.6)
    after = step(kernel=name, launch_us=20_000.5, kernel_us=20_000.5, step_us=22_345.6)
    section = step_changes_section(before, after, "A step of fused")
    lines = shown(Document("Against a", (), (section,))).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("+10000.00" in line for line in lines) == 2
