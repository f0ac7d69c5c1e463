"""The picture of a trace."""

from __future__ import annotations

from xml.etree import ElementTree

from support.timelines import a_timeline
from trace_picture import picture

from bt_bench.report.profile import trace_json
from bt_bench.report.profile.trace import trace_events

SVG = "{http://www.w3.org/2000/svg}"


def test_the_first_step_of_each_variant_is_drawn():
    timeline = a_timeline()
    trace = trace_events(timeline)
    root = ElementTree.fromstring(picture(trace))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert [variant.name for variant in timeline.variants if variant.name in texts]
    tips = [title.text for title in root.iter(f"{SVG}title")]
    launches = sum(
        call.operation is not None
        for variant in timeline.variants
        for call in variant.steps[-1].calls
    )
    assert sum(tip.startswith("cuLaunchKernel") for tip in tips) <= launches
    assert len(list(root.iter(f"{SVG}rect"))) > 2 * launches
    assert trace_json(timeline)
