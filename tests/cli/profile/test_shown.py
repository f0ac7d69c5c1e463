"""`bt-bench show` of a profile."""

from __future__ import annotations

import json
import lzma

import pytest
from support.censuses import made_up
from support.commands import run
from support.ncu import counters, kernel_counters
from support.refusals import refused
from support.timelines import a_timeline

from bt_bench.cli.profile.places import case_folders
from bt_bench.results import (
    COUNTERS_NAME,
    TIMELINE_NAME,
    VariantCounters,
    write_census,
    write_counters,
    write_timeline,
)


@pytest.fixture
def profile(tmp_path):
    """The folder of a profile with a timeline and counters, as `sweep --profile` leaves it."""
    folder = tmp_path / "profile-one"
    folder.mkdir()
    write_timeline(folder / TIMELINE_NAME, a_timeline())
    variant = VariantCounters(name="fused", kernels=[kernel_counters()])
    write_counters(folder / COUNTERS_NAME, counters(variant))
    return folder


def test_all_that_a_profile_has_is_printed(profile):
    done = run("show", str(profile))
    assert done.code == 0
    assert "Timeline of step/one" in done.out
    assert "Counters of step/one" in done.out
    assert "submitted" not in done.out
    assert "submitted" in run("show", str(profile), "--all").out


def test_a_file_of_it_alone_and_json(profile):
    done = run("show", str(profile / COUNTERS_NAME))
    assert "Counters of step/one" in done.out
    assert "Timeline" not in done.out
    document = json.loads(run("show", str(profile), "--json").out)
    assert set(document) == {"schema_version", "timeline", "counters"}
    assert document["timeline"]["variants"]["fused"]["binds"] == "host"


def test_refusals(profile):
    assert "is a profile, which is shown as a whole; leave out -k" in refused(
        "show", str(profile), "-k", "one"
    )
    (profile / TIMELINE_NAME).write_text("{", encoding="utf-8")
    assert TIMELINE_NAME in refused("show", str(profile))


def test_a_census_of_a_gate_has_the_figures_of_its_kernels(tmp_path):
    write_census(tmp_path / "mine.json", made_up())
    done = run("report", str(tmp_path / "mine.json"))
    assert done.code == 0, done.err
    page = (tmp_path / "mine.html").read_text(encoding="utf-8")
    assert '<td class="n ">32</td>' in page
    assert "Registers by target" in page
    assert "waits" not in page[page.index("<main>") : page.index("</main>")]
    assert "a static census has no such report" in refused(
        "report", str(tmp_path / "mine.json"), "--json"
    )


def test_the_page_of_a_census_leaves_out_secrets_if_asked_to(tmp_path):
    census = made_up().model_copy(update={"config": "/home/somebody/secret/mine"})
    write_census(tmp_path / "mine.json", census)
    page = tmp_path / "mine.html"
    assert run("report", str(tmp_path / "mine.json")).code == 0
    assert "/home/somebody" in page.read_text(encoding="utf-8")
    assert run("report", str(tmp_path / "mine.json"), "--redact").code == 0
    assert "/home/somebody" not in page.read_text(encoding="utf-8")


def test_a_static_profile(tmp_path):
    folder = tmp_path / "kernels"
    options = ["-k", "uniform_1grp", "--operations", "slots", "--variants", "baseline"]
    made = run("profile", "quick", "--tool", "static", *options, "--target", "sm_90",
               "--out", str(folder))  # fmt: skip
    assert made.code == 0
    done = run("show", str(folder))
    assert done.code == 0
    assert "slots_kernel" in done.out


def test_a_packed_profile_is_shown_as_it_was(profile):
    unpacked = run("show", str(profile), "--json").out
    for name in (TIMELINE_NAME, COUNTERS_NAME):
        packed = profile / f"{name}.xz"
        packed.write_bytes(lzma.compress((profile / name).read_bytes()))
        (profile / name).unlink()
    assert run("show", str(profile), "--json").out == unpacked
    assert "Timeline of" in run("show", str(profile / f"{TIMELINE_NAME}.xz")).out
    assert case_folders(profile.parent) == [profile]
