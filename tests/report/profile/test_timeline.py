"""What is said of a step: the sentences, the rows, the summary, and their width."""

from __future__ import annotations

import json

import pytest
from support.factories import make_environment
from support.sections import table_of
from support.timelines import (
    FUSED,
    Call,
    Launch,
    a_timeline,
    a_variant,
    failed,
    host_profile,
    shown,
    with_host,
)

from bt_bench.base.document import ABSENT, Bullets, Table, Tone
from bt_bench.report.profile.timeline import (
    explained_steps,
    timeline_document,
    timeline_json,
)
from bt_bench.results import Tracing

WIDTH = 80
SCREEN = 24  # lines, for a step of one launch and for the summary of four variants
LONG = "_gather_and_compute_slot_mappings_kernel_of_all_groups"

# As an engine's own code is, which takes 400 µs: five calls with much of the host's code before.
ENGINE = (
    Call(name="cudaStreamIsCapturing", us=0.3, code_us=40),
    Launch(
        name="cudaMemcpyAsync",
        operation="copy host to device",
        kind="copy",
        records=2,
        runs_us=1.5,
        moved_bytes=4_096,
        code_us=60,
        us=6,
    ),
    Launch(operation=LONG, code_us=90, us=4),
    Launch(operation="gather_kernel", code_us=80, us=4),
    Launch(operation="slots_kernel", code_us=95, us=4),
)
ONE = (Launch(operation="one_kernel", code_us=6, runs_us=6, latency_us=4.5),)
# Of a kernel of 200 µs, behind which another one queues.
BUSY = (
    Launch(operation="apply", code_us=4, runs_us=3),
    Launch(operation="gather", code_us=4, runs_us=200),
    Launch(operation="slots", code_us=4, runs_us=5),
)
BELOW = (Launch(us=1.0, code_us=0.1, runs_us=0.5, latency_us=2.0),)
NOTHING = (Call(),)


def flat(text):
    return " ".join(text.split())


def page(*, whole=False, **scripts):
    return timeline_document(a_timeline(scripts), whole=whole)


def sentences(script):
    (bullets,) = [
        block for block in page(mine=script).sections[0].blocks if isinstance(block, Bullets)
    ]
    return bullets.items


def row_of(table, text, column=1):
    (row,) = [row for row in table.rows if row[column].text == text]
    return row


def longer(variant, more_us):
    """The variant with a step that takes longer than the traced ones explain."""
    plain, traced = variant.of(Tracing.NONE), variant.of(Tracing.ALL)
    slower = plain.model_copy(update={"step_us": [each + more_us for each in plain.step_us]})
    return variant.model_copy(update={"steps": [slower, traced]})


# The sentences


def test_what_binds_and_what_is_launch_overhead():
    binds, host, device, floor = sentences(ENGINE)
    assert binds == (
        "The host binds: the step takes 389.3 µs, its call returns after 384.3 µs, and the GPU "
        "waits for the launches."
    )
    assert host == (
        "The launch overhead is 18.0 µs (4.6 % of the step) in 4 launches; the host's own code "
        "takes 366.0 µs, and other calls of CUDA take 0.3 µs."
    )
    assert device == (
        "The GPU works for 13.5 µs, 10.5 µs of that hidden behind the host, and is idle for "
        "269.5 µs in between; 5.0 µs pass after the return, 2.0 µs of them when the GPU is done."
    )
    assert floor == (
        "The floor, an empty launch and the wait for it, is 7.0 µs: 382.3 µs of the step could be "
        "saved at most."
    )


def test_one_launch_is_not_in_the_plural_and_idles_between_no_operations():
    binds, host, device, _ = sentences(ONE)
    assert binds.startswith("The host binds")
    assert "in 1 launch; the host's own code takes 7.0 µs." in host
    assert device.startswith("The GPU works for 6.0 µs, none of it hidden behind the host; 8.5 µs")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (BUSY, "22.0 µs, and the GPU's last operation waits for those before it."),
        ((Launch(runs_us=200.0),), "9.0 µs, and the GPU's work outlasts that."),
    ],
)
def test_the_gpu_binds(script, expected):
    binds = sentences(script)[0]
    assert binds.startswith("The GPU binds: the step takes 2")
    assert binds.endswith(f"its call returns after {expected}")


def test_work_that_is_all_hidden():
    # The host is busy with other things long after the kernel.
    device = sentences((*FUSED, Call(us=50.0)))[2]
    assert device == (
        "The GPU works for 4.0 µs, all of it hidden behind the host; 1.0 µs pass after the return."
    )


def test_a_step_below_the_floor_has_nothing_to_save():
    floor = sentences(BELOW)[3]
    assert floor == (
        "The floor, an empty launch and the wait for it, is 7.0 µs: the step takes no longer than "
        "that."
    )


def test_a_step_that_launches_nothing():
    assert sentences(NOTHING) == (
        "The step takes 3.5 µs, all of it on the host: it launches nothing.",
    )


# The rows


def test_one_step_on_one_screen():
    text = shown(page(one_launch=ONE))
    lines = text.splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= WIDTH
    assert lines[0] == "Timeline of step/one, step 1 of 0 to 1"
    assert "NVIDIA H200, cupti-python 13.0.1. Medians of 5 traced steps;" in text
    assert "The step must move 10.00 KiB." in text
    rows = [flat(line) for line in lines]
    assert any(row.startswith("host cuLaunchKernelEx 6.0 3.00 3.0–3.0 ·") for row in rows)
    assert any(row.startswith("GPU one_kernel 10.5 6.00 6.0–6.0 ·") for row in rows)


@pytest.mark.parametrize("scale", [1, 10])
def test_rows_of_long_kernels_and_of_milliseconds_are_a_line_each(scale):
    script = (*ENGINE, Launch(operation="elementwise_kernel<at::native::add<int, 4>>"))
    script = (*script, Launch(operation="slow", runs_us=200.0 * scale))
    lines = shown(page(engine=script)).splitlines()
    assert max(map(len, lines)) <= WIDTH
    rule = next(index for index, line in enumerate(lines) if set(line) == {"─"})
    table = table_of(page(engine=script).sections[0])
    assert len(lines) - rule - 1 == len(table.rows)
    assert any("_gather_and_compute_slot_m…" in line for line in lines)
    assert any("host to device, 4.000 KiB" in line for line in lines)


def test_what_a_long_copy_moved_is_not_cut():
    name = "copy between two arrays of the device"
    script = (Launch(operation=name, kind="copy", moved_bytes=1 << 25),)
    table = table_of(page(mine=script).sections[0])
    row_of(table, "between two arr…, 32.00 MiB")
    row_of(table_of(page(whole=True, mine=script).sections[0]), f"{name}, 32.00 MiB")


def test_bars_lie_where_the_rows_do():
    table = table_of(page(busy=BUSY).sections[0])
    bars = {row[1].text: row[-1].text for row in table.rows}
    assert {len(bar) for bar in bars.values() if bar} == {22}
    assert bars["apply"].startswith("█·")
    assert bars["gather"] == "·" + "█" * 20 + "·"
    assert bars["slots"].endswith("·█")


def test_the_residual_is_a_row_and_marked_where_it_is_large():
    residual = "not explained"
    row = row_of(table_of(page(mine=FUSED).sections[0]), residual)
    assert (row[3].text, row[3].tone) == ("0.00", None)
    for more_us, expected in ((4.0, ("4.00", Tone.DOUBTFUL)), (-1e-4, ("0.00", None))):
        timeline = a_timeline(variants=[longer(a_variant("mine"), more_us)])
        row = row_of(table_of(timeline_document(timeline, whole=False).sections[0]), residual)
        assert (row[3].text, row[3].tone) == expected


def test_the_residual_has_its_error():
    one, two = a_variant("one", samples=9), a_variant("two")
    *_, residual, _ = table_of(
        timeline_document(a_timeline(variants=[one]), whole=False).sections[0]
    ).rows
    assert [cell.text for cell in residual[3:5]] == ["0.00", "± 0.00"]
    first, _ = table_of(
        timeline_document(a_timeline(variants=[one, two]), whole=False).sections[0]
    ).rows
    assert first[-1].text == "0.00 ± 0.00"


def test_everything_has_the_whole_names_and_all_moments():
    document = page(whole=True, engine=ENGINE, fused=FUSED)
    titles = [section.title for section in document.sections]
    assert titles == ["Side by side", "A step of engine", "A step of fused"]
    table = table_of(document.sections[1])
    assert table.columns[5:8] == ("queued", "submitted", "ends")
    kernel = row_of(table, LONG)
    assert [cell.text for cell in kernel[2:4]] == ["200.30", "4.00"]
    assert [cell.text for cell in kernel[5:8]] == ["197.30", "197.80", "204.30"]
    copy = row_of(table, "copy host to device, 4.000 KiB")
    assert [cell.text for cell in copy[5:7]] == [ABSENT, ABSENT]
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_hosts_calls_come_with_everything():
    timeline = with_host(a_timeline({"mine": FUSED}), host_profile("pkg.step"))
    assert "pkg.step" not in shown(timeline_document(timeline, whole=False))
    text = shown(timeline_document(timeline, whole=True))
    assert "The host's calls in a step of mine" in text
    assert "pkg.step" in text


# The summary


def test_four_variants_on_one_screen():
    names = {"fused_gather_slots": ONE, "one_launch_graph": BUSY, "baseline": ENGINE, "x": NOTHING}
    document = page(**names)
    lines = shown(document).splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= WIDTH
    (section,) = document.sections
    rows = {name: [cell.text for cell in cells] for name, *cells in table_of(section).rows}
    assert {name.text for name in rows} == set(names)
    # A line each: names are not folded.
    assert sum(line.startswith(tuple(names)) for line in lines) == len(names)
    texts = {name.text: cells for name, cells in rows.items()}
    assert texts["one_launch_graph"] == (
        ["GPU", "222.0", "22.0", "13.0", "3: 9.0", "208.0", "10.0", "200.0", "0.00 ± 0.00"]
    )
    assert texts["baseline"][:5] == ["host", "389.3", "384.3", "366.0", "4: 18.0"]
    assert "is 7.0 µs: every step that launches something takes about as long" in (
        flat("\n".join(lines))
    )


def test_a_summary_of_long_names_stays_within_the_width():
    names = {f"a_variant_with_a_name_that_is_rather_long_{i}": BUSY for i in range(3)}
    scripts = names | {"v" * 100: ENGINE, "fused.v2+x": ONE}
    lines = shown(page(**scripts)).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert all(any(name in line for line in lines) for name in names)


def test_a_summary_of_steps_that_launch_nothing_has_no_floor():
    (section,) = page(one=NOTHING, two=NOTHING).sections
    lead, table = section.blocks
    assert "floor" not in lead
    assert isinstance(table, Table)


def test_a_summary_marks_what_is_not_explained():
    timeline = a_timeline(variants=[longer(a_variant("one"), 4.0), a_variant("two")])
    first, second = table_of(timeline_document(timeline, whole=False).sections[0]).rows
    assert (first[-1].text, first[-1].tone) == ("4.00 ± 0.00", Tone.DOUBTFUL)
    assert second[-1].tone is None


# The lead


def lead(**changes):
    return shown(timeline_document(a_timeline(**changes), whole=False), width=500)


def test_steps_that_are_left_out_are_said_to_be():
    assert "left out" not in lead()
    timeline = a_timeline()
    fused, separate = timeline.variants
    traced = fused.of(Tracing.ALL).model_copy(update={"left_out": 3})
    fused = fused.model_copy(update={"steps": [fused.of(Tracing.NONE), traced]})
    text = lead(variants=[fused, separate])
    assert "other calls than most are left out of the rows: fused 3 of 8." in text


def test_how_many_steps_were_traced():
    assert "Medians of 5 traced steps;" in lead()
    several = [a_variant("one", samples=5), a_variant("two", samples=3)]
    assert "Medians of at least 3 traced steps;" in lead(variants=several)
    assert "Medians of 1 traced step;" in lead(variants=[a_variant("one", samples=1)])
    assert "Medians of no traced step;" in lead(variants=[failed("one")])


def test_what_is_not_known_of_the_place_is_left_out():
    text = lead(num_steps=1, step=0, required_bytes=None)
    assert text.startswith("Timeline of step/one\n")
    assert "must move" not in text
    assert "an unknown GPU" in lead(environment=make_environment(gpus=[]))


def test_variants_that_failed_and_that_are_not_explained():
    text = lead(variants=[a_variant("good"), failed("bad", "it broke"), a_variant("open")])
    assert "FAILED: bad: it broke" in text
    assert "FAILED: good" not in text
    text = lead(variants=[a_variant("good")], empty=[])
    assert "good: the cost of tracing could not be measured, so its step is not explained" in text
    # One that is left is shown as if it were the only one.
    text = lead(variants=[a_variant("good"), failed("bad")])
    assert "A step of good" in text
    assert "Side by side" not in text


def test_odd_names_do_not_become_lines_of_their_own():
    odd = "x\n::error::forged\x1b[31m"
    text = lead(variants=[a_variant(odd), failed("y\n::warning::z", "a\n::error::b")])
    assert "\x1b" not in text
    assert not any(line.startswith("::") for line in text.splitlines())


def test_what_torchs_profiler_does_not_tell():
    """Its columns are there, and empty; what it does not tell is said."""
    bare = []
    for variant in a_timeline().variants:
        traced = variant.of(Tracing.ALL)
        unknown = {"queued_us": None, "submitted_us": None, "moved_bytes": None}
        operations = [each.model_copy(update=unknown) for each in traced.operations]
        traced = traced.model_copy(update={"operations": operations})
        steps = [variant.of(Tracing.NONE), traced]
        bare.append(variant.model_copy(update={"steps": steps}))
    timeline = a_timeline(variants=bare, missing=["when a command was queued", "lost records"])
    document = timeline_document(timeline, whole=True)
    assert "Not known here: when a command was queued; lost records." in document.lead
    assert "Not known here" not in lead()
    table = table_of(document.sections[2])
    copy = row_of(table, "copy host to device")
    assert [cell.text for cell in copy[5:7]] == [ABSENT, ABSENT]
    assert copy[7].text != ABSENT
    assert "Not known here" in shown(document)


# JSON


def test_json_has_the_figures_and_the_reasons():
    timeline = with_host(a_timeline(), host_profile("pkg.step"))
    variants = [*timeline.variants, failed("bad", "it broke")]
    timeline = timeline.model_copy(update={"variants": variants})
    found = json.loads(json.dumps(timeline_json(timeline), allow_nan=False))
    assert (found["case"], found["operation"], found["step"]) == ("one", "step", 1)
    assert found["variants"]["bad"] == {"reason": "it broke"}
    fused = found["variants"]["fused"]
    assert (fused["binds"], fused["closes"], fused["launches"]) == ("host", True, 1)
    assert fused["step_us"] == pytest.approx(explained_steps(timeline)["fused"].step_us)
    assert fused["residual_us"] == pytest.approx(0.0, abs=1e-6)
    kernel = next(row for row in fused["rows"] if row["what"] == "operation")
    assert (kernel["name"], kernel["lane"]) == ("fused_kernel", "device")
    assert fused["host_profile"]["frames"][0]["name"] == "pkg.step"
