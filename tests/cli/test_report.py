"""`bt-bench report` and `bt-bench archive`, on committed runs."""

from __future__ import annotations

import json
import math

import pytest
from support import scenarios
from support.commands import run, run_apart
from support.committed import ORIGIN
from support.factories import make_case, make_result
from support.refusals import refused

from bt_bench.analysis.compare import one_run
from bt_bench.results import RunFolder
from bt_bench.results.files.writing import write_result
from bt_bench.results.run.nouns import Quantity

ROOFLINE = ORIGIN.parent / "profile" / "roofline"
FUSED = ROOFLINE / "fused.json.xz"


def test_a_run_becomes_a_description(tmp_path):
    out = tmp_path / "pr.md"
    outcome = run("report", ORIGIN, "--format", f"pr={out}", "--json")
    assert outcome.json()["kind"] == "draft"
    assert "a human has to write 9 parts" in outcome.err
    text = out.read_text()
    assert text.startswith("## Overview\n")
    assert "step, 5 cases: one_launch takes 8.7–12.3 × less host time and 3.5–8.5 ×" in text
    assert "| 5 FASTER | 9.0 × | 8.7 × (7.7–9.8) | medium_batch_1grp | 132.1 → 15.23 |" in text
    assert "--variants baseline,fused,one_launch --out origin\n" in text
    assert "/tmp/" not in text


@pytest.fixture
def small(tmp_path):
    """A run folder of two variants."""
    folder = RunFolder.create_exact(tmp_path / "small")
    for result in scenarios.trace_run():
        write_result(folder, result)
    return folder.path


def test_the_page_of_a_run_goes_into_its_folder(small):
    outcome = run("report", small)
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == f"bt-bench: wrote {small / 'report.html'}\n"
    text = (small / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>\n")


def test_without_a_run_it_is_the_page_of_the_latest(small, monkeypatch):
    (small.parent / "reports").mkdir()
    (small / "config.yaml").write_text("name: small\nvariants: [baseline, fused]\n")
    small.rename(small.parent / "reports" / "small")
    monkeypatch.chdir(small.parent)
    assert run("report").code == 0
    assert (small.parent / "reports" / "small" / "report.html").is_file()


def test_every_format_goes_where_it_is_asked_to(small, tmp_path):
    page, tables = tmp_path / "page.html", tmp_path / "tables.md"
    given = ("--format", f"html={page}", "--format", f"md={tables}", "--format", "json=-")
    outcome = run("report", small, *given)
    assert (outcome.code, outcome.json()["kind"]) == (0, "draft")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert tables.read_text(encoding="utf-8").startswith("# ")
    assert not (small / "report.html").exists()
    assert run("report", small, "--format", "html=-").out == page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "formats"), [("report", ("html", "md", "pr", "json")), ("show", ())]
)
def test_each_comparison_is_judged_once(small, command, formats, monkeypatch):
    judged = []
    judge = one_run.judge

    def counted(matchups, *others):
        judged.append([each.other.label for each in matchups])
        return judge(matchups, *others)

    monkeypatch.setattr(one_run, "judge", counted)
    given = [f"--format={name}={small / name}" for name in formats]
    assert run(command, small, *given).code == 0
    assert judged == [["fused"]]


def test_the_page_of_two_runs_needs_a_place(tmp_path):
    samples = {Quantity.HOST_US: [[100 + math.sin(index)] for index in range(12)]}
    for name in ("before", "after"):
        folder = RunFolder.create_exact(tmp_path / name)
        write_result(folder, make_result("vllm", [make_case(samples=samples)], run_id=name))
    given = (f"old={tmp_path / 'before'}", f"new={tmp_path / 'after'}")
    outcome = run("report", *given)
    assert (outcome.code, "--out report.html" in outcome.err) == (2, True)
    assert run("report", *given, "--out", tmp_path / "both.html").code == 0
    assert "vllm@new" in (tmp_path / "both.html").read_text(encoding="utf-8")


def test_a_draft_is_replaced_until_a_human_has_written_in_it(tmp_path):
    out = tmp_path / "pr.md"
    for _ in range(2):
        assert run("report", FUSED, "--format", "pr", "--out", out).code == 0
    written = out.read_text().replace("Summarise the change", "One launch for two")
    out.write_text(written)
    outcome = run("report", FUSED, "--format", "pr", "--out", out)
    assert (outcome.code, out.read_text()) == (2, written)
    assert "pr.md exists, and is no draft with all of its 9 blanks" in outcome.err


def test_a_pair_of_one_run_has_the_first_as_its_base(tmp_path):
    files = (ROOFLINE / f"{name}.json.xz" for name in ("vllm", "one_launch"))
    outcome = run("report", *files, "--format", "json", "--out", tmp_path / "draft.json")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    made = json.loads((tmp_path / "draft.json").read_text())["machine_made"]
    assert {(row["base"], row["other"]) for row in made["rows"]} == {("vllm", "one_launch")}
    assert made["claims"][0].startswith("step, 2 cases: one_launch takes 20.6–21.1 × less host")
    assert not any("vLLM's own code" in limit for limit in made["limits"])


def test_two_runs_are_compared_variant_by_variant(tmp_path):
    samples = {Quantity.HOST_US: [[100 + math.sin(index)] for index in range(12)]}
    for name in ("before", "after"):
        folder = RunFolder.create_exact(tmp_path / name)
        write_result(folder, make_result("vllm", [make_case(samples=samples)], run_id=name))
    given = (f"old={tmp_path / 'before'}", f"new={tmp_path / 'after'}")
    made = run("report", *given, "--json").json()["machine_made"]
    assert [(row["base"], row["other"]) for row in made["rows"]] == [("vllm@old", "vllm@new")]
    assert any("The sides are of 2 runs" in limit for limit in made["limits"])
    assert not any("vLLM's own code" in limit for limit in made["limits"])
    assert made["commands"][-1] == "bt-bench report before after --format pr"


def test_a_label_hides_no_variant():
    """A base is vLLM's own code by its variant, not by its label."""
    files = (f"{label}={ROOFLINE}/{label}.json.xz" for label in ("vllm", "fused"))
    renamed = [text.replace("vllm=", "ours=").replace("fused=", "theirs=") for text in files]
    made = run("report", *renamed, "--json").json()["machine_made"]
    assert [row["base"] for row in made["rows"]] == ["ours", "ours"]
    assert not any("vLLM's own code" in limit for limit in made["limits"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", ORIGIN.with_name("origni")), "does not exist; expected a run folder"),
        (("report", ORIGIN.parent), "holds no result file (<variant>.json)"),
        (
            ("report", ORIGIN.parent / "profile" / "decode", ORIGIN, "--json"),
            "is a timeline, not a result",
        ),
        (("report", ORIGIN.parent / "gate-ca9318f"), "is a recording, not a result"),
        (("report", "-"), "- cannot be reported"),
        (("report", ORIGIN, "--format", "xml"), "unknown format; expected one of html, md, pr"),
        (("report", ORIGIN, "--out", "x.md"), "x.md would be HTML; expected a file such as x.html"),
        (("report", ORIGIN, "--format", "html=x.json"), "expected a file such as x.html"),
        (("report", FUSED), "expected its file, as in --out report.html"),
        (("report", ORIGIN, ROOFLINE), "the page is not of one run folder"),
        (("report", ORIGIN, "--format", "pr=x", "--out", "y"), "every --format has a file"),
        (
            ("report", FUSED, "--format", "pr", "--out", "/dev/full"),
            "cannot write /dev/full: No space left",
        ),
        (("archive", ORIGIN.parent), "holds no result file (<variant>.json)"),
        (("archive", ORIGIN, "--verify", "x"), "--verify x writes nothing; leave out RUN"),
        (("archive", "--verify", ORIGIN / "config.yaml"), "is no .tar.xz file"),
    ],
)
def test_refused(arguments, message):
    assert message in refused(*arguments)


def test_runs_that_cannot_be_compared_make_no_description():
    outcome = run("report", ORIGIN / "baseline.json.xz", FUSED, "--format", "pr")
    assert outcome.code == 4
    assert "are not comparable: plan.case_seconds 3.0 against 8.0" in outcome.err


def test_a_run_is_packed_and_verified(tmp_path):
    out = tmp_path / "origin.tar.xz"
    document = run("archive", ORIGIN, "--out", out, "--json").json()
    assert document["about"]["run_ids"] == ["origin-20261125T175211Z-daaf754f"]
    assert set(document["files"]) == {"ABOUT.json", *(path.name for path in ORIGIN.iterdir())}
    outcome = run("archive", "--verify", out)
    assert (outcome.code, outcome.out.splitlines()[1]) == (0, f"SHA-256: {document['sha256']}")
    assert "6 files as its MANIFEST lists them" in outcome.out
    assert "is an archive; expected a result file. Unpack it with tar xf" in refused("show", out)


def test_neither_needs_torch_or_triton(tmp_path):
    prologue = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['triton'] = sys.modules['pandas'] = None\n"
        "from pathlib import Path\n"
        "from bt_bench.cli.archive import archive\n"
        f"archive(run=Path({str(ROOFLINE)!r}), out=Path({str(tmp_path / 'x.tar.xz')!r}))\n"
    )
    outcome = run_apart("report", ROOFLINE, "--format", "pr", prologue=prologue)
    assert outcome.code == 0, outcome.err
    assert "## Validation" in outcome.out
