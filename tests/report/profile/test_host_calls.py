"""What is said of a step's calls: the table, what changed, and the width of a terminal."""

from __future__ import annotations

import json

from support.sections import table_of, texts_of
from support.timelines import shown

from bt_bench.analysis.profile.host_calls import host_changes
from bt_bench.base.document import ABSENT, Document, Tone
from bt_bench.report.profile.host_calls import (
    host_changes_json,
    host_changes_section,
    host_section,
    place_of,
)
from bt_bench.results import HandlerCost, HostFrame, HostProfile

PYTHON = HandlerCost(within_us=0.2, around_us=0.3)
C = HandlerCost(within_us=0.1, around_us=0.15)


def frame(name, self_us, *children, calls=1, file="pkg/a.py", vary=False):
    return HostFrame(
        name=name,
        kind="c" if file is None else "python",
        file=file,
        line=None if file is None else 7,
        calls=calls,
        calls_vary=vary,
        self_us=self_us,
        self_low_us=self_us,
        self_high_us=self_us,
        total_us=self_us,
        children=list(children),
    )


def profile(*frames, plain_us=50.0, left_out=0):
    return HostProfile(
        plain_us=plain_us,
        repetitions=38,
        left_out=left_out,
        python_call=PYTHON,
        c_call=C,
        frames=list(frames),
    )


def test_functions_with_most_time_come_first_and_the_rest_is_a_row():
    step = frame("step", 10, frame("Tensor.copy_", 20, calls=2, file=None))
    section = host_section(profile(step, left_out=2), "Host of fused")
    assert section.title == "Host of fused"
    assert texts_of(section) == [
        ["Tensor.copy_", "C", "2", "20.00", "20.00–20.00", "40.0 %"],
        ["step", "a.py:7", "1", "10.00", "10.00–10.00", "20.0 %"],
        ["not explained", "", "", "20.00", "", "40.0 %"],
        ["the whole step", "", "", "50.00", "", "100.0 %"],
    ]
    lead = section.blocks[0]
    assert "50.00 µs without a handler" in lead
    assert "traced in 38 repetitions. 2 more called other functions, and are left out." in lead
    assert lead.endswith("0.50 µs for each call of Python and 0.25 µs for each of C.")


def test_small_functions_are_one_row():
    calls = [frame(f"f{n}", 1 + n / 100) for n in range(15)]
    texts = texts_of(host_section(profile(*calls), "Host"))
    assert len(texts) == 12 + 3
    assert texts[12][:4] == ["3 further functions", "", "", "3.03"]


def test_the_rows_add_up_to_the_whole_step():
    calls = [frame(f"f{n}", 2) for n in range(20)]
    *parts, whole = (float(texts[3]) for texts in texts_of(host_section(profile(*calls), "Host")))
    assert sum(parts) == whole


def test_frames_that_exceed_the_step_are_explained():
    section = host_section(profile(frame("step", 30, frame("f", 50))), "Host")
    *_, rest, _ = table_of(section).rows
    assert "slower while it is traced" in rest[3].note
    # So that shares do not exceed 100 %.
    assert "Shares are of the 80.00 µs that its calls add up to." in section.blocks[0]
    assert [texts[3:] for texts in texts_of(section)] == [
        ["50.00", "50.00–50.00", "62.5 %"],
        ["30.00", "30.00–30.00", "37.5 %"],
        ["-30.00", "", ABSENT],
        ["50.00", "", ABSENT],
    ]


def test_what_two_digits_hide_is_not_too_much():
    section = host_section(profile(frame("step", 50.004)), "Host")
    *_, rest, _ = table_of(section).rows
    assert (rest[3].text, rest[3].note) == ("0.00", None)
    assert "Shares" not in section.blocks[0]


def test_calls_that_vary_have_a_note():
    rows = table_of(host_section(profile(frame("f", 9, calls=4, vary=True)), "Host")).rows
    assert "differs between repetitions" in rows[0][2].note
    assert rows[1][2].note is None


def test_a_step_without_calls_says_so():
    section = host_section(profile(), "Host")
    assert "makes no call" in section.blocks[1]


def test_changes_name_the_function_and_its_times():
    before = profile(frame("step", 10), frame("old", 3), frame("same", 1))
    after = profile(frame("step", 15), frame("new", 4), frame("same", 1), plain_us=56)
    section = host_changes_section(before, after, "Against a")
    assert "was 50.00 µs and is 56.00 µs" in section.blocks[0]
    assert texts_of(section) == [
        ["new", "a.py:7", "new", "1", ABSENT, "4.00", "+4.00"],
        ["old", "a.py:7", "gone", "1", "3.00", ABSENT, "-3.00"],
        ["step", "a.py:7", "longer", "1", "10.00", "15.00", "+5.00"],
    ]
    tones = [row[-1].tone for row in table_of(section).rows]
    assert tones == [Tone.BAD, None, Tone.BAD]


def test_more_calls_are_shown():
    before, after = profile(frame("f", 5, calls=2)), profile(frame("f", 5, calls=3))
    assert texts_of(host_changes_section(before, after, "Against a"))[0][2:4] == [
        "more calls",
        "2 → 3",
    ]


def test_many_changes_are_cut_and_counted():
    before = profile(*(frame(f"f{n}", 20 - n) for n in range(14)))
    section = host_changes_section(before, profile(), "Against a")
    assert len(table_of(section).rows) == 12
    assert section.blocks[-1] == "2 further functions have changed, by 8.00 µs each at most."


def test_no_change_is_said():
    same = profile(frame("f", 5))
    (said,) = host_changes_section(same, same, "Against a").blocks
    assert said.endswith("No function has changed by more than it scatters.")


def test_changes_as_json_have_both_functions():
    before = profile(frame("step", 10), frame("old", 3))
    after = profile(frame("step", 15), frame("sleep", 4, file=None))
    found = json.loads(json.dumps(host_changes_json(host_changes(before, after))))
    assert [(each["kind"], each["name"], each["where"]) for each in found] == [
        ("new", "sleep", "C"),
        ("gone", "old", "a.py:7"),
        ("time", "step", "a.py:7"),
    ]
    assert [each["difference_us"] for each in found] == [4, -3, 5]
    assert (found[2]["before"]["self_us"], found[2]["after"]["self_us"]) == (10, 15)
    assert (found[0]["before"], found[1]["after"]) == (None, None)


def test_all_fits_into_80_columns():
    name = "FusedGatherSlots.gather_and_compute_slot_mappings"
    before = profile(frame(name, 10_000.5, file="x/_function_base_impl.py"), plain_us=12_345.6)
    after = profile(frame(name, 20_000.5, file="x/_function_base_impl.py"), plain_us=22_345.6)
    sections = host_section(before, "Host"), host_changes_section(before, after, "Against a")
    lines = shown(Document("Profile", (), sections)).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(name in line for line in lines) == 2


def test_places_are_short():
    assert place_of("triton/runtime/jit.py", 375) == "jit.py:375"
    assert place_of("<string>", 1) == "<string>:1"
    assert place_of(None, None) == "C"
