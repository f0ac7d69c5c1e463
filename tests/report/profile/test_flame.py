"""The flame graph: widths, what is left out, texts, and that it is an XML of its own."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bt_bench.report.profile.flame import WIDTH, flame_graph
from bt_bench.results import HandlerCost, HostFrame, HostProfile

FREE = HandlerCost(within_us=0, around_us=0)
SVG = "{http://www.w3.org/2000/svg}"
INNER = WIDTH - 24


def frame(name, self_us, *children, file="pkg/a.py"):
    return HostFrame(
        name=name,
        kind="c" if file is None else "python",
        file=file,
        line=None if file is None else 7,
        calls=1,
        self_us=self_us,
        self_low_us=self_us,
        self_high_us=self_us,
        total_us=self_us + sum(child.total_us for child in children),
        children=list(children),
    )


def profile(*frames, plain_us):
    return HostProfile(
        plain_us=plain_us, repetitions=9, python_call=FREE, c_call=FREE, frames=list(frames)
    )


class Drawn:
    """A drawn frame."""

    def __init__(self, group):
        rect = group.find(f"{SVG}rect")
        self.tip = group.find(f"{SVG}title").text
        self.x, self.y, self.width = (float(rect.get(key)) for key in ("x", "y", "width"))
        self.fill = rect.get("fill")
        text = group.find(f"{SVG}text")
        self.text = "" if text is None else text.text


def drawn(picture):
    """The frames by the names in their tips."""
    root = ElementTree.fromstring(picture)
    groups = [g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}title") is not None]
    found = [Drawn(group) for group in groups]
    return {each.tip.partition(",")[0].partition(":")[0]: each for each in found}


def said(picture):
    root = ElementTree.fromstring(picture)
    return [text.text for text in root.findall(f"{SVG}text")]


def test_widths_are_proportional_and_children_lie_below_their_caller():
    step = frame("step", 10, frame("stage", 20), frame("copy_", 30, file=None))
    frames = drawn(flame_graph(profile(step, plain_us=100), "Host"))
    widths = {name: each.width / INNER for name, each in frames.items()}
    assert widths == pytest.approx(
        {"step": 0.6, "stage": 0.2, "copy_": 0.3, "not explained": 0.4}, abs=1e-4
    )
    step, stage, copy = frames["step"], frames["stage"], frames["copy_"]
    assert stage.x == step.x
    assert copy.x == pytest.approx(stage.x + stage.width, abs=0.02)
    assert stage.y == copy.y > step.y
    rest = frames["not explained"]
    assert (rest.y, rest.x) == (step.y, pytest.approx(step.x + step.width, abs=0.02))
    assert len({step.fill, copy.fill, rest.fill}) == 3
    assert stage.fill == step.fill


def test_calls_that_exceed_the_step_fill_the_picture():
    picture = flame_graph(profile(frame("step", 60), plain_us=50), "Host")
    frames = drawn(picture)
    assert frames["step"].width == pytest.approx(INNER)
    assert "not explained" not in frames
    assert any("add up to 10.00 µs more" in text for text in said(picture))
    assert not any("not explained" in text for text in said(picture))


def test_narrow_frames_are_left_out_and_counted():
    small = frame("small", 0.1, frame("tiny", 0.1))
    picture = flame_graph(profile(frame("step", 99.8, small), plain_us=100), "Host")
    assert list(drawn(picture)) == ["step"]
    assert said(picture)[-1] == (
        "2 frames of less than 0.3 % of the width are left out, 0.20 µs together."
    )


def test_tips_have_what_texts_cut():
    name = "FusedGatherSlots.gather_and_compute_slot_mappings"
    step = frame("step", 70, frame(name, 20), frame(f"{name}_2", 10), frame("narrow", 1))
    frames = drawn(flame_graph(profile(step, plain_us=101), "Host"))
    # The last part fits where the whole name does not; else its begin is shown.
    by_width = [frames[name].text, frames[f"{name}_2"].text, frames["narrow"].text]
    assert by_width[0].startswith("gather_and_compute_slot")
    assert by_width[1].startswith("gather")
    assert by_width[1].endswith("…")
    assert by_width[2] == ""
    assert frames[name].tip == (
        f"{name}, a.py:7: 20.00 µs, 19.8 % of the step; 20.00 µs of its own; 1 call"
    )


def test_names_cannot_become_markup():
    step = frame('<genexpr> & "co"\x1b[31m', 10)
    picture = flame_graph(profile(step, plain_us=10), "a <b> & c")
    (only,) = drawn(picture).values()
    assert only.text == '<genexpr> & "co" [31m'
    assert said(picture)[0] == "a <b> & c"


def test_the_picture_has_its_own_background_and_needs_nothing_else():
    picture = flame_graph(profile(frame("step", 10), plain_us=10), "Host")
    root = ElementTree.fromstring(picture)
    background = root.find(f"{SVG}rect")
    assert (background.get("fill"), background.get("width")) == ("#ffffff", root.get("width"))
    assert root.get("width") == "1000"
    assert "href" not in picture
    assert "<script" not in picture


def test_the_height_follows_the_deepest_frame():
    def nested(levels):
        return frame("f", 10, *([nested(levels - 1)] if levels > 1 else []))

    heights = [
        int(ElementTree.fromstring(flame_graph(profile(nested(n), plain_us=60), "H")).get("height"))
        for n in (1, 6)
    ]
    assert heights[1] - heights[0] == 5 * 20


def test_a_step_without_calls_is_a_picture_too():
    picture = flame_graph(profile(plain_us=5), "Host")
    assert list(drawn(picture)) == ["not explained"]
    assert said(picture)[-1].startswith("The step makes no call")
    ElementTree.fromstring(flame_graph(profile(plain_us=0), "Host"))
