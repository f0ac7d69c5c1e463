"""The picture of a step: what is drawn where, its texts, and that it is an XML of its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest
from support.timelines import FUSED, SEPARATE, Call, Launch, a_timeline

from bt_bench.analysis.profile import Lane, RowKind, explain
from bt_bench.report.profile.lanes import LABEL_ROWS, WIDTH, free_rows, lanes_svg

SVG = "{http://www.w3.org/2000/svg}"
CHARACTER = 6.1  # width of one in the labels' font
KERNEL = "_gather_and_compute_slot_mappings_kernel_of_all_groups"


def explained(scripts=None):
    timeline = a_timeline(scripts)
    return [explain(timeline, variant) for variant in timeline.variants]


def step(*script):
    (only,) = explained({"a": script or FUSED})
    return only


class Group:
    """What is drawn with a text on hovering."""

    def __init__(self, element):
        self.tip = element.find(f"{SVG}title").text
        self.texts = [text.text for text in element.findall(f"{SVG}text")]
        self.element = element
        rect = element.find(f"{SVG}rect")
        self.is_bar = rect is not None
        if self.is_bar:
            self.x, self.y, self.width = (float(rect.get(key)) for key in ("x", "y", "width"))
            self.fill = rect.get("fill")

    @property
    def lines(self):
        return self.element.findall(f"{SVG}line")


def groups(picture):
    root = ElementTree.fromstring(picture)
    return [Group(g) for g in root.iter(f"{SVG}g")]


def bars(picture):
    return [group for group in groups(picture) if group.is_bar]


def bars_of(picture, name):
    return [bar for bar in bars(picture) if bar.tip.startswith(f"{name}:")]


def said(picture):
    return [text.text for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def arrows(picture):
    lines = ElementTree.fromstring(picture).iter(f"{SVG}line")
    # The first one is in the legend.
    return [line for line in lines if line.get("marker-end")][1:]


def operation_fill():
    return bars(lanes_svg([step()], ""))[-1].fill


def scale(picture, explained_step):
    """Where 0 µs is, and how wide 1 µs is, from the host's first bar and the wait."""
    host = [row for row in explained_step.rows if row.lane is Lane.HOST]
    drawn = bars(picture)
    first = drawn[0]
    wait = bars_of(picture, "wait for the GPU")[0]
    per_us = (wait.x + wait.width - first.x) / (host[-1].end_us - host[0].start_us)
    return first.x - host[0].start_us * per_us, per_us


def test_bars_lie_where_their_rows_do():
    separate = step(*SEPARATE)
    picture = lanes_svg([separate], "title")
    zero, per_us = scale(picture, separate)
    drawn = bars(picture)
    # The host's bars are drawn before those of the device.
    expected = sorted(separate.rows, key=lambda row: row.lane is Lane.DEVICE)
    assert len(drawn) == len(expected)
    for bar, row in zip(drawn, expected, strict=True):
        assert bar.x == pytest.approx(zero + row.start_us * per_us, abs=0.02)
        assert bar.width == pytest.approx(row.length_us * per_us, abs=0.02)
        assert f"{row.start_us:.2f} to {row.end_us:.2f} µs" in bar.tip
    fill = operation_fill()
    (host_y,) = {bar.y for bar in drawn if bar.fill != fill}
    (device_y,) = {bar.y for bar in drawn if bar.fill == fill}
    assert host_y < device_y


def test_each_kind_of_row_has_a_colour_of_its_own_and_is_in_the_legend():
    separate = step(*SEPARATE)
    assert {row.what for row in separate.rows} == set(RowKind)
    picture = lanes_svg([separate], "title")
    fills = {bar.fill for bar in bars(picture)}
    assert len(fills) == len(RowKind)
    root = ElementTree.fromstring(picture)
    assert {rect.get("fill") for rect in root.findall(f"{SVG}rect")} == {*fills, "#ffffff"}
    for name in ("host's own code", "launch", "other call of CUDA", "wait for the GPU", "enqueues"):
        assert name in said(picture)


def test_all_variants_share_an_axis():
    steps = explained({"fused": FUSED, "separate": SEPARATE})
    picture = lanes_svg(steps, "title")
    assert steps[0].step_us < steps[1].step_us
    ends = [bar.x + bar.width for bar in bars_of(picture, "wait for the GPU")]
    zero, per_us = scale(picture, steps[0])
    assert ends == pytest.approx([zero + each.rows[-1].end_us * per_us for each in steps], abs=0.05)
    tops = [bar.y for bar in bars_of(picture, "wait for the GPU")]
    assert tops[1] > max(bar.y for bar in bars_of(picture, "fused_kernel"))


def test_the_return_and_the_total_are_marked():
    separate = replace(step(*SEPARATE), step_us=123.4)
    picture = lanes_svg([separate], "title")
    (returns,) = [group for group in groups(picture) if group.tip.startswith("the step's call")]
    wait = bars_of(picture, "wait for the GPU")[0]
    (line,) = returns.lines
    assert float(line.get("x1")) == float(line.get("x2")) == pytest.approx(wait.x, abs=0.02)
    assert line.get("stroke-dasharray")
    (total,) = [group for group in groups(picture) if group.tip.startswith("the whole step")]
    assert total.texts == ["123.4 µs"]
    assert "the whole step: 123.40 µs" in total.tip
    assert float(total.lines[0].get("x1")) > wait.x + wait.width


def test_arrows_lead_from_launches_to_operations():
    separate = step(*SEPARATE)
    picture = lanes_svg([separate], "title")
    launching = {
        id(row): bar
        for row, bar in zip(
            [row for row in separate.rows if row.lane is Lane.HOST], bars(picture), strict=False
        )
    }
    operations = [row for row in separate.rows if row.lane is Lane.DEVICE]
    drawn = arrows(picture)
    assert len(drawn) == len(operations) == 3
    for line, row in zip(drawn, operations, strict=True):
        launch = launching[id(separate.rows[row.launched_by])]
        (bar,) = bars_of(picture, row.name)
        assert launch.x < float(line.get("x1")) < launch.x + launch.width
        assert float(line.get("x2")) == pytest.approx(bar.x, abs=0.02)
        assert launch.y < float(line.get("y1")) < float(line.get("y2")) <= bar.y


def test_an_operation_that_nothing_enqueued_has_no_arrow():
    fused = step()
    rows = tuple(replace(row, launched_by=None) for row in fused.rows)
    picture = lanes_svg([replace(fused, rows=rows)], "title")
    assert len(bars_of(picture, "fused_kernel")) == 1
    assert arrows(picture) == []


def test_operations_that_overlap_are_below_each_other():
    script = (
        Launch(operation="long", runs_us=40.0),
        Launch(operation="beside", runs_us=3.0, stream=1),
        Launch(operation="last"),
    )
    picture = lanes_svg([step(*script)], "title")
    long, beside, last = (bars_of(picture, name)[0] for name in ("long", "beside", "last"))
    assert long.y == last.y < beside.y
    assert long.x < beside.x < long.x + long.width
    one_row = lanes_svg([step(*script[::2])], "title")
    heights = [float(ElementTree.fromstring(each).get("height")) for each in (picture, one_row)]
    assert heights[0] > heights[1]


def test_medians_that_overlap_a_little_stay_in_one_row():
    separate = step(*SEPARATE)
    rows = list(separate.rows)
    (before, after) = [place for place, row in enumerate(rows) if row.lane is Lane.DEVICE][-2:]
    rows[after] = replace(rows[after], start_us=rows[before].end_us - 0.05)
    picture = lanes_svg([replace(separate, rows=tuple(rows))], "title")
    assert len({bar.y for bar in bars(picture) if bar.fill == operation_fill()}) == 1


@pytest.mark.parametrize(
    ("spans", "rows"),
    [
        ([], []),
        ([(0, 2), (2, 3), (3, 3)], [0, 0, 0]),
        ([(0, 9), (1, 2), (1.5, 3), (2, 4), (9, 9)], [0, 1, 2, 1, 0]),
        ([(5, 6), (0, 1)], [0, 0]),
    ],
)
def test_free_rows_are_the_first_ones(spans, rows):
    assert free_rows(spans) == rows


def test_long_names_are_cut_and_full_on_hovering():
    picture = lanes_svg(
        explained({"one": (Launch(operation=KERNEL, runs_us=0.4), Launch(operation="k" * 300))}),
        "title",
    )
    assert bars_of(picture, KERNEL)
    assert bars_of(picture, "k" * 300)
    texts = [text for text in said(picture) if text.startswith("_gather")]
    assert len(texts) == 1
    assert texts[0].endswith("… 0.4")
    assert max(map(len, said(picture))) < 100


def boxes(picture):
    """Left, right and baseline of the labels in the font of known width."""
    found = []
    for text in ElementTree.fromstring(picture).iter(f"{SVG}text"):
        if "Mono" in (text.get("font-family") or ""):
            x = float(text.get("x"))
            found.append((x, x + CHARACTER * len(text.text), float(text.get("y")), text.text))
    return found


@pytest.mark.parametrize("count", [1, 4, 12, 40])
@pytest.mark.parametrize("beside_us", [0.0, 400.0])
def test_texts_neither_overlap_nor_leave_the_picture(count, beside_us):
    names = [KERNEL, "short", "[CUDA memcpy HtoD]"]
    script = [
        Launch(operation=names[place % 3], runs_us=1.0 + place % 4, code_us=place % 5)
        for place in range(count)
    ]
    steps = explained({"some": script, "long": (Call(us=beside_us), *FUSED)})
    picture = lanes_svg(steps, "title")
    drawn = boxes(picture)
    for left, right, baseline, text in drawn:
        assert left >= 0, text
        assert right <= WIDTH, text
        assert baseline < float(ElementTree.fromstring(picture).get("height"))
    for one, other in combinations(drawn, 2):
        if one[2] == other[2]:
            assert one[1] <= other[0] or other[1] <= one[0], (one, other)


def test_a_name_at_the_right_edge_begins_before_its_operation():
    late = step(Call(us=400.0), Launch(operation=KERNEL))
    picture = lanes_svg([late], "title")
    (label,) = [box for box in boxes(picture) if box[3].startswith("_gather")]
    assert len(label[3]) > 30
    assert label[0] < bars_of(picture, KERNEL)[0].x


def test_a_text_that_the_dashed_line_would_cross_begins_behind_it():
    long = Launch(operation="a_kernel", runs_us=100.0)
    picture = lanes_svg([step(replace(long, us=12.0))], "title")
    (bar,) = bars_of(picture, "a_kernel")
    returns = bars_of(picture, "wait for the GPU")[0].x
    assert bar.x < returns < bar.x + bar.width
    (label,) = [box for box in boxes(picture) if box[3].startswith("a_kernel")]
    assert returns < label[0]
    assert label[1] < bar.x + bar.width


def test_names_that_find_no_place_are_counted():
    script = [Launch(operation=f"kernel_{place}", runs_us=0.3, code_us=0.1) for place in range(60)]
    steps = explained({"some": script})
    picture = lanes_svg(steps, "title")
    named = sum(text.startswith("kernel_") for text in said(picture))
    assert LABEL_ROWS <= named < 60
    assert said(picture)[-1].endswith(
        f" {60 - named} operations have their names only on hovering."
    )
    assert "only on hovering" not in said(lanes_svg([step()], "title"))[-1]


def test_names_and_titles_cannot_become_markup():
    name = '<b>&"\x1b[31m\ud800'
    fused = replace(step(Launch(operation=name)), name=name)
    picture = lanes_svg([fused], f"<script>{name}")
    shown = '<b>&" [31m'
    assert bars_of(picture, shown)
    assert shown in said(picture)
    assert said(picture)[0] == f"<script>{shown}"
    assert ElementTree.fromstring(picture.encode()).find(f"{SVG}title").text == f"<script>{shown}"


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("one_launch", ["one_launch"]),
        ("fused_step_direct_launches", ["fused_step_direct_", "launches"]),
        ("c" * 60, ["c" * 18, "c" * 17 + "…"]),
    ],
)
def test_names_of_variants_take_up_to_two_lines(name, lines):
    picture = lanes_svg([replace(step(), name=name)], "title")
    (group,) = [group for group in groups(picture) if group.tip == name]
    assert group.texts == lines


def test_tips_have_all_that_is_known_of_an_operation():
    copy, kernel = (
        row for row in step(*SEPARATE).rows if row.name in ("copy host to device", "gather_kernel")
    )
    picture = lanes_svg([step(*SEPARATE)], "title")
    (tip,) = [bar.tip for bar in bars_of(picture, "copy host to device")]
    assert "moves 4.000 KiB" in tip
    assert "queued" not in tip
    (tip,) = [bar.tip for bar in bars_of(picture, "gather_kernel")]
    assert f"queued at {kernel.queued_us:.2f} µs; submitted at {kernel.submitted_us:.2f} µs" in tip
    assert "launched by cuLaunchKernelEx at" in tip
    assert copy.queued_us is None


@pytest.mark.parametrize("step_us", [0.004, 0.9, 18.0, 160.0, 25_000.0])
def test_ticks_are_round_and_few(step_us):
    fused = step()
    factor = step_us / fused.rows[-1].end_us
    rows = tuple(
        replace(row, start_us=row.start_us * factor, end_us=row.end_us * factor)
        for row in fused.rows
    )
    picture = lanes_svg([replace(fused, rows=rows, step_us=step_us)], "title")
    root = ElementTree.fromstring(picture)
    ticks = [float(t.text) for t in root.findall(f"{SVG}text") if t.get("text-anchor") == "middle"]
    assert ticks[0] == 0
    assert 4 <= len(ticks) <= 11
    assert ticks[-1] <= step_us * 1.0001


def test_moments_before_the_call_begin_at_it():
    fused = step()
    rows = (replace(fused.rows[0], start_us=-3.0), *fused.rows[1:])
    picture = lanes_svg([replace(fused, rows=rows)], "title")
    zero = bars(lanes_svg([fused], "title"))[0].x
    assert bars(picture)[0].x == zero


def test_pictures_without_anything_to_draw_are_pictures_too():
    assert said(lanes_svg([], "title"))[-1] == "There is no step that could be explained."
    empty = replace(step(), rows=(), step_us=0.0)
    assert "0.0 µs" in said(lanes_svg([empty], "title"))


def test_the_picture_has_its_own_background_and_needs_nothing_else():
    picture = lanes_svg(explained(), "title")
    root = ElementTree.fromstring(picture)
    background = root.find(f"{SVG}rect")
    assert (background.get("fill"), background.get("width")) == ("#ffffff", str(WIDTH))
    assert background.get("height") == root.get("height")
    assert "href" not in picture
    assert "<script" not in picture
